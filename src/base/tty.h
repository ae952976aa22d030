// tty: what a terminal is told, and what it does with keys meanwhile.
//
// Control sequences (colours, moves of the cursor) go to terminals that obey them, and nowhere else: TERM says so.
#ifndef WEFT_TTY_H
#define WEFT_TTY_H
#include "base/base.h"
#include <termios.h>

bool tty_takes_codes(int fd);                // a terminal, and TERM is neither empty nor "dumb"
int tty_columns(int fd);                     // how wide it is; 80 where it does not say
// The same settings, but keys are neither echoed nor kept back until Enter: they wait for whoever reads them.
void tty_be_quiet(struct termios *t);
#endif
