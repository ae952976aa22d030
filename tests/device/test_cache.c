// The disk cache: what it keeps, and that nothing done to its folder ever fails a run (at most one warning).
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/env.h"
#include "base/str.h"
#include "device/cache.h"

// ------------------------------------------------------------------------------------------------------------- helpers

static char base[64];                   // a folder for this run of the test; every test makes its own below

static int setup(void **state) {
  (void)state;
  snprintf(base, sizeof base, "/tmp/weft-cache-test-XXXXXX");
  return mkdtemp(base) ? chmod(base, 0755) : -1;
}

static int teardown(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", base);
  return system(command);
}

static char *folder(const char *name) {
  str s = {0};
  str_addf(&s, "%s/%s", base, name);
  return s.at;
}

static char *in(const char *dir, const char *name) {
  str s = {0};
  str_addf(&s, "%s/%s", dir, name);
  return s.at;
}

// What stderr receives between these two calls.
static int saved_stderr, captured;
static void capture(void) {
  char name[] = "/tmp/weft-test-XXXXXX";
  captured = mkstemp(name);
  unlink(name);
  fflush(stderr);
  saved_stderr = dup(2);
  dup2(captured, 2);
}

static char warning_text[4096];
static int warnings(void) {             // how many lines; the text is in warning_text
  fflush(stderr);
  dup2(saved_stderr, 2);
  close(saved_stderr);
  ssize_t n = pread(captured, warning_text, sizeof warning_text - 1, 0);
  close(captured);
  warning_text[n > 0 ? n : 0] = 0;
  int lines = 0;
  for (char *p = warning_text; (p = strchr(p, '\n')); p++) lines++;
  if (lines) assert_memory_equal(warning_text, "weft: warning: ", 15);
  return lines;
}

static void put(cache *c, int key, int value, size_t n) {
  uint8_t *v = xmalloc(n);
  char k[64];
  int len = snprintf(k, sizeof k, "key number %d", key);
  for (size_t i = 0; i < n; i++) v[i] = (uint8_t)(value * 131 + (int)i * 7);
  cache_put(c, k, (size_t)len, v, n);
  free(v);
}

// -1: a miss.  Otherwise the value that put was given; a wrong byte fails the test.
static int get(cache *c, int key, size_t n) {
  bytes v;
  char k[64];
  int len = snprintf(k, sizeof k, "key number %d", key);
  if (!cache_get(c, k, (size_t)len, &v)) return -1;
  assert_int_equal(v.n, n);
  int value = 0;
  while (value < 256 && (uint8_t)(value * 131) != v.at[0]) value++;
  for (size_t i = 0; i < n; i++) assert_int_equal(v.at[i], (uint8_t)(value * 131 + (int)i * 7));
  bytes_free(&v);
  return value;
}

// Fills a new folder with 20 entries.
static char *filled(const char *name) {
  char *dir = folder(name);
  cache *c = cache_open(dir, "v1");
  assert_true(cache_is_on(c));
  for (int i = 0; i < 20; i++) put(c, i, i + 1, 3000);
  cache_close(c);
  return dir;
}

