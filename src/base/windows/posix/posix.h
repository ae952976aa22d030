// The parts of POSIX that Weft uses and the C library of Windows lacks. Each header in this folder has the name of a
// POSIX header: it includes Windows's own header of that name, if there is one (include_next), and this file. The
// functions are in ../posix*.c. All other code is written for POSIX only.
//
// Not supported: fork (ENOSYS; callers then continue without a child), signals between processes, file permissions.
#ifndef WEFT_WINDOWS_POSIX_H
#define WEFT_WINDOWS_POSIX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef int uid_t;
typedef int gid_t;

// ---- fcntl.h
#define O_CLOEXEC _O_NOINHERIT
#define O_NONBLOCK 0
#define O_NOCTTY 0
#define O_NOFOLLOW 0x1000000      // a symbolic link or junction is an error
#define O_DIRECTORY 0x2000000
#define F_GETFD 1
#define F_SETFD 2
#define F_GETFL 3
#define F_SETFL 4
#define F_DUPFD_CLOEXEC 1030
#define FD_CLOEXEC 1
#define O_PATH 0
#define NAME_MAX 255
int posix_open(const char *path, int flags, ...);
int openat(int folder, const char *name, int flags, ...);
int posix_fcntl(int fd, int command, ...);
#define open posix_open
#define fcntl posix_fcntl

// ---- unistd.h
ssize_t pread(int fd, void *to, size_t n, off_t at);
ssize_t pwrite(int fd, const void *from, size_t n, off_t at);
ssize_t readlink(const char *path, char *to, size_t n);
int fsync(int fd);
int fork(void);
uid_t geteuid(void);
int pipe2(int ends[2], int flags);
long sysconf(int name);
int posix_unlink(const char *path);
int posix_rmdir(const char *path);
int unlinkat(int folder, const char *name, int flags);
int linkat(int from, const char *name, int to, const char *as, int flags);
#define unlink posix_unlink
#define rmdir posix_rmdir
#define STDIN_FILENO 0
#define STDOUT_FILENO 1
#define STDERR_FILENO 2
#define F_OK 0
#define X_OK 0                    // no execute permission exists
enum { _SC_PAGESIZE, _SC_NPROCESSORS_ONLN, _SC_NPROCESSORS_CONF, _SC_CLK_TCK, _SC_LEVEL2_CACHE_SIZE };

// ---- stdio.h, stdlib.h
int posix_rename(const char *from, const char *to);
int renameat(int from, const char *name, int to, const char *as);
#define rename posix_rename
ssize_t getline(char **line, size_t *cap, void *file);
char *realpath(const char *path, char *to);
char *mkdtemp(char *path);

// ---- string.h
void *memmem(const void *in, size_t n, const void *what, size_t k);
char *strcasestr(const char *in, const char *what);
char *strsep(char **rest, const char *ends);
const char *strsignal(int sig);

// ---- sys/file.h
#define LOCK_SH 1
#define LOCK_EX 2
#define LOCK_NB 4
#define LOCK_UN 8
int flock(int fd, int how);
#endif
