// weft export: writes one file that contains a model and runs it, or C source. The library compiles the kernels and
// writes the file; this file parses the list of CPU levels and finds the static program.
#define _GNU_SOURCE
#include "app/app.h"
#include "base/newfile.h"
#include "base/os.h"
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct exporter { struct settings all; progress bar; str kernels; };

static const struct command command = {
  "export", "Writes one file that holds a model, its kernels and a program that runs it; or C.",
  "MODEL.gguf -o FILE [options]",
  "The file is a program: it talks, or takes commands such as run, serve and embed, with the model that it holds.\n"
  "It needs no library, no compiler and no other file. It has the kernels that default\n"
  "options need; an option that needs another one is an error.\n"
  "With --c it is C instead, for any compiler and any little-endian processor: one token at a time, on one thread.\n",
  COMMAND_BIT(export), 0};

static const char *const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8-a", "armv8.2-a", "armv8.6-a"};

static bool is_of_arm(const char *level) { return !strncmp(level, "arm", 3); }

// Accepts "v3" and "x86-64-v3". NULL: unknown level.
static const char *cpu_level_named(const char *name, size_t n) {
  for (size_t i = 0; i < COUNT(levels); i++) {
    const char *brief = is_of_arm(levels[i]) ? levels[i] : strrchr(levels[i], 'v');
    if ((strlen(levels[i]) == n && !memcmp(levels[i], name, n)) || (strlen(brief) == n && !memcmp(brief, name, n)))
      return levels[i];
  }
  return NULL;
}

// Finds the static program next to this one, or in the packages' folder. False: it does not exist.
static bool find_program(char out[PATH_MAX]) {
  static const char *const places[] = {"weft-static", "../lib/weft/weft-static"};
  char self[PATH_MAX];
  if (!os_program_path(self, sizeof self)) return false;
  *strrchr(self, '/') = 0;
  for (size_t i = 0; i < COUNT(places); i++)
    if (snprintf(out, PATH_MAX, "%s/%s", self, places[i]) < PATH_MAX && !access(out, R_OK)) return true;
  return false;
}

static int compile_level(struct exporter *x, const char *level) {
  void *kernels;
  size_t n;
  weft_error err;
  char what[64];
  snprintf(what, sizeof what, "compiling for %s", level);
  progress_set(&x->bar, what, 0);
  if (weft_export_kernels(x->all.export.in, level, &kernels, &n, &err)) {
    progress_end(&x->bar);
    return failed("%s", err.text);
  }
  str_addn(&x->kernels, kernels, n);
  weft_free(kernels);
  return interrupted() ? EXIT_INTERRUPTED : EXIT_OK;
}

static int compile_levels(struct exporter *x) {
  int status = EXIT_OK;
  for (const char *at = x->all.export.cpu; *at && !status; at += strcspn(at, ","), at += *at == ',')
    status = compile_level(x, cpu_level_named(at, strcspn(at, ",")));
  return status;
}

static int run_exporter(struct exporter *x) {
  const struct export_args *o = &x->all.export;
  weft_error err;
  double began = now_s();
  keep_to_files(&x->all, o->out);
  interrupt_catch();
  if (weft_export_check(o->program, o->in, &err)) return failed("%s", err.text);
  progress_begin(&x->bar);
  int status = compile_levels(x);
  if (status) return status;
  progress_end(&x->bar);
  if (weft_export_write(o->program, o->in, x->kernels.at, x->kernels.n, o->out, &err)) return failed("%s", err.text);
  say("wrote %s: kernels for %s, %.2f MB (%.1f s)", o->out, o->cpu, (double)x->kernels.n / 1e6,
          now_s() - began);
  return EXIT_OK;
}

static int write_c(struct exporter *x) {
  const struct export_args *o = &x->all.export;
  weft_error err;
  double began = now_s();
  keep_to_files(&x->all, o->out);
  if (weft_export_c(o->in, (int)x->all.model.context, o->out, &err)) return failed("%s", err.text);
  say("wrote %s (%.1f s); cc -O2 %s -o model -lm && ./model %s ID...", o->out, now_s() - began,
          o->out, o->in);
  return EXIT_OK;
}

static int check_levels(const char *list) {
  for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
    if (!cpu_level_named(at, strcspn(at, ",")))
      return usage_error("--cpu: '%.*s' is not one of v2, v3, v4, armv8-a, armv8.2-a, armv8.6-a",
                         (int)strcspn(at, ","), at);
  return *list ? EXIT_OK : usage_error("--cpu: give one of v2, v3, v4, or several with commas between");
}

// Returns whether an ELF program is for AArch64 instead of x86-64. weft_export_check reports files that are no program.
static bool program_is_of_arm(const char *path) {
  Elf64_Ehdr head = {.e_machine = 0};
  struct stat st;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);          // does not wait for a pipe
  bool whole = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && read(fd, &head, sizeof head) == sizeof head;
  if (fd >= 0) close(fd);
  return whole && head.e_machine == EM_AARCH64;
}

// Sets and checks the CPU levels, which are those of the program's architecture.
static int choose_levels(struct export_args *o) {
  bool arm = program_is_of_arm(o->program);
  if (!o->cpu) o->cpu = arm ? "armv8-a,armv8.2-a,armv8.6-a" : "v2,v3,v4";
  int status = check_levels(o->cpu);
  for (const char *at = o->cpu; *at && !status; at += strcspn(at, ","), at += *at == ',')
    if (is_of_arm(cpu_level_named(at, strcspn(at, ","))) != arm)
      status = usage_error("--cpu: '%.*s' is no level for %s, a program for %s", (int)strcspn(at, ","), at, o->program,
                           arm ? "AArch64" : "x86-64");
  return status;
}

int export_command(int argc, char **argv) {
  struct exporter x = {.bar = {0}};
  char beside[PATH_MAX];
  int status;
  bool parsed = settings_parse(&x.all, &command, argc, argv, &status);
  struct export_args *o = &x.all.export;
  if (parsed && !o->in) status = usage_error("no model: 'weft export MODEL.gguf -o FILE'");
  else if (parsed && !o->out) status = usage_error("no file to write: 'weft export MODEL.gguf -o FILE'");
  else if (parsed && o->as_c && (o->cpu || o->program))
    status = usage_error("--c: C is for all processors: --cpu and --program do not apply");
  else if (parsed && !*o->out) status = failed("%s", NEWFILE_NO_NAME);
  else if (parsed && o->as_c) status = write_c(&x);
  else if (parsed && x.all.model.context) status = usage_error("-c: only with --c; the program takes it itself");
  else if (parsed) {
    if (!o->program && find_program(beside)) o->program = beside;
    status = o->program ? choose_levels(o) : o->cpu ? check_levels(o->cpu) : EXIT_OK;
    if (!status && !o->program)
      status = usage_error("there is no weft-static beside this program: 'scripts/package.sh static' makes it, and "
                           "--program names it");
    if (!status) status = run_exporter(&x);
  }
  str_free(&x.kernels);
  settings_free(&x.all);
  return status;
}
