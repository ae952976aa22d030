// Windows's own header, without its macros far, near, small and interface.
#include_next <windows.h>
#undef far
#undef near
#undef small
#undef interface
