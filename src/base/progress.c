// Progress bars: see progress.h.
#define _GNU_SOURCE
#include "base/progress.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 32 };
static const double DELAY = .25, EVERY = .05;   // seconds: before the first drawing, between two

void progress_begin(progress *p) {
  *p = (progress){.on = isatty(STDERR_FILENO), .began = now_s()};
}

void progress_set(progress *p, const char *what, double fraction) {
  if (!p->on) return;
  double now = now_s();
  if (now - p->began < DELAY || (now - p->drawn < EVERY && fraction < 1)) return;
  p->drawn = now;
  p->visible = true;
  fraction = fmin(fmax(fraction, 0), 1);
  char bar[WIDTH + 1];
  int full = (int)(fraction * WIDTH);
  memset(bar, '#', (size_t)full);
  memset(bar + full, '.', (size_t)(WIDTH - full));
  bar[WIDTH] = 0;
  fprintf(stderr, "\r\033[K%-10s [%s] %3.0f %%", what, bar, floor(fraction * 100));
  fflush(stderr);
}

void progress_end(progress *p) {
  if (p->visible) fputs("\r\033[K", stderr);
  p->visible = false;
}
