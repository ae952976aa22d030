// The disk cache on SQLite: see cache.h.
//
// One table; the row number is the 64-bit hash of version and key: one lookup, no second index. A row holds the whole
// key, which is compared. Two keys with equal hashes replace each other, each a miss for the other; they are never
// confused.
//
// Entries are executed, so two measures protect them from other users. First, the folder, the database, its journals
// (which SQLite replays) and the lock must belong to this user or to root and be writable by no one else. The folder is
// opened once, and all files are checked and opened through its descriptor, so replacing the folder later has no
// effect. Second, each row ends in a tag: a hash of version, key and value with a secret (the file "key" beside the
// database, mode 600). A row without a valid tag is a miss.
//
// The journal is the rollback journal, not WAL: a reader (such as a warm start) then opens one file and recovers
// nothing, and the next process rolls back the journal of a killed writer. synchronous=OFF: no write waits for the
// disk. A power failure may therefore damage the database; SQLite or an entry's tag detects damage, and the database is
// recreated, which costs one compilation.
//
// Recreating removes the file, which must not happen while another process has it open. Every open cache holds a shared
// flock on `lock` beside the database, and only a process that gets the lock exclusively removes anything.
#define _GNU_SOURCE
#include "device/cache.h"
#include "base/confine.h"
#include "base/env.h"
#include "base/os.h"
#include "base/siphash.h"
#include "base/str.h"
#include "device/keeper.h"
#include "device/kernel_set.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// The number in the file's name is the version of the table.
#define DATABASE "kernels-2.db"
enum { BUSY_MS = 2000, PENDING_MAX = 64, PENDING_BYTES_MAX = 8 << 20, ENTRY_MAX = 256 << 20 };
static const double PENDING_S = 2;

struct pending { bytes key, value; int64_t hash; };
struct cache {
  pthread_mutex_t mutex;
  char *version;
  str folder, file;                     // paths for messages
  // descriptors: the folder; the lock file, -1 if it does not exist (a read-only folder)
  int dir, lock;
  sip_key secret;
  keeper *keeper;                       // the cache belongs to the keeper; NULL: to this process
  sqlite3 *db;                          // NULL: off, or the keeper's
  sqlite3_stmt *select;
  bool warned, read_only, fresh_tried;
  VEC(struct pending) pending;
  size_t pending_bytes;
  double pending_since;
};

// ------------------------------------------------------------------------------------------------------------ warnings

PRINTF_LIKE(2, 3) static void warn(cache *c, const char *fmt, ...) {
  if (c->warned) return;
  c->warned = true;
  str text = {0};
  va_list ap;
  va_start(ap, fmt);
  str_vaddf(&text, fmt, ap);
  va_end(ap);
  warning("%s", str_c(&text));
  str_free(&text);
}

static void drop_pending(cache *c) {
  for (size_t i = 0; i < c->pending.n; i++) { bytes_free(&c->pending.at[i].key); bytes_free(&c->pending.at[i].value); }
  vec_free(&c->pending);
  c->pending_bytes = 0;
}

static void disconnect(cache *c) {
  sqlite3_finalize(c->select);
  c->select = NULL;
  sqlite3_close(c->db);
  c->db = NULL;
}

static void turn_off(cache *c) {
  disconnect(c);
  drop_pending(c);
  if (c->lock >= 0) close(c->lock);
  if (c->dir >= 0) close(c->dir);
  c->lock = c->dir = -1;
}

// -------------------------------------------------------------------------------------------- the folder and its owner

// The cache has its own folder: fetched models are stored beside it, and a process that may write here may not write
// there. An unconfined process uses a different folder, which no confined process can open: code that runs with all
// rights never comes from a process that may have been taken over.
static bool name_folder(str *out) {
  const char *name = confine_was_asked() ? "kernels" : "kernels-open";
  const char *given = env_str(ENV_WEFT_CACHE);
  if (!strcmp(given, "off")) str_add(out, given);
  else if (*given) str_addf(out, "%s/%s", given, name);
  else if (env_folder(ENV_XDG_CACHE_HOME, ".cache", "weft", out)) str_addf(out, "/%s", name);
  return out->n > 0;
}

static bool default_folder(cache *c) {
  if (name_folder(&c->folder)) return true;
  warn(c, "kernels are not cached: neither WEFT_CACHE, XDG_CACHE_HOME nor HOME is set to an absolute path");
  return false;
}

