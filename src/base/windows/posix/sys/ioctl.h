// The size of a terminal.
#ifndef WEFT_WINDOWS_IOCTL_H
#define WEFT_WINDOWS_IOCTL_H
enum { TIOCGWINSZ = 1 };
struct winsize { unsigned short ws_row, ws_col; };
int posix_ioctl(int fd, int what, struct winsize *out);
#define ioctl posix_ioctl
#endif
