// Runs ptxas: see nv_ptxas.h. Its input and output are memory files, which have names in /proc.
#define _GNU_SOURCE
#include "device/nv_ptxas.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/env.h"

enum { MOST_CUBIN = 64 << 20, SAID = 800, CANNOT_RUN = 127 };
enum { IN, OUT, SAYS, N_FILES };           // descriptors 3 and 4 of the child, and its standard output and error

static bool make_files(int files[N_FILES]) {
  bool all = true;
  for (int i = 0; i < N_FILES; i++) all &= (files[i] = memfd_create("ptxas", MFD_CLOEXEC)) >= 0;
  return all;
}
static void close_files(const int files[N_FILES]) {
  for (int i = 0; i < N_FILES; i++) if (files[i] >= 0) close(files[i]);
}

static _Noreturn void become_program(char *const *args, const int files[N_FILES]) {
  int apart[N_FILES];                      // move them out of each other's way first
  for (int i = 0; i < N_FILES; i++) apart[i] = fcntl(files[i], F_DUPFD_CLOEXEC, 10);
  if (dup2(apart[IN], 3) == 3 && dup2(apart[OUT], 4) == 4 && dup2(apart[SAYS], 1) == 1 && dup2(apart[SAYS], 2) == 2)
    execvp(args[0], args);
  _exit(CANNOT_RUN);
}

// Returns the exit status; CANNOT_RUN: the program does not exist; -1: it ended otherwise.
static int run_program(char *const *args, const int files[N_FILES]) {
  int status = -1;
  pid_t child = fork();
  if (!child) become_program(args, files);
  if (child > 0) child_wait(child, &status);       // a lost status counts as 0: what is there says the rest
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The end of its output, as one line.
static void take_words(int file, char *out, size_t cap) {
  off_t n = lseek(file, 0, SEEK_END), from = n > (off_t)cap - 1 ? n - (off_t)cap + 1 : 0;
  ssize_t got = n > 0 ? pread(file, out, cap - 1, from) : 0;
  if (got < 0) got = 0;
  while (got && (out[got - 1] == '\n' || out[got - 1] == ' ')) got--;
  out[got] = 0;
  for (ssize_t i = 0; i < got; i++) if ((unsigned char)out[i] < ' ') out[i] = ' ';
}

// Does it run? version: the text after its last ", V".
static bool is_ptxas(const char *path, str *version) {
  char text[SAID] = "", *name = xstrdup(path), ask[] = "--version", *args[] = {name, ask, NULL};
  int files[N_FILES], status = CANNOT_RUN;
  if (make_files(files)) status = run_program(args, files);
  if (!status) take_words(files[SAYS], text, sizeof text);
  close_files(files);
  free(name);
  const char *v = NULL;
  for (const char *s = text; (s = strstr(s, ", V")); s += 3) v = s + 3;
  if (v) str_addf(version, "%.*s", (int)strcspn(v, " "), v);
  return v;
}

int nv_ptxas_find(str *path, str *version, error *err) {
  static const char *const usual[] = {"ptxas", "/usr/local/cuda/bin/ptxas"};
  const char *own = env_str(ENV_WEFT_PTXAS);
  if (*own) {
    str_add(path, own);
    return is_ptxas(own, version) ? 0 : error_set(err, "NV: WEFT_PTXAS=%s is no ptxas that runs", own);
  }
  for (size_t i = 0; i < COUNT(usual); i++) {
    if (!is_ptxas(usual[i], version)) continue;
    str_add(path, usual[i]);
    return 0;
  }
  return error_set(err, "NV needs ptxas to make code for the GPU, and it is not in the PATH: install it (Debian's "
                        "nvidia-cuda-toolkit, or PyPI's nvidia-cuda-nvcc-cu12) or name it in WEFT_PTXAS; DEV=CUDA "
                        "needs none");
}

static int take_cubin(int file, const char *kernel, bytes *cubin, error *err) {
  off_t n = lseek(file, 0, SEEK_END);
  if (n <= 0 || n > MOST_CUBIN) return error_set(err, "NV: ptxas made nothing of %s", kernel);
  *cubin = (bytes){xmalloc((size_t)n), (size_t)n};
  if (pread(file, cubin->at, (size_t)n, 0) == n) return 0;
  bytes_free(cubin);
  return error_set(err, "NV: what ptxas made of %s cannot be read", kernel);
}

int nv_ptxas_run(const char *path, const char *sm, const char *kernel, const void *ptx, size_t n, bytes *cubin,
                 error *err) {
  char text[SAID] = "", arch[32], *name = xstrdup(path), to[] = "-o", out[] = "/proc/self/fd/4",
       in[] = "/proc/self/fd/3", *args[] = {name, arch, to, out, in, NULL};
  int files[N_FILES], r = -1, status;
  snprintf(arch, sizeof arch, "-arch=%s", sm);
  if (!make_files(files) || write(files[IN], ptx, n) != (ssize_t)n)
    error_set(err, "NV: no file in memory for ptxas: %s", strerror(errno));
  else if (!(status = run_program(args, files))) r = take_cubin(files[OUT], kernel, cubin, err);
  else {
    take_words(files[SAYS], text, sizeof text);
    error_set(err, "NV: ptxas (%s) could not make code of %s (status %d)%s%s", path, kernel, status, *text ? ": " : "",
              text);
  }
  close_files(files);
  free(name);
  return r;
}
