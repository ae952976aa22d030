// POSIX's file functions: see posix/posix.h. Paths are UTF-8: the program's manifest sets that code page.
//
// As in POSIX, an open file may be renamed and removed. ctime is Windows's ChangeTime, which programs cannot set. A
// file's permissions are those of its folder; every file belongs to the user.
#include <windows.h>
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#undef open
#undef unlink
#undef mkdir
#undef fopen

enum { FOLDER_MODE = 0x4000 | 0700, FILE_MODE = 0x8000 | 0700, LINK_MODE = 0xA000 | 0700, PATH_CAP = 4096 };

// Sets errno from GetLastError() and returns -1.
static int fail_with_last(void) {
  switch (GetLastError()) {
  case ERROR_FILE_NOT_FOUND: case ERROR_PATH_NOT_FOUND: case ERROR_INVALID_NAME: case ERROR_BAD_PATHNAME:
    errno = ENOENT;
    break;
  case ERROR_FILE_EXISTS: case ERROR_ALREADY_EXISTS: errno = EEXIST; break;
  case ERROR_ACCESS_DENIED: case ERROR_SHARING_VIOLATION: errno = EACCES; break;
  case ERROR_DIR_NOT_EMPTY: errno = ENOTEMPTY; break;
  case ERROR_DISK_FULL: case ERROR_HANDLE_DISK_FULL: errno = ENOSPC; break;
  case ERROR_NOT_ENOUGH_MEMORY: case ERROR_COMMITMENT_LIMIT: errno = ENOMEM; break;
  case ERROR_LOCK_VIOLATION: case ERROR_IO_PENDING: errno = EWOULDBLOCK; break;
  case ERROR_INVALID_HANDLE: errno = EBADF; break;
  case ERROR_DIRECTORY: errno = ENOTDIR; break;
  case ERROR_BROKEN_PIPE: errno = EPIPE; break;
  default: errno = EIO;
  }
  return -1;
}

static HANDLE handle_of(int fd) { return (HANDLE)_get_osfhandle(fd); }

int posix_open(const char *path, int flags, ...) {
  static const DWORD makes[2][2][2] = {   // [O_CREAT][O_EXCL][O_TRUNC]
    {{OPEN_EXISTING, TRUNCATE_EXISTING}, {OPEN_EXISTING, TRUNCATE_EXISTING}},
    {{OPEN_ALWAYS, CREATE_ALWAYS}, {CREATE_NEW, CREATE_NEW}}};
  DWORD access = flags & _O_RDWR ? GENERIC_READ | GENERIC_WRITE : flags & _O_WRONLY ? GENERIC_WRITE : GENERIC_READ;
  DWORD how = FILE_FLAG_BACKUP_SEMANTICS | (flags & O_NOFOLLOW ? FILE_FLAG_OPEN_REPARSE_POINT : 0);
  SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, !(flags & O_CLOEXEC)};
  if (!strcmp(path, "/dev/null")) path = "NUL";
  HANDLE h = CreateFileA(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, &inherited,
                         makes[!!(flags & _O_CREAT)][!!(flags & _O_EXCL)][!!(flags & _O_TRUNC)], how, NULL);
  if (h == INVALID_HANDLE_VALUE) return fail_with_last();
  BY_HANDLE_FILE_INFORMATION info = {0};
  bool known = GetFileInformationByHandle(h, &info), folder = info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY;
  int why = known && flags & O_DIRECTORY && !folder ? ENOTDIR : known && folder && access & GENERIC_WRITE ? EISDIR
      : known && flags & O_NOFOLLOW && info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT ? ELOOP : 0;
  int fd = why ? -1 : _open_osfhandle((intptr_t)h, flags & (_O_APPEND | _O_NOINHERIT | _O_RDWR | _O_WRONLY));
  if (fd < 0) {
    CloseHandle(h);
    errno = why ? why : EMFILE;
  }
  return fd;
}

