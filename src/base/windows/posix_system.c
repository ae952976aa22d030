// POSIX's functions for memory, libraries, processors, signals, clocks, limits, consoles and random bytes: see
// posix/posix.h.
#include <windows.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
BOOLEAN NTAPI SystemFunction036(PVOID to, ULONG n);       // RtlGenRandom

// ---- memory

static const DWORD page_rights[8] = {PAGE_NOACCESS, PAGE_READONLY, PAGE_READWRITE, PAGE_READWRITE,
                                     PAGE_EXECUTE, PAGE_EXECUTE_READ, PAGE_EXECUTE_READWRITE, PAGE_EXECUTE_READWRITE};

static void *map_of_file(size_t n, int rights, int fd, off_t from) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  bool writes = rights & PROT_WRITE;
  off_t start = from / info.dwAllocationGranularity * info.dwAllocationGranularity;
  HANDLE m = CreateFileMappingA((HANDLE)_get_osfhandle(fd), NULL, writes ? PAGE_WRITECOPY : PAGE_READONLY, 0, 0, NULL);
  if (!m) return NULL;
  char *at = MapViewOfFile(m, writes ? FILE_MAP_COPY : FILE_MAP_READ, (DWORD)(start >> 32), (DWORD)start,
                           n + (size_t)(from - start));
  CloseHandle(m);
  return at ? at + (from - start) : NULL;
}

void *mmap(void *at, size_t n, int rights, int how, int fd, off_t from) {
  DWORD kind = rights == PROT_NONE ? MEM_RESERVE : MEM_RESERVE | MEM_COMMIT;
  void *got =
    how & MAP_ANONYMOUS ? VirtualAlloc(at, n, kind, page_rights[rights & 7]) : map_of_file(n, rights, fd, from);
  if (!got) errno = ENOMEM;
  return got ? got : MAP_FAILED;
}

int munmap(void *at, size_t n) {
  MEMORY_BASIC_INFORMATION info;
  (void)n;
  if (!VirtualQuery(at, &info, sizeof info)) return errno = EINVAL, -1;
  bool done = info.Type == MEM_MAPPED ? UnmapViewOfFile(info.AllocationBase)
                                      : VirtualFree(info.AllocationBase, 0, MEM_RELEASE);
  return done ? 0 : (errno = EINVAL, -1);
}

int mprotect(void *at, size_t n, int rights) {
  DWORD before;
  return VirtualProtect(at, n, page_rights[rights & 7], &before) ? 0 : (errno = EACCES, -1);
}

int madvise(void *at, size_t n, int what) { return (void)at, (void)n, (void)what, 0; }

// ---- libraries

static _Thread_local char library_error[256];

static void note_error(const char *name) {
  DWORD code = GetLastError();
  int n = snprintf(library_error, sizeof library_error, "%s: ", name);
  if (n < 0 || n >= (int)sizeof library_error) n = 0;
  if (!FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, code, 0, library_error + n,
                      (DWORD)(sizeof library_error - (size_t)n), NULL))
    snprintf(library_error + n, sizeof library_error - (size_t)n, "error %lu", code);
  library_error[strcspn(library_error, "\r\n")] = 0;
}

void *dlopen(const char *name, int mode) {
  (void)mode;
  bool path = strpbrk(name, "/\\");
  void *at = (void *)LoadLibraryExA(name, NULL, path ? LOAD_WITH_ALTERED_SEARCH_PATH : 0);
  if (!at) note_error(name);
  return at;
}

void *dlsym(void *library, const char *name) {
  FARPROC f = GetProcAddress(library, name);
  void *at;
  memcpy(&at, &f, sizeof at);
  if (!at) note_error(name);
  return at;
}

int dlclose(void *library) { return !FreeLibrary(library); }
const char *dlerror(void) { return library_error; }

// ---- processors

int sched_getaffinity(int process, size_t n, cpu_set_t *set) {
  DWORD_PTR own, all;
  (void)process, (void)n;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all) || !own) return errno = EINVAL, -1;
  DWORD_PTR before = SetThreadAffinityMask(GetCurrentThread(), own);  // Windows returns the mask only when it is set
  if (before && before != own) SetThreadAffinityMask(GetCurrentThread(), before);
  set->bits = before ? before : own;
  return 0;
}

int sched_setaffinity(int process, size_t n, const cpu_set_t *set) {
  (void)process, (void)n;
  return SetThreadAffinityMask(GetCurrentThread(), set->bits) ? 0 : (errno = EINVAL, -1);
}

