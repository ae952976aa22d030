// os: what systems do differently, and POSIX has no one way for. linux/, macos/ and windows/ beside this file have an
// os.c each. What a header of its own already stands for (mapped.h, child.h, tty.h, confine.h, device/memory.h) is not
// repeated here: a system that does it in another way has a file of that name in its folder, which takes the place of
// the one above it.
#ifndef WEFT_OS_H
#define WEFT_OS_H
#include "base/base.h"
#include <pthread.h>

// A thread sleeps while *at has this value; it may wake without a reason, too.
void os_wait(_Atomic uint32_t *at, uint32_t value);
void os_wake_all(_Atomic uint32_t *at);                // those that sleep at this address

int os_thread_id(void);                                // of this thread, for os_thread_nice; never 0
// Lets a thread of this process (0: this one) yield to others, as nice(1) does; where a system cannot, nothing happens.
void os_thread_nice(int id, int nice);
// A condition variable whose waits may end at a time of now_s(), a clock that is never set. pthread_cond_destroy frees.
void os_cond_init(pthread_cond_t *c);
// As pthread_cond_wait, until then at the longest (INFINITY: without an end). False: the time has come.
bool os_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, double until);

// Kernels are compiled by the conventions of System V on all systems, so that they are the same bytes everywhere: their
// callers are told. (What Windows does not promise below the stack pointer, it only writes when a program handles
// faults, which this one does not.)
#if defined(_WIN32) && defined(__x86_64__)
#define OS_KERNEL_ABI __attribute__((sysv_abi))
#else
#define OS_KERNEL_ABI
#endif
// Whether the system takes AArch64's register x18 away from a program at any moment.
#ifdef __APPLE__
enum { OS_TAKES_X18 = 1 };
#else
enum { OS_TAKES_X18 = 0 };
#endif
// To be called by a thread before it runs kernels, which reach into the stack without asking, though it grows page by
// page.
void os_prepare_stack(void);
// Where a library is that dlopen would find by this name; false: nowhere.
bool os_find_library(const char *name, char *out, size_t cap);

// Memory for code: taken to be written, and then made executable permanently. NULL, false: errno says why.
void *os_code_take(size_t n);
bool os_code_seal(void *at, size_t n);
void os_code_free(void *at, size_t n);

// Memory at a multiple of 64, a cache line, for os_lines_free. NULL: out of memory.
void *os_lines_take(size_t n);
void os_lines_free(void *at);
bool os_lock_memory(void);                             // what this process has, and what comes into it. False: errno

uintptr_t os_stack_end(void);                          // the lowest address of this thread's stack; 0: unknown
// A connection that waits at a listening socket, which does not block; -1: none.
int os_accept(int fd);
void os_close_socket(int fd);
// Closes a socket whose number nothing else may get meanwhile: what has the number until it is closed, or -1: nothing.
int os_close_and_keep(int fd);
// A signal of a sigset_t, which all threads block, that came within that many seconds; 0: no signal came.
int os_wait_signal(const void *set, double seconds);

extern const char os_home_variable[];                  // which says where a user's folder is, if HOME does not
bool os_is_absolute(const char *path);

// Of a file that is read in pieces here and there, which need not be kept in memory: reads nothing around them.
void os_reads_pieces(int fd);
void os_forget_piece(int fd, uint64_t at, uint64_t n);

bool os_program_path(char *out, size_t cap);           // of the program that runs, whole; false: unknown
bool os_program_as_started(char *out, size_t cap);     // a path that opens it, as it was started
// A path that stands for an open folder.
bool os_folder_path(int fd, char *out, size_t cap);
#endif