// The path of NAME in an open folder.
static bool name_below(int folder, const char *name, char out[PATH_CAP]) {
  if (folder == AT_FDCWD) return (size_t)snprintf(out, PATH_CAP, "%s", name) < PATH_CAP;
  DWORD n = GetFinalPathNameByHandleA(handle_of(folder), out, PATH_CAP, FILE_NAME_NORMALIZED);
  if (!n || n >= PATH_CAP || n + 1 + strlen(name) >= PATH_CAP) return errno = n ? ENAMETOOLONG : EBADF, false;
  out[n] = '\\';
  strcpy(out + n + 1, name);
  for (char *at = out + n; *at; at++) if (*at == '/') *at = '\\';     // \\?\ paths accept no other separator
  return true;
}

int openat(int folder, const char *name, int flags, ...) {
  char path[PATH_CAP];
  return name_below(folder, name, path) ? posix_open(path, flags, 0) : -1;
}

int posix_unlink(const char *path) { return DeleteFileA(path) ? 0 : fail_with_last(); }

int unlinkat(int folder, const char *name, int flags) {
  char path[PATH_CAP];
  (void)flags;
  return name_below(folder, name, path) ? posix_unlink(path) : -1;
}

int posix_rename(const char *from, const char *to) {
  return MoveFileExA(from, to, MOVEFILE_REPLACE_EXISTING) ? 0 : fail_with_last();
}

int renameat(int from, const char *name, int to, const char *as) {
  char a[PATH_CAP], b[PATH_CAP];
  return name_below(from, name, a) && name_below(to, as, b) ? posix_rename(a, b) : -1;
}

int linkat(int from, const char *name, int to, const char *as, int flags) {
  char a[PATH_CAP], b[PATH_CAP];
  (void)flags;
  if (!name_below(from, name, a) || !name_below(to, as, b)) return -1;
  return CreateHardLinkA(b, a, NULL) ? 0 : fail_with_last();
}

int posix_mkdir(const char *path, mode_t mode) {
  (void)mode;
  return CreateDirectoryA(path, NULL) ? 0 : fail_with_last();
}

int posix_rmdir(const char *path) { return RemoveDirectoryA(path) ? 0 : fail_with_last(); }

mode_t posix_umask(mode_t mode) { return mode; }

// ---- states

// Converts a time from units of 100 ns since 1601.
static struct timespec time_of(LARGE_INTEGER t) {
  int64_t since = t.QuadPart - 116444736000000000;
  return (struct timespec){since / 10000000, (long)(since % 10000000) * 100};
}

static int state_of_handle(HANDLE h, struct posix_stat *st) {
  BY_HANDLE_FILE_INFORMATION info;
  FILE_BASIC_INFO times;
  *st = (struct posix_stat){.st_nlink = 1};
  DWORD kind = GetFileType(h);
  if (kind == FILE_TYPE_PIPE) return st->st_mode = 0x1000 | 0600, 0;
  if (kind == FILE_TYPE_CHAR) return st->st_mode = 0x2000 | 0600, 0;
  if (!GetFileInformationByHandle(h, &info) || !GetFileInformationByHandleEx(h, FileBasicInfo, &times, sizeof times))
    return fail_with_last();
  st->st_dev = info.dwVolumeSerialNumber;
  st->st_ino = (uint64_t)info.nFileIndexHigh << 32 | info.nFileIndexLow;
  st->st_nlink = info.nNumberOfLinks;
  st->st_size = (int64_t)((uint64_t)info.nFileSizeHigh << 32 | info.nFileSizeLow);
  st->st_blocks = (st->st_size + 511) / 512;
  st->st_mode = info.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT ? LINK_MODE
      : info.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY ? FOLDER_MODE : FILE_MODE;
  if (info.dwFileAttributes & FILE_ATTRIBUTE_READONLY) st->st_mode &= ~(mode_t)0200;
  st->st_atim = time_of(times.LastAccessTime);
  st->st_mtim = time_of(times.LastWriteTime);
  st->st_ctim = time_of(times.ChangeTime);
  return 0;
}

static int state_at(const char *path, DWORD links, struct posix_stat *st) {
  HANDLE h = CreateFileA(path, FILE_READ_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                         OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS | links, NULL);
  if (h == INVALID_HANDLE_VALUE) return fail_with_last();
  int r = state_of_handle(h, st);
  CloseHandle(h);
  return r;
}