// Runs fn in a process of its own, as a user without privileges if asked; its exit status, or -signal.
static int in_child(int (*fn)(const char *dir), const char *dir, bool unprivileged) {
  fflush(NULL);
  pid_t child = fork();
  if (!child) {
    if (unprivileged && !geteuid() &&
        (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
      _exit(99);
    _exit(fn(dir));
  }
  int status;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// --------------------------------------------------------------------------------------------------------------- tests

static void keeps_entries(void **state) {
  (void)state;
  capture();
  char *dir = folder("a/b/c");          // made, with its parents
  cache *c = cache_open(dir, "v1");
  assert_true(cache_is_on(c));
  assert_int_equal(get(c, 1, 100), -1);
  put(c, 1, 10, 100);
  assert_int_equal(get(c, 1, 100), 10);         // before the flush
  put(c, 1, 11, 200);                           // the later one wins
  assert_int_equal(get(c, 1, 200), 11);
  cache_flush(c);
  assert_int_equal(get(c, 1, 200), 11);
  cache_put(c, "", 0, "", 0);
  cache_close(c);
  c = cache_open(dir, "v1");
  assert_int_equal(get(c, 1, 200), 11);
  bytes v;
  assert_true(cache_get(c, "", 0, &v));
  assert_int_equal(v.n, 0);
  bytes_free(&v);
  cache_close(c);
  c = cache_open(dir, "v2");                    // other code: nothing of it is used
  assert_int_equal(get(c, 1, 200), -1);
  put(c, 1, 12, 50);
  cache_close(c);
  c = cache_open(dir, "v1");
  assert_int_equal(get(c, 1, 200), 11);
  cache_close(c);
  struct stat st;
  assert_int_equal(stat(dir, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  char *db = in(dir, "kernels-2.db");
  assert_int_equal(stat(db, &st), 0);
  assert_int_equal(st.st_mode & 077, 0);
  assert_int_equal(warnings(), 0);
  free(db);
  free(dir);
}

static bool count_entry(const cache_entry *e, void *ctx) {
  int *n = ctx;
  n[0]++;
  n[1] += e->sound;
  return true;
}

static void lists_and_clears(void **state) {
  (void)state;
  char *dir = filled("list");
  cache *c = cache_open(dir, "v1");
  error err = {0};
  int n[2] = {0};
  assert_int_equal(cache_each(c, count_entry, n, &err), 0);
  assert_int_equal(n[0], 20);
  assert_int_equal(n[1], 20);
  int64_t removed;
  assert_int_equal(cache_clear(c, &removed, &err), 0);
  assert_int_equal(removed, 20);
  assert_int_equal(get(c, 3, 3000), -1);
  put(c, 3, 4, 10);
  cache_close(c);
  c = cache_open(dir, "v1");
  assert_int_equal(get(c, 3, 10), 4);
  cache_close(c);
  free(dir);
}

static void off_is_off(void **state) {
  (void)state;
  capture();
  env_set(ENV_WEFT_CACHE, "off");
  cache *c = cache_open(NULL, "v1");
  env_set(ENV_WEFT_CACHE, NULL);
  assert_false(cache_is_on(c));
  put(c, 1, 1, 10);
  assert_int_equal(get(c, 1, 10), -1);
  cache_flush(c);
  error err = {0};
  assert_int_equal(cache_each(c, count_entry, NULL, &err), -1);
  cache_close(c);
  assert_int_equal(warnings(), 0);
}

static void finds_its_folder(void **state) {
  (void)state;
  capture();
  char *home = folder("home"), *xdg = folder("xdg"), *given = folder("given");
  env_set(ENV_HOME, home);
  env_set(ENV_XDG_CACHE_HOME, "");
  env_set(ENV_WEFT_CACHE, "");
  char want[256];
  cache *c = cache_open(NULL, "v1");
  snprintf(want, sizeof want, "%s/.cache/weft/kernels-open/kernels-2.db", home);
  assert_string_equal(cache_file(c), want);
  cache_close(c);
  env_set(ENV_XDG_CACHE_HOME, xdg);
  c = cache_open(NULL, "v1");
  snprintf(want, sizeof want, "%s/weft/kernels-open/kernels-2.db", xdg);
  assert_string_equal(cache_file(c), want);
  cache_close(c);
  env_set(ENV_WEFT_CACHE, given);
  c = cache_open(NULL, "v1");
  snprintf(want, sizeof want, "%s/kernels-open/kernels-2.db", given);
  assert_string_equal(cache_file(c), want);
  cache_close(c);
  assert_int_equal(warnings(), 0);
  env_set(ENV_WEFT_CACHE, "");
  env_set(ENV_XDG_CACHE_HOME, "");
  env_set(ENV_HOME, "");
  capture();
  c = cache_open(NULL, "v1");
  assert_false(cache_is_on(c));
  put(c, 1, 1, 1);
  cache_close(c);
  assert_int_equal(warnings(), 1);
  assert_non_null(strstr(warning_text, "HOME"));
  env_set(ENV_WEFT_CACHE, NULL);
  env_set(ENV_XDG_CACHE_HOME, NULL);
  env_set(ENV_HOME, NULL);
  free(home);
  free(xdg);
  free(given);
}

// Every byte of one stored value and its tag changed in turn: a miss, then replaced.
static void a_damaged_entry_is_a_miss(void **state) {
  (void)state;
  char *dir = filled("entry"), *file = in(dir, "kernels-2.db");
  static const char *const damage[] = {
    "UPDATE kernel SET value = zeroblob(3000) WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET value = substr(value, 1, 2999) WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET value = x'' WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET value = 'text' WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET value = 17 WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET tag = tag + 1 WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET tag = 'x' WHERE key = CAST('key number 7' AS BLOB)",
    // a hash collision
    "UPDATE kernel SET key = CAST('key number 8' AS BLOB) WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET key = CAST('key number 77' AS BLOB) WHERE key = CAST('key number 7' AS BLOB)",
    "UPDATE kernel SET version = 'v0' WHERE key = CAST('key number 7' AS BLOB)",
    ("UPDATE kernel SET value = (SELECT value FROM kernel WHERE key = CAST('key number 9' AS BLOB)) WHERE key = "
     "CAST('key number 7' AS BLOB)"),
    "DELETE FROM kernel WHERE key = CAST('key number 7' AS BLOB)",
  };
  for (size_t i = 0; i < COUNT(damage); i++) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, damage[i], NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    sqlite3_close(db);
    capture();
    cache *c = cache_open(dir, "v1");
    int seen = get(c, 7, 3000), other = get(c, 9, 3000);
    put(c, 7, 8, 3000);
    cache_close(c);
    c = cache_open(dir, "v1");
    int after = get(c, 7, 3000);
    cache_close(c);
    assert_int_equal(warnings(), 0);
    assert_int_equal(seen, -1);
    assert_int_equal(other, 10);
    assert_int_equal(after, 8);
  }
  free(file);
  free(dir);
}

static bytes read_all(const char *path) {
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  bytes b = {xmalloc(1 << 20), 0};
  b.n = fread(b.at, 1, 1 << 20, f);
  fclose(f);
  return b;
}

static void write_all(const char *path, const uint8_t *p, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(p, 1, n, f), n);
  fclose(f);
}

// The file damaged at random places, cut anywhere, or something else altogether: never a wrong value, never more than
// one warning, and after one run the cache works again.
static void a_damaged_database_is_replaced(void **state) {
  (void)state;
  char *dir = filled("database"), *file = in(dir, "kernels-2.db"), *journal = in(dir, "kernels-2.db-journal");
  bytes good = read_all(file);
  unsigned seed = 1;
  int fresh = 0;
  for (int round = 0; round < 150; round++) {
    bytes bad = {xmalloc(good.n), good.n};
    memcpy(bad.at, good.at, good.n);
    if (round < 30) bad.n = (size_t)round * good.n / 30;
    else if (round < 40) for (size_t i = 0; i < bad.n; i++) bad.at[i] = (uint8_t)rand_r(&seed);
    else
      for (int k = 0; k < (round < 90 ? 1 : 200); k++)
        bad.at[rand_r(&seed) % (k % 2 ? bad.n : 8192)] ^= (uint8_t)(1 << rand_r(&seed) % 8);
    write_all(file, bad.at, bad.n);
    if (round % 10 == 9) write_all(journal, bad.at, bad.n / 2);
    capture();
    cache *c = cache_open(dir, "v1");
    int seen[20];
    for (int i = 0; i < 20; i++) seen[i] = get(c, i, 3000);
    for (int i = 0; i < 20; i++) put(c, i, i + 1, 3000);
    cache_close(c);
    int lines = warnings();
    assert_in_range(lines, 0, 1);
    fresh += lines && strstr(warning_text, "afresh");
    for (int i = 0; i < 20; i++) assert_true(seen[i] == -1 || seen[i] == i + 1);
    capture();
    c = cache_open(dir, "v1");
    assert_true(cache_is_on(c));
    for (int i = 0; i < 20; i++) put(c, i, i + 1, 3000);
    cache_flush(c);
    for (int i = 0; i < 20; i++) seen[i] = get(c, i, 3000);
    cache_close(c);
    assert_in_range(warnings(), 0, 1);
    for (int i = 0; i < 20; i++) assert_int_equal(seen[i], i + 1);
    bytes_free(&bad);
    unlink(journal);
  }
  assert_true(fresh > 20);
  bytes_free(&good);
  free(journal);
  free(file);
  free(dir);
}

static void add_u32(bytes *b, uint32_t v) {
  for (int i = 0; i < 4; i++) b->at[b->n++] = (uint8_t)(v >> (24 - 8 * i));
}

// Writes a journal of a killed writer of several databases: it changes no page, and names a "super-journal".
static void write_super_journal(const char *file, const char *journal, const char *name) {
  static const uint8_t magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  bytes db = read_all(file), b = {xcalloc(1, 4096), 0};
  uint32_t page = (uint32_t)(db.at[16] << 8 | db.at[17]), n = (uint32_t)strlen(name), sum = 0;
  memcpy(b.at, magic, 8);
  b.n = 8;
  add_u32(&b, 0);
  add_u32(&b, 0);
  add_u32(&b, (uint32_t)db.n / page);
  add_u32(&b, 512);
  add_u32(&b, page);
  b.n = 512;
  add_u32(&b, 0x40000000 / page + 1);
  memcpy(b.at + b.n, name, n);
  b.n += n;
  for (uint32_t i = 0; i < n; i++) sum += (uint32_t)(int8_t)name[i];
  add_u32(&b, n);
  add_u32(&b, sum);
  memcpy(b.at + b.n, magic, 8);
  write_all(journal, b.at, b.n + 8);
  bytes_free(&b);
  bytes_free(&db);
}

// SQLite would read the named file whole, wait for a FIFO, and remove it. At most the cache is lost.
static void a_journal_that_names_another_file(void **state) {
  (void)state;
  char *dir = filled("super"), *file = in(dir, "kernels-2.db"), *journal = in(dir, "kernels-2.db-journal");
  char *apart = in(dir, "apart");
  assert_int_equal(mkdir(apart, 0700), 0);
  char *names[] = {in(base, "victim"), in(dir, "victim"), in(apart, "kernels-2.db-journal"), in(apart, "kernels-2.db")};
  for (size_t i = 0; i < 2 * COUNT(names); i++) {
    char *name = names[i / 2];
    struct stat st;
    if (i % 2) assert_int_equal(mkfifo(name, 0600), 0);
    else write_all(name, (const uint8_t *)"keep", 4);
    write_super_journal(file, journal, name);
    alarm(60);
    capture();
    cache *c = cache_open(dir, "v1");
    assert_true(cache_is_on(c));
    for (int k = 0; k < 20; k++) {
      int seen = get(c, k, 3000);
      assert_true(seen == k + 1 || (i >= 4 && seen == -1));
      put(c, k, k + 1, 3000);
    }
    cache_close(c);
    assert_int_equal(warnings(), i < 4 ? 0 : 1);
    alarm(0);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(stat(journal, &st), -1);
    unlink(name);
  }
  for (size_t i = 0; i < COUNT(names); i++) free(names[i]);
  free(apart);
  free(journal);
  free(file);
  free(dir);
}

static void one_warning_is_enough(void **state) {
  (void)state;
  char *dir = filled("twice"), *file = in(dir, "kernels-2.db");
  write_all(file, (const uint8_t *)"nonsense", 8);
  capture();
  cache *c = cache_open(dir, "v1");             // started afresh
  put(c, 1, 2, 3000);
  cache_flush(c);
  assert_int_equal(get(c, 1, 3000), 2);
  write_all(file, (const uint8_t *)"nonsense", 8);
  assert_int_equal(get(c, 1, 3000), -1);        // given up
  put(c, 1, 2, 3000);
  cache_close(c);
  assert_int_equal(warnings(), 1);
  free(file);
  free(dir);
}

static void damage_while_another_process_reads_removes_nothing(void **state) {
  (void)state;
  char *dir = filled("shared"), *file = in(dir, "kernels-2.db");
  cache *other = cache_open(dir, "v1");
  struct stat before, after;
  assert_int_equal(stat(file, &before), 0);
  int fd = open(file, O_WRONLY);
  assert_int_equal(pwrite(fd, "not a database at all", 21, 0), 21);
  close(fd);
  capture();
  cache *c = cache_open(dir, "v1");
  assert_false(cache_is_on(c));
  put(c, 1, 1, 1);
  cache_close(c);
  assert_int_equal(warnings(), 1);
  assert_int_equal(stat(file, &after), 0);
  assert_true(before.st_ino == after.st_ino);
  cache_close(other);
  capture();
  c = cache_open(dir, "v1");
  assert_true(cache_is_on(c));
  cache_close(c);
  assert_int_equal(warnings(), 1);
  free(file);
  free(dir);
}

static void folders_that_others_may_write_are_refused(void **state) {
  (void)state;
  struct {
    const char *name;
    const char *part;
  } cases[] = {{"world", "written by other users"},
               {"file", "not a folder"},
               {"dbdir", "not a file"},
               {"dbworld", "written by other users"},
               {"below", "cannot be made"},
               {"loop", "cannot be made"},
               {"group", "written by other users"},
               {"dbgroup", "written by other users"},
               {"journal", "written by other users"},
               {"lockgroup", "written by other users"},
               {"dblink", "is a link"},
               {"journallink", "is a link"}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    char *dir = folder(cases[i].name), *db = in(dir, "kernels-2.db"), *open_dir = dir;
    if (!strcmp(cases[i].name, "world")) { mkdir(dir, 0700); chmod(dir, 0777); }
    else if (!strcmp(cases[i].name, "file")) write_all(dir, (const uint8_t *)"x", 1);
    else if (!strcmp(cases[i].name, "dbdir")) { mkdir(dir, 0700); mkdir(db, 0700);
    } else if (!strcmp(cases[i].name, "dbworld")) {
      mkdir(dir, 0700);
      write_all(db, (const uint8_t *)"", 0);
      chmod(db, 0666);
    } else if (!strcmp(cases[i].name, "below")) {
      write_all(dir, (const uint8_t *)"x", 1);
      open_dir = in(dir, "further");
    } else if (!strcmp(cases[i].name, "loop")) assert_int_equal(symlink(dir, dir), 0);
    else if (!strcmp(cases[i].name, "group")) {
      mkdir(dir, 0700);
      chmod(dir, 0770);
    }  // which belongs to this user's own group
    else {
      free(filled(cases[i].name));
      char *other = in(dir, "elsewhere"), *journal = in(dir, "kernels-2.db-journal"), *lock = in(dir, "lock");
      if (!strcmp(cases[i].name, "dbgroup")) chmod(db, 0660);
      else if (!strcmp(cases[i].name, "lockgroup")) chmod(lock, 0660);
      else if (!strcmp(cases[i].name, "journal")) { write_all(journal, (const uint8_t *)"x", 1); chmod(journal, 0660); }
      else if (!strcmp(cases[i].name, "journallink")) assert_int_equal(symlink(other, journal), 0);
      else assert_int_equal(rename(db, other) | symlink(other, db), 0);
      free(other); free(journal); free(lock);
    }
    capture();
    cache *c = cache_open(open_dir, "v1");
    bool on = cache_is_on(c);
    put(c, 1, 1, 1);
    int found = get(c, 1, 1);
    cache_close(c);
    assert_int_equal(warnings(), 1);
    if (!strstr(warning_text, cases[i].part)) fail_msg("'%s' does not mention '%s'", warning_text, cases[i].part);
    assert_false(on);
    assert_int_equal(found, -1);
    if (open_dir != dir) free(open_dir);
    free(db);
    free(dir);
  }
}

static void what_belongs_to_other_users_is_refused(void **state) {
  (void)state;
  if (geteuid()) skip();                // only root can make such things
  char *real = filled("real"), *link = folder("link");
  assert_int_equal(symlink(real, link), 0);
  for (int other = 0; other < 2; other++) {
    if (other) assert_int_equal(lchown(link, 65534, 65534), 0);
    capture();
    cache *c = cache_open(link, "v1");
    int found = get(c, 3, 3000);
    cache_close(c);
    assert_int_equal(warnings(), other);
    assert_int_equal(found, other ? -1 : 4);
    if (other) assert_non_null(strstr(warning_text, "another user"));
  }
  // Files in a folder that nobody else may write to (now): left there before, like a journal, which SQLite would
  // replay.
  static const char *const names[] = {
    "kernels-2.db", "kernels-2.db-journal", "kernels-2.db-wal", "kernels-2.db-shm", "lock", "key", ""};
  for (size_t i = 0; i < COUNT(names); i++) {
    char *file = in(real, names[i]);
    int fd = *names[i] ? open(file, O_CREAT | O_RDWR, 0600) : -1;
    if (fd >= 0) close(fd);
    assert_int_equal(chown(file, 65534, 65534), 0);
    capture();
    cache *c = cache_open(real, "v1");
    bool on = cache_is_on(c);
    cache_close(c);
    assert_int_equal(warnings(), 1);
    if (on || !strstr(warning_text, "another user")) fail_msg("%s: %s", file, warning_text);
    assert_int_equal(chown(file, 0, 0), 0);
    if (strstr(names[i], "-")) unlink(file);
    free(file);
  }
  free(link);
  free(real);
}

// A database with sound entries of the same keys and version, as another user makes it (who can also read this
// program): put into this folder by whatever way, none of it is used.
static void entries_of_another_secret_are_misses(void **state) {
  (void)state;
  capture();
  char *dir = filled("mine"), *planted = filled("planted"), *to = in(dir, "kernels-2.db"),
       *from = in(planted, "kernels-2.db");
  assert_int_equal(rename(from, to), 0);
  cache *c = cache_open(dir, "v1");
  for (int i = 0; i < 20; i++) assert_int_equal(get(c, i, 3000), -1);
  error err = {0};
  int n[2] = {0};
  assert_int_equal(cache_each(c, count_entry, n, &err), 0);
  assert_int_equal(n[0], 20);
  assert_int_equal(n[1], 0);                    // none is sound
  put(c, 7, 8, 3000);
  cache_close(c);
  c = cache_open(dir, "v1");
  assert_int_equal(get(c, 7, 3000), 8);
  cache_close(c);
  assert_int_equal(warnings(), 0);
  free(from); free(to); free(planted); free(dir);
}

static void the_secret_is_private_and_whole(void **state) {
  (void)state;
  char *dir = filled("secret"), *other = filled("secret2"), *key = in(dir, "key"), *key2 = in(other, "key");
  struct stat st;
  assert_int_equal(stat(key, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0600);
  bytes a = read_all(key), b = read_all(key2);
  assert_int_equal(a.n, 16);
  assert_memory_not_equal(a.at, b.at, 16);
  for (size_t n = 0; n < 40; n += 13) {         // cut, or too long: a new one, and nothing is found under it
    uint8_t bad[40] = {0};
    write_all(key, bad, n);
    capture();
    cache *c = cache_open(dir, "v1");
    int seen = get(c, 5, 3000);
    put(c, 5, 6, 3000);
    cache_close(c);
    c = cache_open(dir, "v1");
    int after = get(c, 5, 3000);
    cache_close(c);
    assert_int_equal(warnings(), 0);
    assert_int_equal(seen, -1);
    assert_int_equal(after, 6);
    assert_int_equal(stat(key, &st), 0);
    assert_int_equal(st.st_size, 16);
  }
  bytes_free(&a); bytes_free(&b);
  free(dir); free(other); free(key); free(key2);
}

static int with_a_known_secret(const char *dir) {
  cache_close(cache_open(dir, "v1"));
  char *key = in(dir, "key");
  if (chmod(key, 0644)) return 2;
  capture();
  cache *c = cache_open(dir, "v1");
  bool on = cache_is_on(c);
  cache_close(c);
  return warnings() == 1 && !on && strstr(warning_text, "read by other users") ? 0 : 3;
}

static void a_secret_that_others_know_is_refused(void **state) {
  (void)state;
  char *dir = folder("known");
  assert_int_equal(mkdir(dir, 0700), 0);
  if (!geteuid()) assert_int_equal(chown(dir, 65534, 65534), 0);
  assert_int_equal(in_child(with_a_known_secret, dir, true), 0);
  free(dir);
}

// A program whose standard descriptors are closed, and which prints all the same.
static int without_standard_descriptors(const char *dir) {
  for (int fd = 0; fd < 3; fd++) close(fd);
  cache *c = cache_open(dir, "v1");
  put(c, 1, 1, 100);
  cache_flush(c);
  for (int fd = 0; fd < 3; fd++) if (write(fd, "text", 4) == 4) return 2;
  int found = get(c, 1, 100);
  cache_close(c);
  return found == 1 ? 0 : 3;
}

static void closed_descriptors(void **state) {
  (void)state;
  char *dir = folder("closed");
  assert_int_equal(in_child(without_standard_descriptors, dir, false), 0);
  free(dir);
}

static int use_unwritable(const char *dir) {
  capture();
  cache *c = cache_open(dir, "v1");
  int found = get(c, 3, 3000);
  put(c, 30, 1, 1);
  int later = get(c, 30, 1);
  cache_close(c);
  if (warnings() != 1) return 2;
  if (!strstr(warning_text, "cannot be written")) return 3;
  return later != -1 ? 4 : found == 4 ? 0 : 10;
}

static void a_folder_that_cannot_be_written(void **state) {
  (void)state;
  char *dir = filled("readonly"), *db = in(dir, "kernels-2.db"), *empty = folder("empty");
  mkdir(empty, 0755);
  assert_int_equal(chmod(dir, 0555) | chmod(db, 0444) | chmod(empty, 0555), 0);
  // With a database that can be read: it is read.  (As root the files belong to root, which the other user trusts.)
  char *lock = in(dir, "lock"), *key = in(dir, "key");
  assert_int_equal(chmod(lock, 0444) | chmod(key, geteuid() ? 0400 : 0444), 0);
  assert_int_equal(in_child(use_unwritable, dir, true), 0);
  assert_int_equal(in_child(use_unwritable, empty, true), 10);           // without one: a miss, and one warning
  chmod(dir, 0700);
  chmod(empty, 0700);
  free(key);
  free(lock);
  free(empty);
  free(db);
  free(dir);
}

static int fill_a_full_disk(const char *dir) {
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {100000, 100000};
  setrlimit(RLIMIT_FSIZE, &limit);
  capture();
  cache *c = cache_open(dir, "v1");
  for (int i = 100; i < 120; i++) put(c, i, i, 20000);
  cache_flush(c);
  for (int i = 200; i < 220; i++) put(c, i, i, 20000);
  cache_close(c);
  return warnings() == 1 ? 0 : 1;
}

static void a_full_disk(void **state) {
  (void)state;
  char *dir = filled("full");
  assert_int_equal(in_child(fill_a_full_disk, dir, false), 0);
  capture();
  cache *c = cache_open(dir, "v1");
  for (int i = 0; i < 20; i++) assert_int_equal(get(c, i, 3000), i + 1);
  cache_close(c);
  assert_int_equal(warnings(), 0);
  free(dir);
}

static int write_for_ever(const char *dir) {
  cache *c = cache_open(dir, "v1");
  for (int i = 0;; i++) {
    put(c, i % 200, i % 200 + 1, 3000);
    if (i % 7 == 0) cache_flush(c);
  }
  return 0;
}

static void killed_at_any_moment(void **state) {
  (void)state;
  char *dir = folder("killed");
  for (int round = 0; round < 25; round++) {
    fflush(NULL);
    pid_t child[2];
    for (int k = 0; k < 2; k++)
      if (!(child[k] = fork())) _exit(write_for_ever(dir));
    usleep(5000 + (useconds_t)round * 1700);
    for (int k = 0; k < 2; k++) kill(child[k], SIGKILL);
    for (int k = 0; k < 2; k++) waitpid(child[k], NULL, 0);
    capture();
    cache *c = cache_open(dir, "v1");
    bool on = cache_is_on(c);
    for (int i = 0; i < 200; i++) { int v = get(c, i, 3000); assert_true(v == -1 || v == i + 1); }
    put(c, 500, 1, 10);
    cache_close(c);
    if (warnings()) fail_msg("round %d: %s", round, warning_text);
    assert_true(on);
  }
  free(dir);
}

static int read_and_write(const char *dir) {
  cache *c = cache_open(dir, "v1");
  int hits = 0;
  for (int i = 0; i < 200; i++) {
    int v = get(c, i % 40, 3000);
    if (v != -1 && v != i % 40 + 1) return 1;
    if (v != -1) hits++;
    else put(c, i % 40, i % 40 + 1, 3000);
    if (i % 20 == 19) cache_flush(c);
  }
  bool on = cache_is_on(c);
  cache_close(c);
  return on && hits >= 160 ? 0 : 2;
}

static void several_processes_share_a_folder(void **state) {
  (void)state;
  char *dir = folder("processes");
  pid_t child[4];
  fflush(NULL);
  for (size_t k = 0; k < COUNT(child); k++)
    if (!(child[k] = fork())) _exit(read_and_write(dir));
  for (size_t k = 0; k < COUNT(child); k++) {
    int status;
    waitpid(child[k], &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  free(dir);
}

static cache *shared;
static void *use_shared(void *p) {
  (void)p;
  for (int i = 0; i < 300; i++) {
    int v = get(shared, i % 50, 500);
    if (v == -1) put(shared, i % 50, i % 50 + 1, 500);
    else if (v != i % 50 + 1) return (void *)1;
    if (i % 25 == 0) cache_flush(shared);
  }
  return NULL;
}

static void several_threads_share_a_cache(void **state) {
  (void)state;
  char *dir = folder("threads");
  shared = cache_open(dir, "v1");
  pthread_t id[4];
  for (size_t i = 0; i < COUNT(id); i++) assert_int_equal(pthread_create(&id[i], NULL, use_shared, NULL), 0);
  for (size_t i = 0; i < COUNT(id); i++) {
    void *bad;
    pthread_join(id[i], &bad);
    assert_null(bad);
  }
  cache_close(shared);
  free(dir);
}

static int open_held(const char *dir) {
  capture();
  double start = now_s();
  cache *c = cache_open(dir, "v1");
  put(c, 1, 1, 1);
  cache_close(c);
  return now_s() - start > 10 ? 2 : warnings() == 1 ? 0 : 1;
}

// A stopped process may hold the lock for ever; the others wait a little and go on without.
static void a_lock_that_stays_held(void **state) {
  (void)state;
  char *dir = filled("held"), *file = in(dir, "kernels-2.db");
  sqlite3 *db;
  assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
  assert_int_equal(in_child(open_held, dir, false), 0);
  sqlite3_close(db);
  free(file);
  free(dir);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(keeps_entries),
    cmocka_unit_test(lists_and_clears),
    cmocka_unit_test(off_is_off),
    cmocka_unit_test(finds_its_folder),
    cmocka_unit_test(a_damaged_entry_is_a_miss),
    cmocka_unit_test(a_damaged_database_is_replaced),
    cmocka_unit_test(a_journal_that_names_another_file),
    cmocka_unit_test(one_warning_is_enough),
    cmocka_unit_test(damage_while_another_process_reads_removes_nothing),
    cmocka_unit_test(folders_that_others_may_write_are_refused),
    cmocka_unit_test(what_belongs_to_other_users_is_refused),
    cmocka_unit_test(entries_of_another_secret_are_misses),
    cmocka_unit_test(the_secret_is_private_and_whole),
    cmocka_unit_test(a_secret_that_others_know_is_refused),
    cmocka_unit_test(closed_descriptors),
    cmocka_unit_test(a_folder_that_cannot_be_written),
    cmocka_unit_test(a_full_disk),
    cmocka_unit_test(killed_at_any_moment),
    cmocka_unit_test(several_processes_share_a_folder),
    cmocka_unit_test(several_threads_share_a_cache),
    cmocka_unit_test(a_lock_that_stays_held),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