int sched_getcpu(void) { return (int)GetCurrentProcessorNumber(); }

long sysconf(int name) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  switch (name) {
  case _SC_PAGESIZE: return (long)info.dwPageSize;
  case _SC_NPROCESSORS_ONLN: case _SC_NPROCESSORS_CONF: return (long)info.dwNumberOfProcessors;
  case _SC_CLK_TCK: return 100;
  default: return -1;
  }
}

// ---- signals, processes

int sigaction(int sig, const struct sigaction *now, struct sigaction *before) {
  static struct sigaction set[32];
  if (sig <= 0 || sig >= 32) return errno = EINVAL, -1;
  if (before) *before = set[sig];
  if (!now) return 0;
  set[sig] = *now;
  if (sig == SIGINT || sig == SIGTERM) signal(sig, now->sa_handler);
  return 0;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *before) {
  (void)how, (void)set;
  if (before) *before = 0;
  return 0;
}

int kill(int process, int sig) {
  if (process == getpid()) return raise(sig);
  errno = ENOSYS;
  return -1;
}

int fork(void) { return errno = ENOSYS, -1; }
int waitpid(int process, int *status, int how) { return (void)process, (void)status, (void)how, errno = ECHILD, -1; }
uid_t geteuid(void) { return 0; }
int pipe2(int ends[2], int flags) { return _pipe(ends, 65536, _O_BINARY | flags); }

// ---- clocks, limits, room

int getrlimit(int what, struct rlimit *out) {
  ULONG_PTR low, high;
  GetCurrentThreadStackLimits(&low, &high);
  rlim_t limit = what == RLIMIT_STACK ? high - low : what == RLIMIT_NOFILE ? 8192 : RLIM_INFINITY;
  *out = (struct rlimit){limit, limit};
  return 0;
}

int setrlimit(int what, const struct rlimit *to) { return (void)what, (void)to, 0; }

int statvfs(const char *path, struct statvfs *out) {
  ULARGE_INTEGER room;
  if (!GetDiskFreeSpaceExA(path, &room, NULL, NULL)) return errno = ENOENT, -1;
  *out = (struct statvfs){room.QuadPart, 1};
  return 0;
}

int fstatvfs(int fd, struct statvfs *out) {
  char path[4096];
  DWORD n = GetFinalPathNameByHandleA((HANDLE)_get_osfhandle(fd), path, sizeof path, FILE_NAME_NORMALIZED);
  char *end = n && n < sizeof path ? strrchr(path, '\\') : NULL;
  if (!end) return errno = EBADF, -1;
  end[1] = 0;
  return statvfs(path, out);
}

ssize_t getrandom(void *to, size_t n, unsigned flags) {
  (void)flags;
  return SystemFunction036(to, (ULONG)n) ? (ssize_t)n : (errno = EIO, -1);
}

// ---- consoles

int posix_ioctl(int fd, int what, struct winsize *out) {
  CONSOLE_SCREEN_BUFFER_INFO info;
  if (what != TIOCGWINSZ || !GetConsoleScreenBufferInfo((HANDLE)_get_osfhandle(fd), &info)) return errno = ENOTTY, -1;
  out->ws_col = (unsigned short)(info.srWindow.Right - info.srWindow.Left + 1);
  out->ws_row = (unsigned short)(info.srWindow.Bottom - info.srWindow.Top + 1);
  return 0;
}

static const struct { unsigned flag; DWORD mode; } console_modes[] = {
  {ICANON, ENABLE_LINE_INPUT}, {ECHO, ENABLE_ECHO_INPUT}, {ISIG, ENABLE_PROCESSED_INPUT}};

int tcgetattr(int fd, struct termios *t) {
  DWORD mode;
  if (!GetConsoleMode((HANDLE)_get_osfhandle(fd), &mode)) return errno = ENOTTY, -1;
  *t = (struct termios){0};
  for (size_t i = 0; i < 3; i++) if (mode & console_modes[i].mode) t->c_lflag |= console_modes[i].flag;
  return 0;
}

int tcsetattr(int fd, int when, const struct termios *t) {
  HANDLE h = (HANDLE)_get_osfhandle(fd);
  DWORD mode;
  (void)when;
  if (!GetConsoleMode(h, &mode)) return errno = ENOTTY, -1;
  for (size_t i = 0; i < 3; i++)
    mode = t->c_lflag & console_modes[i].flag ? mode | console_modes[i].mode : mode & ~console_modes[i].mode;
  return SetConsoleMode(h, mode) ? 0 : (errno = EINVAL, -1);
}
