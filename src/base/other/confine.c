// No confinement: systems other than Linux have no seccomp filters and no Landlock, and `weft env` says so. See
// confine.h.
#include "base/confine.h"

static bool asked;
bool confine_was_asked(void) { return asked; }
bool confine_signals_leave(void) { return false; }

bool confine(enum confine_kind kind, bool signals) {
  (void)kind, (void)signals;
  asked = true;
  return false;
}

bool confine_signals(long other) { return (void)other, false; }
void confine_explain(void) {}

enum confine_answer confine_answer_to(enum confine_kind kind, int call) {
  return (void)kind, (void)call, CONFINE_IS_UNKNOWN;
}

const char *confine_name(int call) { return (void)call, NULL; }
