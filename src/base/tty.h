// tty: control sequences for terminals, and the handling of keys meanwhile.
//
// Control sequences (colours, cursor movement) are only written to terminals that support them, according to TERM.
#ifndef WEFT_TTY_H
#define WEFT_TTY_H
#include "base/base.h"
#include <termios.h>

bool tty_takes_codes(int fd);                // a terminal, and TERM is neither empty nor "dumb"
int tty_columns(int fd);                     // width; 80 if unknown
// Changes the settings so that keys are neither echoed nor held back until Enter: they wait to be read.
void tty_be_quiet(struct termios *t);
#endif
