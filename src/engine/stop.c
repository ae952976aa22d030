// Finds stop strings: see stop.h. At most the longest stop string is held back, so a plain comparison is fast enough.
#include "engine/stop.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1024, MOST = 64 };

struct weft_stop {
  VEC(str) texts;
  str held, shown;
};

int stop_new(const char *const *texts, size_t n, stop **out, error *err) {
  if (n > MOST) return error_set(err, "there are %zu stop strings; %d are allowed", n, MOST);
  for (size_t i = 0; i < n; i++) {
    size_t len = strlen(texts[i]);
    if (!len || len > LONGEST)
      return error_set(err, "stop string %zu has %zu bytes; it must have 1 to %d", i + 1, len, LONGEST);
  }
  stop *s = xcalloc(1, sizeof *s);
  for (size_t i = 0; i < n; i++) {
    str text = {0};
    str_add(&text, texts[i]);
    vec_push(&s->texts, text);
  }
  *out = s;
  return 0;
}

void stop_free(stop *s) {
  if (!s) return;
  for (size_t i = 0; i < s->texts.n; i++) str_free(&s->texts.at[i]);
  vec_free(&s->texts);
  str_free(&s->held);
  str_free(&s->shown);
  free(s);
}

// The stop string that is complete first, the longest of those that end there, as if the text came byte by byte. -1:
// none.
static int first_complete(const stop *s, size_t *begin) {
  int found = -1;
  for (size_t end = 1; found < 0 && end <= s->held.n; end++) {
    for (size_t i = 0; i < s->texts.n; i++) {
      const str *t = &s->texts.at[i];
      if (t->n > end || memcmp(s->held.at + end - t->n, t->at, t->n) || (found >= 0 && *begin <= end - t->n)) continue;
      found = (int)i;
      *begin = end - t->n;
    }
  }
  return found;
}

static bool begins_a_stop(const stop *s, const char *text, size_t n) {
  for (size_t i = 0; i < s->texts.n; i++)
    if (n < s->texts.at[i].n && !memcmp(text, s->texts.at[i].at, n)) return true;
  return false;
}

const char *stop_add(stop *s, const char *text, size_t n, size_t *n_out, int *found) {
  size_t at = 0;
  str_addn(&s->held, text, n);
  s->shown.n = 0;
  *found = first_complete(s, &at);
  if (*found < 0) while (at < s->held.n && !begins_a_stop(s, s->held.at + at, s->held.n - at)) at++;
  str_addn(&s->shown, s->held.at, at);
  size_t left = *found >= 0 ? 0 : s->held.n - at;
  memmove(s->held.at, s->held.at + at, left);
  s->held.n = left;
  *n_out = s->shown.n;
  return s->shown.at;
}

const char *stop_end(stop *s, size_t *n_out) {
  s->shown.n = 0;
  str_addn(&s->shown, str_c(&s->held), s->held.n);
  s->held.n = 0;
  *n_out = s->shown.n;
  return s->shown.at;
}
