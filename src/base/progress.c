// Draws progress bars: see progress.h.
#define _GNU_SOURCE
#include "base/progress.h"
#include "base/str.h"
#include "base/tty.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 32, LEAST = 8, NUMBER = 6 /* " 100 %" */ };
static const double DELAY = .25, EVERY = .05;   // seconds before the first drawing, and between two

static bool off;                                // set once, before there are threads
void progress_off(void) { off = true; }

void progress_begin(progress *p) {
  *p = (progress){.on = !off && tty_takes_codes(STDERR_FILENO), .began = now_s()};
}

void progress_set(progress *p, const char *what, double fraction) {
  if (!p->on) return;
  double now = now_s();
  if (now - p->began < DELAY || (now - p->drawn < EVERY && fraction < 1)) return;
  p->drawn = now;
  p->visible = true;
  fraction = fmin(fmax(fraction, 0), 1);
  str line = {0};
  // text in the last column would begin a new line
  progress_line(&line, what, fraction, tty_columns(STDERR_FILENO) - 1);
  fprintf(stderr, "\r\033[K%s", str_c(&line));
  fflush(stderr);
  str_free(&line);
}

// If space is short, the bar is shortened, then dropped; then the text is cut.
void progress_line(str *out, const char *what, double fraction, int columns) {
  int words = (int)strlen(what), padded = words < 10 ? 10 : words, bar = columns - padded - NUMBER - 3;
  if (bar > WIDTH) bar = WIDTH;
  if (bar < LEAST) {
    int room = columns - NUMBER;
    str_addf(out, "%.*s", room < 0 ? 0 : room, what);
  } else {
    int full = (int)(fraction * bar);
    str_addf(out, "%-10s [", what);
    for (int i = 0; i < bar; i++) str_addc(out, i < full ? '#' : '.');
    str_addc(out, ']');
  }
  str_addf(out, " %3.0f %%", floor(fraction * 100));
}

void progress_end(progress *p) {
  if (p->visible) fputs("\r\033[K", stderr);
  p->visible = false;
}
