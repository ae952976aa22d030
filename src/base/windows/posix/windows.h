// Windows's own header, without the words of 16 bits that it takes.
#include_next <windows.h>
#undef far
#undef near
#undef small
#undef interface