static void make_folders(const str *folder) {
  str part = {0};
  const char *at = folder->at;
  do {
    at = strchr(at + 1, '/');
    part.n = 0;
    str_addn(&part, folder->at, at ? (size_t)(at - folder->at) : folder->n);
    mkdir(part.at, 0700);               // errors and existing folders show when it is opened
  } while (at && at[1]);
  str_free(&part);
}

// Moves a descriptor above 2: if the standard streams are closed, what the program prints must not end up in a cache
// file.
static int above_standard(int fd) {
  if (fd < 0 || fd > 2) return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  close(fd);
  return moved;
}

// The reason why users other than this one and root may have written the file, or NULL.
static const char *fault_of(const struct stat *st, mode_t kind) {
  if (st->st_uid != geteuid() && st->st_uid != 0) return "belongs to another user";
  if ((st->st_mode & S_IFMT) != kind) return kind == S_IFDIR ? "is not a folder" : "is not a file";
  return st->st_mode & (S_IWGRP | S_IWOTH) ? "can be written by other users" : NULL;
}

static bool refuse_folder(cache *c, const char *name, const char *fault) {
  warn(c, "kernels are not cached: '%s%s%s' %s", c->folder.at, *name ? "/" : "", name, fault);
  return false;
}

static bool open_folder(cache *c) {
  make_folders(&c->folder);
  struct stat link, st;
  c->dir = above_standard(open(c->folder.at, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (c->dir < 0 && errno == ENOTDIR && !stat(c->folder.at, &st)) return refuse_folder(c, "", "is not a folder");
  if (c->dir < 0 || fstat(c->dir, &st) || lstat(c->folder.at, &link)) {
    warn(c, "kernels are not cached: the folder '%s' cannot be made: %s", c->folder.at, strerror(errno));
    return false;
  }
  if (link.st_uid != geteuid() && link.st_uid != 0 && S_ISLNK(link.st_mode))
    return refuse_folder(c, "", "is a link that belongs to another user");
  const char *fault = fault_of(&st, S_IFDIR);
  return fault ? refuse_folder(c, "", fault) : true;
}

// Checks the files that SQLite opens itself, and all others: no other user may have written them. After that, the
// folder's permissions keep others from adding new ones.
static bool trusted_files(cache *c) {
  static const char *const names[] = {DATABASE, DATABASE "-journal", DATABASE "-wal", DATABASE "-shm", "lock", "key"};
  for (size_t i = 0; i < COUNT(names); i++) {
    struct stat st;
    if (fstatat(c->dir, names[i], &st, AT_SYMLINK_NOFOLLOW)) {
      if (errno == ENOENT) continue;
      return refuse_folder(c, names[i], strerror(errno));
    }
    const char *fault = S_ISLNK(st.st_mode) ? "is a link" : fault_of(&st, S_IFREG);
    if (fault) return refuse_folder(c, names[i], fault);
  }
  return true;
}

// ---------------------------------------------------------------------------------------------------------- the secret

enum secret { SECRET_READ, SECRET_NONE, SECRET_DAMAGED, SECRET_REFUSED };

// Reads the first n bytes of a file, or all if it is shorter; -1 if it cannot be read.
static ssize_t read_up_to(int fd, char *to, size_t n) {
  size_t done = 0;
  for (ssize_t got = 1; got && done < n; done += (size_t)got)
    if ((got = read(fd, to + done, n - done)) < 0) return -1;
  return (ssize_t)done;
}

static enum secret read_secret(cache *c) {
  struct stat st;
  int fd = openat(c->dir, "key", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return SECRET_NONE;
  if (fd < 0 || fstat(fd, &st)) {
    refuse_folder(c, "key", strerror(errno));
    if (fd >= 0) close(fd);
    return SECRET_REFUSED;
  }
  ssize_t n = read_up_to(fd, (char *)&c->secret, sizeof c->secret);
  int why = errno;
  close(fd);
  if (n < 0) {                         // not damaged: replacing the key would invalidate all entries
    refuse_folder(c, "key", strerror(why));
    return SECRET_REFUSED;
  }
  // root may let others read its compiled code: its folder is safe without a secret
  if (st.st_uid != 0 && st.st_mode & (S_IRGRP | S_IROTH)) {
    refuse_folder(c, "key", "can be read by other users: remove it");
    return SECRET_REFUSED;
  }
  return n == (ssize_t)sizeof c->secret && st.st_size == n ? SECRET_READ : SECRET_DAMAGED;
}

// Writes the key under another name and then links it, or renames it over a damaged key: a reader always reads a whole
// key. If two processes make one at the same time, the first keeps its own.
static void make_secret(cache *c, bool replace) {
  char name[64];
  sip_key secret;
  if (!sip_key_random(&secret)) return;
  snprintf(name, sizeof name, "key-%ld-%llx", (long)getpid(), (unsigned long long)(siphash(&secret, "", 0)));
  int fd = above_standard(openat(c->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd < 0) return;
  bool whole = write(fd, &secret, sizeof secret) == (ssize_t)sizeof secret;
  whole = !close(fd) && whole;
  if (whole && replace) renameat(c->dir, name, c->dir, "key");
  else if (whole && linkat(c->dir, name, c->dir, "key", 0) && errno != EEXIST) renameat(c->dir, name, c->dir, "key");
  unlinkat(c->dir, name, 0);
}

// Without a secret no entry is trusted, so the cache is turned off.
static bool need_secret(cache *c) {
  enum secret r = read_secret(c);
  if ((r == SECRET_NONE || r == SECRET_DAMAGED) && !c->read_only) {
    make_secret(c, r == SECRET_DAMAGED);
    r = read_secret(c);
  }
  if (r == SECRET_NONE || r == SECRET_DAMAGED)
    warn(c, "kernels are not cached: the folder '%s' cannot be written", c->folder.at);
  return r == SECRET_READ;
}

// ------------------------------------------------------------------------------------------------------- the database

static const char make_table[] = "CREATE TABLE IF NOT EXISTS kernel(hash INTEGER PRIMARY KEY, key BLOB NOT NULL, value "
                                 "BLOB NOT NULL, tag INTEGER NOT NULL,"
                                 " created INTEGER NOT NULL, version TEXT NOT NULL)";
static const char select_one[] = "SELECT key, value, tag, version FROM kernel WHERE hash = ?";

// SQLite's default file system, but without resolving names (it would resolve the folder's descriptor to its name), and
// with the database's own files only: a journal may name a "super-journal" of several databases, which SQLite reads
// whole and then removes. No journal of this cache names one, so such a name is that of a foreign file.
static sqlite3_vfs vfs, *system_vfs;
static pthread_once_t vfs_once = PTHREAD_ONCE_INIT;

static int name_as_given(sqlite3_vfs *v, const char *name, int n, char *out) {
  (void)v;
  return snprintf(out, (size_t)n, "%s", name) < n ? SQLITE_OK : SQLITE_CANTOPEN;
}

static bool is_own_file(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash && !strncmp(slash + 1, DATABASE, sizeof DATABASE - 1);
}

// Foreign files do not exist: SQLite then drops the journal that names one.
static int exists_of_own(sqlite3_vfs *v, const char *name, int flags, int *out) {
  *out = 0;
  return is_own_file(name) ? system_vfs->xAccess(v, name, flags, out) : SQLITE_OK;
}

// An error of damage, so that a database whose journal names a file of this name elsewhere is started afresh.
static int open_own(sqlite3_vfs *v, const char *name, sqlite3_file *file, int flags, int *out) {
  enum { OWN = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL };
  file->pMethods = NULL;
  bool fine = !name || (flags & OWN && is_own_file(name));      // no name: a temporary file
  return fine ? system_vfs->xOpen(v, name, file, flags, out) : SQLITE_CORRUPT;
}

static int delete_own(sqlite3_vfs *v, const char *name, int sync) {
  return is_own_file(name) ? system_vfs->xDelete(v, name, sync) : SQLITE_CORRUPT;
}

static void make_vfs(void) {
  if (sqlite3_initialize() != SQLITE_OK) return;
  system_vfs = sqlite3_vfs_find(NULL);
  vfs = *system_vfs;
  vfs.zName = "weft";
  vfs.xFullPathname = name_as_given;
  vfs.xAccess = exists_of_own;
  vfs.xOpen = open_own;
  vfs.xDelete = delete_own;
  sqlite3_vfs_register(&vfs, 0);
}

static int connect_once(cache *c) {
  // SQLite would create it with a mode from umask; an existing file is not opened (closing it would drop SQLite's
  // locks)
  if (!c->read_only) {
    int fd = openat(c->dir, DATABASE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
  }
  char path[4096];
  if (!os_folder_path(c->dir, path, sizeof path - sizeof "/" DATABASE)) return SQLITE_CANTOPEN;
  strcat(path, "/" DATABASE);
  pthread_once(&vfs_once, make_vfs);
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
              (c->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  int r = sqlite3_open_v2(path, &c->db, flags, "weft");
  if (r != SQLITE_OK) return r;
  sqlite3_extended_result_codes(c->db, 0);
  sqlite3_busy_timeout(c->db, BUSY_MS);
  sqlite3_limit(c->db, SQLITE_LIMIT_LENGTH, ENTRY_MAX);
  sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
  sqlite3_db_config(c->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
  // a view in place of the table may be endless, and a trigger may change what is stored
  sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
  sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
  // SQLite would put large temporary data into files of /var/tmp, which a confined command may not open
  r = sqlite3_exec(c->db, "PRAGMA synchronous=OFF; PRAGMA temp_store=MEMORY", NULL, NULL, NULL);
  if (r != SQLITE_OK) return r;
  r = sqlite3_prepare_v3(c->db, select_one, -1, SQLITE_PREPARE_PERSISTENT, &c->select, NULL);
  if (r != SQLITE_ERROR || c->read_only) return r;  // SQLITE_ERROR: the table does not exist yet
  r = sqlite3_exec(c->db, make_table, NULL, NULL, NULL);
  return r == SQLITE_OK ? sqlite3_prepare_v3(c->db, select_one, -1, SQLITE_PREPARE_PERSISTENT, &c->select, NULL) : r;
}

static bool is_damage(int r) {
  r &= 255;
  return r == SQLITE_CORRUPT || r == SQLITE_NOTADB || r == SQLITE_ERROR || r == SQLITE_SCHEMA || r == SQLITE_MISMATCH;
}

// Removes a damaged database if no other process has it open; a new one may then be made.
static bool remove_database(cache *c) {
  if (c->read_only || c->lock < 0 || c->fresh_tried) return false;
  c->fresh_tried = true;
  disconnect(c);
  if (flock(c->lock, LOCK_EX | LOCK_NB)) return false;
  bool ok = !unlinkat(c->dir, DATABASE, 0) || errno == ENOENT;
  ok = (!unlinkat(c->dir, DATABASE "-journal", 0) || errno == ENOENT) && ok;
  flock(c->lock, LOCK_SH);
  return ok;
}

static int connect(cache *c) {
  int r = connect_once(c);
  if (is_damage(r) && remove_database(c)) {
    warn(c, "the kernel cache '%s' was damaged and is started afresh", c->file.at);
    r = connect_once(c);
  }
  if (r == SQLITE_OK) return r;
  if (r == SQLITE_BUSY || r == SQLITE_LOCKED) warn(c, "kernels are not cached: another process holds '%s'", c->file.at);
  else if (c->read_only && r == SQLITE_CANTOPEN)
    warn(c, "kernels are not cached: the folder '%s' cannot be written", c->folder.at);
  else warn(c, "kernels are not cached: '%s': %s", c->file.at, sqlite3_errstr(r));
  turn_off(c);
  return r;
}

// After a failed statement: recreates the database once if it is damaged; otherwise goes on without the cache.
static void on_failure(cache *c, int r, const char *doing) {
  if (is_damage(r) && remove_database(c)) {
    warn(c, "the kernel cache '%s' was damaged and is started afresh", c->file.at);
    connect(c);
    return;
  }
  warn(c, "kernels are not cached any more: %s '%s': %s", doing, c->file.at, sqlite3_errstr(r));
  turn_off(c);
}

// Waits at most as long as for a busy database.
static bool lock_shared(cache *c) {
  for (int ms = 0; ms < BUSY_MS; ms += 10) {
    // a file system without locks: go on without one
    if (!flock(c->lock, LOCK_SH | LOCK_NB) || errno != EWOULDBLOCK) return true;
    nanosleep(&(struct timespec){0, 10 * 1000000}, NULL);
  }
  warn(c, "kernels are not cached: another process holds '%s'", c->folder.at);
  turn_off(c);
  return false;
}

char *cache_folder(void) {
  str folder = {0};
  if (name_folder(&folder) && strcmp(folder.at, "off")) make_folders(&folder);
  else str_free(&folder), folder.at = NULL;
  return folder.at;
}

static bool open_keepers(cache *c) {
  keeper *k = keeper_running();
  bool on = false;
  str text = {0};
  if (!k) return false;
  // no answer now: the next request may succeed
  if (keeper_open(k, &on, &text) ? on : keeper_lives(k)) c->keeper = k;
  if (c->keeper) str_add(&c->file, str_c(&text));
  else if (text.n) warn(c, "kernels are not cached: %s", str_c(&text));
  str_free(&text);
  return true;
}

cache *cache_open(const char *folder, const char *version) {
  cache *c = xcalloc(1, sizeof *c);
  pthread_mutex_init(&c->mutex, NULL);
  c->version = xstrdup(version);
  c->lock = c->dir = -1;
  if (kernel_set_is_on() || (!folder && open_keepers(c))) return c;
  if (folder) str_add(&c->folder, folder);
  else if (!default_folder(c)) return c;
  if (!c->folder.n || !strcmp(c->folder.at, "off")) return c;
  str_addf(&c->file, "%s/" DATABASE, c->folder.at);
  if (!open_folder(c) || !trusted_files(c)) {
    turn_off(c);
    return c;
  }
  c->lock = above_standard(openat(c->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (c->lock < 0) c->read_only = true;                // entries cached by root can still be read
  else if (!lock_shared(c)) return c;
  if (need_secret(c)) connect(c);
  else turn_off(c);
  if (c->db && c->read_only) warn(c, "the kernel cache '%s' cannot be written: new kernels are not kept", c->file.at);
  return c;
}

keeper *cache_keeper(const cache *c) { return c->keeper; }

bool cache_is_on(cache *c) {
  pthread_mutex_lock(&c->mutex);
  bool on = c->db || kernel_set_is_on() || (c->keeper && keeper_lives(c->keeper));
  pthread_mutex_unlock(&c->mutex);
  return on;
}

const char *cache_file(cache *c) { return cache_is_on(c) ? str_c(&c->file) : ""; }

void cache_close(cache *c) {
  if (!c) return;
  cache_flush(c);
  turn_off(c);
  pthread_mutex_destroy(&c->mutex);
  str_free(&c->folder);
  str_free(&c->file);
  free(c->version);
  free(c);
}

// ------------------------------------------------------------------------------------------------------------- entries

static int64_t hash_of_key(const char *version, const void *key, size_t n) {
  return (int64_t)hash_bytes(key, n, hash_bytes(version, strlen(version), 1));
}

// The tag of an entry, which requires the secret: over all three parts and their lengths.
static int64_t tag_of(const cache *c, const char *version, const void *key, size_t key_n, const void *value, size_t n) {
  const sip_key *s = &c->secret;
  uint64_t parts[] = {siphash(s, version, strlen(version)), key_n, siphash(s, key, key_n), n, siphash(s, value, n)};
  for (size_t i = 0; i < COUNT(parts); i++) parts[i] = htole64(parts[i]);
  return (int64_t)siphash(s, parts, sizeof parts);
}

// Does the current row of a statement, whose columns begin with those of select_one, match this key and its tag?
static bool row_matches(cache *c, sqlite3_stmt *s, const void *key, size_t n) {
  const void *k = sqlite3_column_blob(s, 0), *v = sqlite3_column_blob(s, 1);
  const char *version = (const char *)sqlite3_column_text(s, 3);
  return version && !strcmp(version, c->version) && (size_t)sqlite3_column_bytes(s, 0) == n &&
         (!n || (k && !memcmp(k, key, n))) &&
         tag_of(c, version, key, n, v, (size_t)sqlite3_column_bytes(s, 1)) == sqlite3_column_int64(s, 2);
}

static bytes copy_bytes(const void *p, size_t n) {
  bytes b = {xmalloc(n), n};
  if (n) memcpy(b.at, p, n);
  return b;
}

static bool get_pending(cache *c, const void *key, size_t n, bytes *value) {
  for (size_t i = c->pending.n; i-- > 0;) {
    const struct pending *e = &c->pending.at[i];
    if (e->key.n != n || memcmp(e->key.at, key, n)) continue;
    *value = copy_bytes(e->value.at, e->value.n);
    return true;
  }
  return false;
}

static bool get_stored(cache *c, const void *key, size_t n, bytes *value) {
  sqlite3_bind_int64(c->select, 1, hash_of_key(c->version, key, n));
  int r = sqlite3_step(c->select);
  bool found = r == SQLITE_ROW && row_matches(c, c->select, key, n);
  if (found) *value = copy_bytes(sqlite3_column_blob(c->select, 1), (size_t)sqlite3_column_bytes(c->select, 1));
  sqlite3_reset(c->select);
  if (r != SQLITE_ROW && r != SQLITE_DONE) on_failure(c, r, "reading");
  return found;
}

bool cache_get(cache *c, const void *key, size_t n, bytes *value) {
  *value = (bytes){0};
  if (kernel_set_is_on()) return kernel_set_get(c->version, key, n, value);
  if (c->keeper) return keeper_get(c->keeper, key, n, value);
  pthread_mutex_lock(&c->mutex);
  bool found = c->db && (get_pending(c, key, n, value) || get_stored(c, key, n, value));
  pthread_mutex_unlock(&c->mutex);
  return found;
}

static int write_pending(cache *c) {
  sqlite3_stmt *s = NULL;
  int r = sqlite3_exec(c->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
  if (r != SQLITE_OK) return r;
  r = sqlite3_prepare_v2(c->db, "INSERT OR REPLACE INTO kernel VALUES(?,?,?,?,?,?)", -1, &s, NULL);
  for (size_t i = 0; r == SQLITE_OK && i < c->pending.n; i++) {
    const struct pending *e = &c->pending.at[i];
    sqlite3_bind_int64(s, 1, e->hash);
    sqlite3_bind_blob64(s, 2, e->key.at, e->key.n, SQLITE_STATIC);
    sqlite3_bind_blob64(s, 3, e->value.at, e->value.n, SQLITE_STATIC);
    sqlite3_bind_int64(s, 4, tag_of(c, c->version, e->key.at, e->key.n, e->value.at, e->value.n));
    sqlite3_bind_int64(s, 5, (int64_t)time(NULL));
    sqlite3_bind_text(s, 6, c->version, -1, SQLITE_STATIC);
    r = sqlite3_step(s);
    if (r == SQLITE_DONE) r = sqlite3_reset(s);
  }
  sqlite3_finalize(s);
  if (r == SQLITE_OK) r = sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL);
  if (r != SQLITE_OK) sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
  return r;
}

static void write_behind(cache *c) {
  if (!c->db || !c->pending.n) return;
  int r = write_pending(c);
  if (r == SQLITE_READONLY) {                           // a writable folder with a read-only file: keep reading
    warn(c, "the kernel cache '%s' cannot be written: new kernels are not kept", c->file.at);
    c->read_only = true;
  } else if (r != SQLITE_OK) {
    on_failure(c, r, "writing");
    if (c->db) r = write_pending(c);                    // the database was recreated
    if (c->db && r != SQLITE_OK) turn_off(c);
  }
  drop_pending(c);
}

void cache_flush(cache *c) {
  if (c->keeper) { keeper_flush(c->keeper); return; }
  pthread_mutex_lock(&c->mutex);
  write_behind(c);
  pthread_mutex_unlock(&c->mutex);
}

void cache_put(cache *c, const void *key, size_t n, const void *value, size_t value_n) {
  if (n > ENTRY_MAX / 2 || value_n > ENTRY_MAX / 2) return;
  if (kernel_set_is_on()) { kernel_set_add(c->version, key, n, value, value_n); return; }
  if (c->keeper) { keeper_put(c->keeper, key, n, value, value_n); return; }
  pthread_mutex_lock(&c->mutex);
  if (c->db && !c->read_only) {
    struct pending e = {copy_bytes(key, n), copy_bytes(value, value_n), hash_of_key(c->version, key, n)};
    if (!c->pending.n) c->pending_since = now_s();
    vec_push(&c->pending, e);
    c->pending_bytes += n + value_n;
    if (c->pending.n >= PENDING_MAX || c->pending_bytes > PENDING_BYTES_MAX || now_s() - c->pending_since > PENDING_S)
      write_behind(c);
  }
  pthread_mutex_unlock(&c->mutex);
}

// ------------------------------------------------------------------------------------------------------ list and clear

static int not_on(const cache *c, error *err) {
  return error_set(err, "the kernel cache is off%s%s", c->folder.n ? ": " : "", str_c(&c->folder));
}

// Passes one row of the list to a visitor. False: stop.
static bool visit_row(cache *c, sqlite3_stmt *s, bool (*visit)(const cache_entry *e, void *ctx), void *ctx) {
  const char *version = (const char *)sqlite3_column_text(s, 3);
  cache_entry e = {sqlite3_column_blob(s, 0),
                   sqlite3_column_blob(s, 1),
                   (size_t)sqlite3_column_bytes(s, 0),
                   (size_t)sqlite3_column_bytes(s, 1),
                   sqlite3_column_int64(s, 4),
                   version ? version : "",
                   false};
  int64_t hash = hash_of_key(e.version, e.key, e.key_n);
  e.sound = hash == sqlite3_column_int64(s, 5) &&
            tag_of(c, e.version, e.key, e.key_n, e.value, e.value_n) == sqlite3_column_int64(s, 2);
  return visit(&e, ctx);
}

// Sorts row numbers, not rows, which would need as much memory as the database has bytes. The first statement stays
// open until the end, so that no other process changes anything in between.
int cache_each(cache *c, bool (*visit)(const cache_entry *e, void *ctx), void *ctx, error *err) {
  pthread_mutex_lock(&c->mutex);
  write_behind(c);
  sqlite3_stmt *order = NULL, *row = NULL;
  int result = c->db ? 0 : not_on(c, err), r = SQLITE_DONE;
  if (c->db) r = sqlite3_prepare_v2(c->db, "SELECT hash FROM kernel ORDER BY created, hash", -1, &order, NULL);
  if (c->db && r == SQLITE_OK)
    r = sqlite3_prepare_v2(
      c->db, "SELECT key, value, tag, version, created, hash FROM kernel WHERE hash = ?", -1, &row, NULL);
  if (c->db && r == SQLITE_OK)
    while ((r = sqlite3_step(order)) == SQLITE_ROW) {
      sqlite3_bind_int64(row, 1, sqlite3_column_int64(order, 0));
      if ((r = sqlite3_step(row)) != SQLITE_ROW) break;
      bool more = visit_row(c, row, visit, ctx);
      r = sqlite3_reset(row);
      if (!more) r = SQLITE_DONE;
      if (r != SQLITE_OK) break;
    }
  if (r != SQLITE_DONE)
    result = error_set(err, "the kernel cache '%s' cannot be read: %s", c->file.at, sqlite3_errstr(r));
  sqlite3_finalize(row);
  sqlite3_finalize(order);
  pthread_mutex_unlock(&c->mutex);
  return result;
}

int cache_clear(cache *c, int64_t *removed, error *err) { return cache_remove(c, "", 0, removed, err); }

static int64_t first_number(cache *c, const char *sql) {
  sqlite3_stmt *s = NULL;
  int64_t n = 0;
  if (sqlite3_prepare_v2(c->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
    n = sqlite3_column_int64(s, 0);
  sqlite3_finalize(s);
  return n;
}

// Shrinks the file if at least half of it is free; less free space is reused by later entries. SQLite copies the
// remaining rows through memory.
static int give_room_back(cache *c) {
  if (first_number(c, "PRAGMA freelist_count") * 2 < first_number(c, "PRAGMA page_count")) return SQLITE_OK;
  return sqlite3_exec(c->db, "VACUUM", NULL, NULL, NULL);
}

// Without a condition, SQLite drops the whole table and reads no row.
static int delete_rows(cache *c, const void *prefix, size_t n) {
  sqlite3_stmt *s = NULL;
  if (!n) return sqlite3_exec(c->db, "DELETE FROM kernel", NULL, NULL, NULL);
  int r = sqlite3_prepare_v2(c->db, "DELETE FROM kernel WHERE substr(key, 1, ?) = ?", -1, &s, NULL);
  if (r == SQLITE_OK) {
    sqlite3_bind_int64(s, 1, (int64_t)n);
    sqlite3_bind_blob64(s, 2, prefix, n, SQLITE_STATIC);
    r = sqlite3_step(s);
    r = r == SQLITE_DONE ? sqlite3_reset(s) : r;
  }
  sqlite3_finalize(s);
  return r;
}

int cache_remove(cache *c, const void *prefix, size_t n, int64_t *removed, error *err) {
  pthread_mutex_lock(&c->mutex);
  write_behind(c);
  int result = 0;
  if (!c->db) result = not_on(c, err);
  else {
    int r = delete_rows(c, prefix, n);
    if (removed) *removed = sqlite3_changes(c->db);
    if (r == SQLITE_OK) r = give_room_back(c);
    if (r != SQLITE_OK)
      result = error_set(err, "the kernel cache '%s' cannot be cleared: %s", c->file.at, sqlite3_errstr(r));
  }
  pthread_mutex_unlock(&c->mutex);
  return result;
}
