// Loaded before weft (LD_PRELOAD): says on stderr, when the program ends, which of the files in REACH (separated by
// ':') it could still open: "reach: PATH r-", "rw", "-w" or "--".
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int opens(const char *path, int how) {
  int fd = open(path, how | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

__attribute__((destructor)) static void try_all(void) {
  const char *list = getenv("REACH");
  char *all = list ? strdup(list) : NULL, *rest = all;
  for (char *path; all && (path = strsep(&rest, ":")) != NULL;)
    dprintf(2, "reach: %s %c%c\n", path, opens(path, O_RDONLY) ? 'r' : '-', opens(path, O_WRONLY) ? 'w' : '-');
  free(all);
}
