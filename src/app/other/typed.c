// Reads the user's input in this process: without a sandbox a helper process has no use. See typed.h.
#include "app/typed.h"
#include "app/app.h"
#include "app/typed_reader.h"

struct typed { typed_reader of; VEC(struct span) dropped; };

typed *typed_new(const struct typed_how *how, error *err) {
  (void)err;
  typed *t = xcalloc(1, sizeof *t);
  t->of.how = *how;
  t->of.how.editing = false;           // the terminal edits lines itself
  return t;
}

void typed_free(typed *t) {
  if (!t) return;
  dropped_free(&t->of.to_read);
  free(t->of.to_write);
  vec_free(&t->dropped);
  free(t);
}

enum input typed_line(typed *t, const char *prompt, const char *begin, str *out) {
  t->dropped.n = 0;
  out->n = 0;
  if (t->of.how.person) interrupt_note();
  enum input got = reader_message(&t->of, prompt, begin, out);
  bool dropped = reader_note_files(&t->of, *begin || got != INPUT_TEXT ? "" : str_c(out));
  for (size_t i = 0; dropped && i < t->of.to_read.n; i++)
    vec_push(&t->dropped, ((struct span){t->of.to_read.at[i].from, t->of.to_read.at[i].n}));
  return got;
}

const struct span *typed_dropped(const typed *t, size_t *n) {
  *n = t->dropped.n;
  return t->dropped.at;
}

int typed_read(typed *t, size_t i, char **text, size_t *n, error *err) {
  *text = NULL;
  return reader_read(&t->of, i, text, n, err);
}

int typed_write(typed *t, const char *text, size_t n, error *err) { return reader_write(&t->of, text, n, err); }
