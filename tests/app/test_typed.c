// What the process with the model gets of files: those that lines name, as these say, and once. It asks here for more.
#include "app/dropped.c"
#include "app/typed_reader.c"
#include "app/typed.c"
#include <setjmp.h>
#include <stddef.h>
#include <stdarg.h>
#include <cmocka.h>

// Lines come from a pipe: none are edited.
edit *edit_new(int in, int out, const char *history, pid_t owner, edit_words words) {
  (void)in; (void)out; (void)history; (void)owner; (void)words;
  abort();
}
enum edit_result edit_line(edit *e, const char *prompt, const char *color, const char *text, str *out) {
  (void)e; (void)prompt; (void)color; (void)text; (void)out;
  abort();
}
void edit_remember(edit *e, const char *text) { (void)e; (void)text; abort(); }
bool interrupted(void) { return false; }
unsigned weft_medium_kind_of(const void *data, size_t n) { (void)data; (void)n; abort(); }   // nothing is dropped here
void interrupt_note(void) { }
void sandbox_signals(long other, bool now) { (void)other; (void)now; }
void interrupt_leave_by(void (*fn)(void)) { (void)fn; }
int failed(const char *fmt, ...) { (void)fmt; return EXIT_FAILED; }

int read_file(const char *path, size_t most, char **text, size_t *n, error *err) {
  (void)most;
  FILE *f = fopen(path, "r");
  if (!f) return error_set(err, "%s: %s", path, strerror(errno));
  *text = xcalloc(1, 100);
  *n = fread(*text, 1, 99, f);
  fclose(f);
  return 0;
}

static char folder[] = "/tmp/weft-typed-XXXXXX", first[64], second[64];
static int keys;             // what is typed is written there

// A pipe with a name, so that the child does not have the end that keys come from.
static typed *begin(void) {
  char path[64];
  snprintf(path, sizeof path, "%s/keys", folder);
  int old = dup(STDIN_FILENO);
  error err = {0};
  assert_int_equal(mkfifo(path, 0600), 0);
  int in = open(path, O_RDONLY | O_NONBLOCK);
  assert_int_equal(dup2(in, STDIN_FILENO), STDIN_FILENO);
  close(in);
  typed *t = typed_new(&(struct typed_how){.color = ""}, &err);
  assert_non_null(t);
  keys = open(path, O_WRONLY);
  assert_true(keys >= 0 && !fcntl(STDIN_FILENO, F_SETFL, 0));      // that it waits is shared with the child
  dup2(old, STDIN_FILENO);
  close(old);
  unlink(path);
  return t;
}

static void end(typed *t) {
  typed_free(t);
  close(keys);
}

static void line(typed *t, const char *text, const char *start) {
  str out = {0};
  assert_int_equal(write(keys, text, strlen(text)), strlen(text));
  assert_int_equal(write(keys, "\n", 1), 1);
  assert_int_equal(typed_line(t, "> ", start, &out), INPUT_TEXT);
  assert_string_equal(str_c(&out), text);
  str_free(&out);
}

static void command(typed *t, const char *word, const char *path) {
  char text[256];
  snprintf(text, sizeof text, "%s %s", word, path);
  line(t, text, "");
}

static void refuses(typed *t, bool reading) {
  char *text = NULL;
  size_t n;
  error err = {0};
  assert_int_equal(reading ? typed_read(t, 0, &text, &n, &err) : typed_write(t, "x", 1, &err), -1);
  assert_non_null(strstr(err.text, reading ? "no file was named to be read" : "no file was named to be written"));
}

static void reads(typed *t, const char *wanted) {
  char *text = NULL;
  size_t n;
  error err = {0};
  assert_int_equal(typed_read(t, 0, &text, &n, &err), 0);
  assert_int_equal(n, strlen(wanted));
  assert_string_equal(text, wanted);
  free(text);
}

static void writes(typed *t, const char *text) {
  error err = {0};
  assert_int_equal(typed_write(t, text, strlen(text), &err), 0);
}