int posix_stat(const char *path, struct posix_stat *st) { return state_at(path, 0, st); }
int posix_lstat(const char *path, struct posix_stat *st) { return state_at(path, FILE_FLAG_OPEN_REPARSE_POINT, st); }
int posix_fstat(int fd, struct posix_stat *st) {
  HANDLE h = handle_of(fd);
  if (h == INVALID_HANDLE_VALUE) return errno = EBADF, -1;
  return state_of_handle(h, st);
}

int fstatat(int folder, const char *name, struct posix_stat *st, int flags) {
  char path[PATH_CAP];
  if (!name_below(folder, name, path)) return -1;
  return flags & AT_SYMLINK_NOFOLLOW ? posix_lstat(path, st) : posix_stat(path, st);
}

static int set_times(HANDLE h) {
  FILETIME now;
  GetSystemTimeAsFileTime(&now);
  return SetFileTime(h, NULL, &now, &now) ? 0 : fail_with_last();
}

// Sets the current time, the only use in Weft.
int posix_futimens(int fd, const struct timespec times[2]) { return (void)times, set_times(handle_of(fd)); }

int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
  (void)folder, (void)times, (void)flags;
  HANDLE h = CreateFileA(path, FILE_WRITE_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                         OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
  if (h == INVALID_HANDLE_VALUE) return fail_with_last();
  int r = set_times(h);
  CloseHandle(h);
  return r;
}

// ---- open files

ssize_t pread(int fd, void *to, size_t n, off_t at) {
  OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
  DWORD got = 0;
  if (n > INT32_MAX) n = INT32_MAX;
  if (ReadFile(handle_of(fd), to, (DWORD)n, &got, &where)) return got;
  return GetLastError() == ERROR_HANDLE_EOF ? 0 : fail_with_last();
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at) {
  OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
  DWORD done = 0;
  if (n > INT32_MAX) n = INT32_MAX;
  return WriteFile(handle_of(fd), from, (DWORD)n, &done, &where) ? done : fail_with_last();
}

int fsync(int fd) { return _commit(fd); }

// Locks one byte far after the end of the file: only other flock calls notice it, and reading stays possible.
int flock(int fd, int how) {
  OVERLAPPED where = {.OffsetHigh = 0x7fffffff};
  HANDLE h = handle_of(fd);
  UnlockFileEx(h, 0, 1, 0, &where);
  if (how & LOCK_UN) return 0;
  DWORD flags = (how & LOCK_EX ? LOCKFILE_EXCLUSIVE_LOCK : 0) | (how & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0);
  return LockFileEx(h, flags, 0, 1, 0, &where) ? 0 : fail_with_last();
}

int posix_fcntl(int fd, int command, ...) {
  if (handle_of(fd) == INVALID_HANDLE_VALUE) return errno = EBADF, -1;
  if (command != F_DUPFD_CLOEXEC) return 0;
  va_list args;
  va_start(args, command);
  int least = va_arg(args, int), low[16], n = 0, got = _dup(fd);
  va_end(args);
  while (got >= 0 && got < least && n < 16) {
    low[n++] = got;
    got = _dup(fd);
  }
  while (n > 0) _close(low[--n]);
  return got;
}

FILE *posix_fopen(const char *path, const char *mode) {
  bool plus = strchr(mode, '+'), only_new = strchr(mode, 'x');
  int flags = O_CLOEXEC | (plus ? _O_RDWR : *mode == 'r' ? _O_RDONLY : _O_WRONLY);
  if (*mode != 'r') flags |= _O_CREAT | (*mode == 'a' ? _O_APPEND : _O_TRUNC) | (only_new ? _O_EXCL : 0);
  int fd = posix_open(path, flags, 0600);
  if (fd < 0) return NULL;
  char how[4] = {*mode, plus ? '+' : 'b', plus ? 'b' : 0, 0};
  FILE *f = _fdopen(fd, how);
  if (!f) _close(fd);
  return f;
}

char *realpath(const char *path, char *to) {
  struct posix_stat st;
  if (posix_stat(path, &st)) return NULL;
  return _fullpath(to, path, PATH_CAP);
}

ssize_t readlink(const char *path, char *to, size_t n) {
  (void)path, (void)to, (void)n;
  errno = EINVAL;
  return -1;
}

char *mkdtemp(char *path) {
  if (_mktemp_s(path, strlen(path) + 1)) return NULL;
  return posix_mkdir(path, 0700) ? NULL : path;
}
