// Terminal settings, by the mode bits of a console.
#ifndef WEFT_WINDOWS_TERMIOS_H
#define WEFT_WINDOWS_TERMIOS_H
typedef unsigned tcflag_t;
struct termios { unsigned c_iflag, c_oflag, c_lflag; unsigned char c_cc[32]; };
enum { ICANON = 1, ECHO = 2, ISIG = 4, IEXTEN = 8, ICRNL = 16, IXON = 32, OPOST = 64 };
enum { VMIN, VTIME, VINTR, VQUIT, VSUSP, VEOF, VERASE, VKILL, VWERASE };
enum { TCSANOW, TCSADRAIN, TCSAFLUSH };
int tcgetattr(int fd, struct termios *t);
int tcsetattr(int fd, int when, const struct termios *t);
#endif
