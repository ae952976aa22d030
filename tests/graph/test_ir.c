// Runs the texts of tests/graph/ir/*.ir.  A file holds cases, separated by lines of dashes:
//
//   ; pass: simplify             what is done with the last node: a name of the table `passes`
//   %0 = ...                     the IR
//   ; expect: ((n*4)+m)  or  (m+(n*4))     the result as uop_print_expr writes it; for a verifier `ok` or a part of its complaint
//
// Sums stand in the order of hashes, which changes when ops are added: hence the `or`.
//
// With the name of a file as argument, prints what each of its cases gives, as lines to paste.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "graph/prove.h"
#include "graph/symbolic.h"
#include "graph/verify.h"

static void run_simplify(graph *g, uop *u, str *out) { uop_print_expr(out, simplify(g, u)); }
static void run_print(graph *g, uop *u, str *out) { (void)g; uop_print_expr(out, u); }
static void run_bounds(graph *g, uop *u, str *out) { (void)g; str_addf(out, "%lld..%lld", (long long)u->vmin, (long long)u->vmax); }

static void run_prove(graph *g, uop *u, str *out) {
  prover p;
  prover_begin(&p, g);
  bounds b = prove_index(&p, u);
  prover_end(&p);
  str_addf(out, "%lld..%lld", (long long)b.lo, (long long)b.hi);
}

static void run_verify(graph *g, uop *u, enum stage stage, str *out) { if (verify_graph_ok(g, u, stage, out)) str_add(out, "ok"); }
static void run_verify_tensor(graph *g, uop *u, str *out) { run_verify(g, u, STAGE_TENSOR, out); }
static void run_verify_kernel(graph *g, uop *u, str *out) { run_verify(g, u, STAGE_KERNEL, out); }
static void run_verify_optimised(graph *g, uop *u, str *out) { run_verify(g, u, STAGE_OPTIMISED, out); }

static const struct { const char *name; void (*run)(graph *g, uop *u, str *out); bool part; } passes[] = {
  {"simplify", run_simplify, false}, {"print", run_print, false}, {"bounds", run_bounds, false}, {"prove", run_prove, false},
  {"verify tensor", run_verify_tensor, true}, {"verify kernel", run_verify_kernel, true}, {"verify optimised", run_verify_optimised, true},
};

static char *line_after(const char *text, const char *end, const char *head) {        // the rest of the line that starts with head
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

static bool is_expected(const char *got, char *expect, bool part) {
  for (char *p = expect, *next; p; p = next) {
    if ((next = strstr(p, "  or  "))) { *next = 0; next += 6; }
    if (part ? strstr(got, p) != NULL : !strcmp(got, p)) return true;
  }
  return false;
}

static bool run_case(const char *file, int number, const char *text, const char *end, bool show) {
  char *pass = line_after(text, end, "; pass: "), *expect = line_after(text, end, "; expect: ");
  bool ok = false;
  if (!pass || (!expect && !show)) print_error("%s, case %d: needs '; pass: ' and '; expect: '\n", file, number);
  for (size_t i = 0; pass && (expect || show) && i < COUNT(passes); i++) {
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

static char *read_all(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("cannot open %s", path);
  char *text = xmalloc(1 << 20);
  *n = fread(text, 1, 1 << 20, f);
  fclose(f);
  return text;
}

static int run_file(const char *path, int *cases, bool show) {
  size_t n;
  char *text = read_all(path, &n);
  int failed = 0, number = 1;
  for (char *p = text, *end = text + n; p < end; number++) {
    char *stop = p;
    while (stop < end && !(stop[0] == '-' && (stop == p || stop[-1] == '\n'))) stop++;
    failed += !run_case(path, number, p, stop, show);
    ++*cases;
    p = memchr(stop, '\n', (size_t)(end - stop));
    p = p ? p + 1 : end;
  }
  free(text);
  return failed;
}

static void all_files(void **state) {
  (void)state;
  const char *folder = WEFT_SOURCE_DIR "/tests/graph/ir";
  DIR *d = opendir(folder);
  assert_non_null(d);
  int files = 0, cases = 0, failed = 0;
  for (struct dirent *e; (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    if (n < 4 || strcmp(e->d_name + n - 3, ".ir")) continue;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    files++;
    failed += run_file(path, &cases, false);
  }
  closedir(d);
  print_message("%d cases in %d files\n", cases, files);
  assert_true(files >= 6 && cases >= 40);
  assert_int_equal(failed, 0);
}

// A driver that accepts anything would pass, too.
static void the_driver_can_fail(void **state) {
  (void)state;
  const char *wrong[] = {"; pass: simplify\n%0 = CONST.idx 1\n; expect: 2\n", "; pass: nothing\n%0 = CONST.idx 1\n; expect: 1\n", "; pass: simplify\n%0 = CONST.idx 1\n",
                         "; pass: verify kernel\n%0 = CONST.f32 1\n%1 = SINK %0\n; expect: ok\n"};
  const char *right = "; pass: simplify\n%0 = CONST.idx 1\n; expect: 1\n";
  assert_true(run_case("right", 1, right, right + strlen(right), false));
  print_message("(four complaints follow)\n");
  for (size_t i = 0; i < COUNT(wrong); i++) assert_false(run_case("wrong", (int)i + 1, wrong[i], wrong[i] + strlen(wrong[i]), false));
}

int main(int argc, char **argv) {
  int cases = 0;
  if (argc > 1) return run_file(argv[1], &cases, true);
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_driver_can_fail), cmocka_unit_test(all_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