static void test_a_line_names_one_file(void **state) {
  (void)state;
  typed *t = begin();
  refuses(t, true);
  refuses(t, false);
  command(t, "/save", first);
  refuses(t, true);
  writes(t, "one");
  refuses(t, false);                               // a line counts once
  command(t, "/read", first);
  refuses(t, false);
  reads(t, "one");
  refuses(t, true);
  command(t, "/load", first);
  line(t, "what else is in that file?", "");       // what was not asked for before the next line is gone
  refuses(t, true);
  command(t, "/save", second);
  writes(t, "two");
  command(t, "/load", second);
  reads(t, "two");
  end(t);
}

static void test_other_lines_name_none(void **state) {
  (void)state;
  static const char *const words[] = {"/edit", "/system", "/readme", "read", "/rea", "//read"};
  typed *t = begin();
  for (size_t i = 0; i < COUNT(words); i++) {
    command(t, words[i], first);
    refuses(t, true);
    refuses(t, false);
  }
  char text[128];
  snprintf(text, sizeof text, "/read %s", first);
  line(t, text, "/read ");                         // the other process began this line
  refuses(t, true);
  line(t, "/read ", "");
  refuses(t, true);
  end(t);
}

static void test_errors_name_the_file(void **state) {
  (void)state;
  typed *t = begin();
  char *text = NULL, missing[128];
  size_t n;
  error err = {0};
  snprintf(missing, sizeof missing, "%s/none/file", folder);
  command(t, "/read", missing);
  assert_int_equal(typed_read(t, 0, &text, &n, &err), -1);
  assert_non_null(strstr(err.text, missing));
  err = (error){0};
  command(t, "/save", missing);
  assert_int_equal(typed_write(t, "x", 1, &err), -1);
  assert_non_null(strstr(err.text, missing));
  err = (error){0};
  command(t, "/read", "-");
  assert_int_equal(typed_read(t, 0, &text, &n, &err), -1);
  assert_string_equal(err.text, "- is no file");
  err = (error){0};
  command(t, "/save", "-");
  assert_int_equal(typed_write(t, "x", 1, &err), -1);
  assert_string_equal(err.text, "- is no file");
  end(t);
}

static void test_the_end(void **state) {
  (void)state;
  str out = {0};
  typed *t = begin();
  line(t, "hello", "");
  close(keys);
  assert_int_equal(typed_line(t, "> ", "", &out), INPUT_END);
  typed_free(t);
  t = begin();
  kill(t->child, SIGKILL);
  assert_int_equal(typed_line(t, "> ", "", &out), INPUT_BROKEN);      // and it ends nobody else
  assert_int_equal(typed_line(t, "> ", "", &out), INPUT_BROKEN);
  end(t);
  str_free(&out);
}

// One that is stopped is not waited for.
static void test_a_child_that_is_stopped(void **state) {
  (void)state;
  typed *t = begin();
  line(t, "hello", "");
  kill(t->child, SIGSTOP);
  end(t);
}

static void test_a_megabyte(void **state) {
  (void)state;
  enum { N = 1 << 20 };
  char *text = xcalloc(1, N + 1);
  memset(text, 'x', N);
  typed *t = begin();
  unlink(second);                                  // what is no conversation is not written over
  command(t, "/save", second);
  writes(t, text);
  struct stat s;
  assert_int_equal(stat(second, &s), 0);
  assert_int_equal(s.st_size, N);
  end(t);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_line_names_one_file), cmocka_unit_test(test_other_lines_name_none),
    cmocka_unit_test(test_errors_name_the_file), cmocka_unit_test(test_the_end), cmocka_unit_test(test_a_megabyte),
    cmocka_unit_test(test_a_child_that_is_stopped),
  };
  if (!mkdtemp(folder)) return 1;
  snprintf(first, sizeof first, "%s/first", folder);
  snprintf(second, sizeof second, "%s/second", folder);
  int status = cmocka_run_group_tests(tests, NULL, NULL);
  unlink(first);
  unlink(second);
  rmdir(folder);
  return status;
}
