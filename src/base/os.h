// os: the functions that differ between systems and that POSIX does not cover. linux/, macos/ and windows/ have an os.c
// each. Interfaces with a header of their own (mapped.h, child.h, tty.h, confine.h, device/memory.h) are not repeated
// here: a system that needs another implementation has a file of that name in its folder, which replaces the common
// one.
#ifndef WEFT_OS_H
#define WEFT_OS_H
#include "base/base.h"
#include <pthread.h>

// Sleeps while *at has this value; may also wake without a reason.
void os_wait(_Atomic uint32_t *at, uint32_t value);
void os_wake_all(_Atomic uint32_t *at);                // all threads that sleep at this address

int os_thread_id(void);                                // the id of this thread, for os_thread_nice; never 0
// Lowers the priority of a thread of this process (0: this one), as nice(1) does; does nothing on systems that cannot.
void os_thread_nice(int id, int nice);
// A condition variable with timeouts in times of now_s(), a monotonic clock. pthread_cond_destroy frees it.
void os_cond_init(pthread_cond_t *c);
// pthread_cond_wait until a time (INFINITY: no timeout). False: timed out.
bool os_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, double until);

// Kernels are compiled with the System V calling convention on all systems, so that their code is the same everywhere;
// callers must be declared accordingly. (Windows does not promise to preserve memory below the stack pointer, but it
// only overwrites it when a program handles faults, which this one does not.)
#if defined(_WIN32) && defined(__x86_64__)
#define OS_KERNEL_ABI __attribute__((sysv_abi))
#else
#define OS_KERNEL_ABI
#endif
// Whether the system may overwrite AArch64's register x18 at any time.
#ifdef __APPLE__
enum { OS_TAKES_X18 = 1 };
#else
enum { OS_TAKES_X18 = 0 };
#endif
// Called by a thread before it runs kernels, which access the stack without touching each page, although it grows page
// by page.
void os_prepare_stack(void);
// The path of the library that dlopen would find by this name; false: none.
bool os_find_library(const char *name, char *out, size_t cap);

// Memory for code: first writable, then permanently executable. NULL or false: errno says why.
void *os_code_take(size_t n);
bool os_code_seal(void *at, size_t n);
void os_code_free(void *at, size_t n);

// Memory aligned to 64 bytes, a cache line, for os_lines_free. NULL: out of memory.
void *os_lines_take(size_t n);
void os_lines_free(void *at);
bool os_lock_memory(void);                             // present and future memory of this process. False: errno

uintptr_t os_stack_end(void);                          // the lowest address of this thread's stack; 0: unknown
// Accepts a waiting connection of a non-blocking listening socket; -1: none.
int os_accept(int fd);
void os_close_socket(int fd);
// Closes a socket but keeps its number reserved: returns a descriptor that has the number until it is closed, or -1:
// none.
int os_close_and_keep(int fd);
// Waits at most that many seconds for a signal of a sigset_t, which all threads block; 0: none.
int os_wait_signal(const void *set, double seconds);

extern const char os_home_variable[];                  // the variable with the user's folder if HOME is not set
bool os_is_absolute(const char *path);

// For a file that is read in scattered pieces, which need not be cached: disables read-ahead.
void os_reads_pieces(int fd);
void os_forget_piece(int fd, uint64_t at, uint64_t n);

// Sets a variable of the environment. always: also if it has a value already. Call it before threads start.
void os_set_env(const char *name, const char *value, bool always);
bool os_program_path(char *out, size_t cap);           // the full path of the running program; false: unknown
bool os_program_as_started(char *out, size_t cap);     // a path that opens it, as it was started
// A path for an open folder.
bool os_folder_path(int fd, char *out, size_t cap);
#endif
