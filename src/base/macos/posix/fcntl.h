// O_PATH does not exist here: folders are opened for reading.
#ifndef WEFT_MACOS_FCNTL_H
#define WEFT_MACOS_FCNTL_H
#include_next <fcntl.h>
#define O_PATH O_RDONLY
#endif
