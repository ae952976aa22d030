// os.h for Windows.
#include "base/os.h"
#include <windows.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <sys/socket.h>
#include <unistd.h>
#include <stdatomic.h>
#include <malloc.h>
#include <signal.h>

static void on_invalid(const wchar_t *what, const wchar_t *function, const wchar_t *file, unsigned line, uintptr_t z) {
  (void)what, (void)function, (void)file, (void)line, (void)z;
}

// Runs before main. Streams are binary, a closed descriptor is an error instead of the end of the program, and consoles
// use UTF-8.
__attribute__((constructor)) static void be_like_posix(void) {
  for (int fd = 0; fd < 3; fd++) _setmode(fd, _O_BINARY);
  _set_invalid_parameter_handler(on_invalid);
  SetConsoleOutputCP(CP_UTF8);
  SetConsoleCP(CP_UTF8);
}

void os_wait(_Atomic uint32_t *at, uint32_t value) {
  WaitOnAddress((volatile void *)at, &value, sizeof value, INFINITE);
}
void os_wake_all(_Atomic uint32_t *at) { WakeByAddressAll((void *)at); }

int os_thread_id(void) { return (int)GetCurrentThreadId(); }

void os_thread_nice(int id, int nice) {
  HANDLE of = OpenThread(THREAD_SET_INFORMATION, FALSE, id ? (DWORD)id : GetCurrentThreadId());
  if (!of) return;
  SetThreadPriority(of, nice > 0 ? THREAD_PRIORITY_LOWEST : THREAD_PRIORITY_NORMAL);
  CloseHandle(of);
}

void *os_code_take(size_t n) {
  void *at = VirtualAlloc(NULL, n, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (!at) errno = ENOMEM;
  return at;
}

bool os_code_seal(void *at, size_t n) {
  DWORD before;
  if (!VirtualProtect(at, n, PAGE_EXECUTE_READ, &before)) return errno = EACCES, false;
  FlushInstructionCache(GetCurrentProcess(), at, n);
  return true;
}

void os_code_free(void *at, size_t n) {
  (void)n;
  VirtualFree(at, 0, MEM_RELEASE);
}

void *os_lines_take(size_t n) { return _aligned_malloc(n, 64); }
void os_lines_free(void *at) { _aligned_free(at); }
bool os_lock_memory(void) { return errno = ENOSYS, false; }

uintptr_t os_stack_end(void) {
  ULONG_PTR low, high;
  GetCurrentThreadStackLimits(&low, &high);
  return low;
}

const char os_home_variable[] = "USERPROFILE";

bool os_is_absolute(const char *path) {
  return *path == '/' || *path == '\\' || (isalpha((unsigned char)*path) && path[1] == ':');
}

void os_set_env(const char *name, const char *value, bool always) {
  if (always || !GetEnvironmentVariableA(name, NULL, 0)) _putenv_s(name, value);
}

bool os_program_path(char *out, size_t cap) {
  DWORD n = GetModuleFileNameA(NULL, out, (DWORD)cap);
  for (char *at = out; n < cap && *at; at++) if (*at == '\\') *at = '/';
  return n && n < cap;
}

void os_prepare_stack(void) {
  enum { ROOM = 64 << 10, PAGE = 4096 };
  volatile char at[ROOM];
  for (int i = ROOM - PAGE; i >= 0; i -= PAGE) at[i] = 0;
}

bool os_find_library(const char *name, char *out, size_t cap) {
  DWORD n = SearchPathA(NULL, name, NULL, (DWORD)cap, out, NULL);
  return n && n < cap;
}

int os_accept(int fd) { return accept(fd, NULL, NULL); }

void os_close_socket(int fd) { closesocket((SOCKET)fd); }

int os_close_and_keep(int fd) {
  closesocket((SOCKET)fd);
  return -1;
}

// Set by Ctrl-C, Ctrl-Break and the closing of the console, whose handlers run on threads of their own.
static _Atomic int came;
static BOOL WINAPI on_console(DWORD event) {
  atomic_store(&came, event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT ? SIGINT : SIGTERM);
  return TRUE;
}

int os_wait_signal(const void *set, double seconds) {
  static atomic_bool listens;
  (void)set;
  if (!atomic_exchange(&listens, true)) SetConsoleCtrlHandler(on_console, TRUE);
  for (double until = now_s() + seconds; !atomic_load(&came) && now_s() < until;) Sleep(10);
  return atomic_exchange(&came, 0);
}

bool os_program_as_started(char *out, size_t cap) { return os_program_path(out, cap); }

bool os_folder_path(int fd, char *out, size_t cap) {
  DWORD n = GetFinalPathNameByHandleA((HANDLE)_get_osfhandle(fd), out, (DWORD)cap, FILE_NAME_NORMALIZED);
  if (!n || n >= cap) return false;
  // \\?\ paths do not accept '/'
  if (n > 5 && !memcmp(out, "\\\\?\\", 4) && out[5] == ':') memmove(out, out + 4, n - 3);
  return true;
}

void os_reads_pieces(int fd) { (void)fd; }
void os_forget_piece(int fd, uint64_t at, uint64_t n) { (void)fd; (void)at; (void)n; }
