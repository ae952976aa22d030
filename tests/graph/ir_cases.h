// Runs IR as text with expectations inside: the cases of tests/*/ir/*.ir. A file holds cases, separated by lines of
// dashes:
//
//   ; pass: simplify             what is done with the last node: a name of the caller's table `passes`
//   %0 = ...                     the IR
//   ; expect: ((n*4)+m)  or  (m+(n*4))     the result as text; of a pass marked `part` any part of it
//
// Sums stand in the order of hashes, which changes when ops are added: hence the `or`.
#ifndef WEFT_TEST_IR_CASES_H
#define WEFT_TEST_IR_CASES_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "graph/uop.h"

typedef struct ir_pass { const char *name; void (*run)(graph *g, uop *u, str *out); bool part; } ir_pass;

// the rest of the line that starts with head
static inline char *line_after(const char *text, const char *end, const char *head) {
  size_t n = strlen(head);
  for (const char *p = text; p < end;) {
    const char *eol = memchr(p, '\n', (size_t)(end - p));
    if (!eol) eol = end;
    if ((size_t)(eol - p) >= n && !memcmp(p, head, n)) {
      char *s = xcalloc(1, (size_t)(eol - p) - n + 1);
      memcpy(s, p + n, (size_t)(eol - p) - n);
      return s;
    }
    p = eol + 1;
  }
  return NULL;
}

static inline bool is_expected(const char *got, char *expect, bool part) {
  for (char *p = expect, *next; p; p = next) {
    if ((next = strstr(p, "  or  "))) { *next = 0; next += 6; }
    if (part ? strstr(got, p) != NULL : !strcmp(got, p)) return true;
  }
  return false;
}

static inline bool run_case(const ir_pass *passes, const char *file, int number, const char *text, const char *end,
                            bool show) {
  char *pass = line_after(text, end, "; pass: "), *expect = line_after(text, end, "; expect: ");
  bool ok = false;
  if (!pass || (!expect && !show)) print_error("%s, case %d: needs '; pass: ' and '; expect: '\n", file, number);
  for (size_t i = 0; pass && (expect || show) && passes[i].name; i++) {
    if (strcmp(pass, passes[i].name)) continue;
    graph *g = graph_new(NULL);
    error err = {0};
    str out = {0};
    uop *u = uop_parse(g, text, (size_t)(end - text), &err);
    if (u) passes[i].run(g, u, &out);
    else str_add(&out, err.text);
    if (show) print_message("%d ; expect: %s\n", number, str_c(&out));
    char *all = xstrdup(expect ? expect : "");
    ok = show || is_expected(str_c(&out), expect, passes[i].part);
    if (!ok) print_error("%s, case %d (%s)\n  expected: %s\n  got:      %s\n", file, number, pass, all, str_c(&out));
    free(all);
    str_free(&out);
    graph_free(g);
    free(pass); free(expect);
    return ok;
  }
  if (pass) print_error("%s, case %d: unknown pass '%s', or nothing expected\n", file, number, pass);
  free(pass); free(expect);
  return ok;
}

static inline char *read_all(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  char *text = xmalloc(1 << 20);
  *n = fread(text, 1, 1 << 20, f);
  fclose(f);
  return text;
}

static inline int run_file(const ir_pass *passes, const char *path, int *cases, bool show) {
  size_t n;
  char *text = read_all(path, &n);
  int failed = 0, number = 1;
  for (char *p = text, *end = text + n; p < end; number++) {
    char *stop = p;
    while (stop < end && !(stop[0] == '-' && (stop == p || stop[-1] == '\n'))) stop++;
    failed += !run_case(passes, path, number, p, stop, show);
    ++*cases;
    p = memchr(stop, '\n', (size_t)(end - stop));
    p = p ? p + 1 : end;
  }
  free(text);
  return failed;
}

// All files of a folder of the source tree: the number of failed cases.
static inline int run_folder(const ir_pass *passes, const char *folder, int least_files, int least_cases) {
  DIR *d = opendir(folder);
  assert_non_null(d);
  int files = 0, cases = 0, failed = 0;
  for (struct dirent *e; (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    if (n < 4 || strcmp(e->d_name + n - 3, ".ir")) continue;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    files++;
    failed += run_file(passes, path, &cases, false);
  }
  closedir(d);
  print_message("%d cases in %d files\n", cases, files);
  assert_true(files >= least_files && cases >= least_cases);
  return failed;
}
#endif
