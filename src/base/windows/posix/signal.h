// Signals. Windows has SIGINT and those of faults; handlers of the others are never called.
#ifndef WEFT_WINDOWS_SIGNAL_H
#define WEFT_WINDOWS_SIGNAL_H
#include_next <signal.h>
#include "base/windows/posix/posix.h"
enum { SIGHUP = 1, SIGQUIT = 3, SIGTRAP = 5, SIGBUS = 7, SIGKILL = 9, SIGUSR1 = 10, SIGUSR2 = 12, SIGPIPE = 13,
       SIGALRM = 14, SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGXCPU = 24, SIGXFSZ = 25, SIGWINCH = 28,
       SIGSYS = 31 };
enum { SA_RESTART = 1 };
enum { SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK };
typedef uint64_t posix_sigset;
#define sigset_t posix_sigset
struct sigaction { void (*sa_handler)(int); int sa_flags; sigset_t sa_mask; };
int sigaction(int sig, const struct sigaction *now, struct sigaction *before);
int sigprocmask(int how, const sigset_t *set, sigset_t *before);
#undef pthread_sigmask
#define pthread_sigmask sigprocmask
static inline int sigemptyset(sigset_t *s) { *s = 0; return 0; }
static inline int sigfillset(sigset_t *s) { *s = ~(sigset_t)0; return 0; }
static inline int sigaddset(sigset_t *s, int sig) { *s |= (sigset_t)1 << sig; return 0; }
static inline int sigdelset(sigset_t *s, int sig) { *s &= ~((sigset_t)1 << sig); return 0; }
int kill(int process, int sig);
#endif
