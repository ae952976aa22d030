// Terminals: see tty.h.
#define _GNU_SOURCE
#include "base/tty.h"
#include "base/env.h"
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool tty_takes_codes(int fd) {
  const char *kind = env_str(ENV_TERM);
  return *kind && strcmp(kind, "dumb") && isatty(fd);
}

int tty_columns(int fd) {
  struct winsize w = {0};
  return ioctl(fd, TIOCGWINSZ, &w) || !w.ws_col ? 80 : w.ws_col;
}

void tty_be_quiet(struct termios *t) {
  t->c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
  t->c_cc[VMIN] = 1;
  t->c_cc[VTIME] = 0;
}
