// Loaded before weft (LD_PRELOAD): when the program ends, it tries to leave the sandbox from inside, each attempt in a
// child, and says on stderr what came of it: "attack: NAME: works", "refused", "ended" or "fails". VICTIM is the id of
// another process, FILE the name of a file.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include "../base/confine_attempts.h"

__attribute__((destructor)) static void try_all(void) {
  static const char *const ends[] = {"works", "refused", "ended", "fails", "fails"};
  const char *victim = getenv("VICTIM"), *file = getenv("FILE");
  if (!victim || !file) return;
  for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
      errno = 0;
      bool works = attempts[i].make(atoi(victim), file);
      _exit(works ? ATTEMPT_WORKS : errno == EPERM || errno == ENOSYS ? ATTEMPT_REFUSED : ATTEMPT_FAILS);
    }
    if (child > 0) waitpid(child, &status, 0);
    int end = child < 0 || WIFSIGNALED(status) ? ATTEMPT_FAILS : WEXITSTATUS(status);
    if (child > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) end = ATTEMPT_ENDED;
    dprintf(2, "attack: %s: %s\n", attempts[i].name, ends[end]);
  }
}
