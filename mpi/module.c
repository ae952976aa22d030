// The functions of MPI that Weft calls, behind one table: see device/mpi_module.h.
//
// A thread of each process sends a byte to the next process in a ring, each second, whatever the process computes. If
// nothing comes from the process before, it has stopped or its machine is gone: all processes end, as they do if the
// launcher, the parent of each, is gone. (A launcher notices processes that die, not those that hang.)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "device/mpi_module.h"

// --- the launcher ----------------------------------------------------------------------------------------------------
//
// Each process has a connection to the program that started it, which starts other programs on request. A process that
// reads a hostile model must not have that, so it gives the connection up once all processes are connected.
// MPI_Finalize needs it, and is left out at the end.
//
// Open MPI's launcher counts a process that has finalized PMIx as one that may exit, and ends the others if it exits
// with another status than 0. MPICH's would not notice. There a child keeps the connection: it can say that this
// process ends well, or that all are to end, and nothing else.

static bool left;
static pid_t child;                        // MPICH: the child, and the pipe to it
static int to_child = -1;
enum { GOODBYE = 'g', FAILED = 'f', LOOK_MS = 100, ANSWER_MS = 2000 };

static void put_line(int fd, const char *text) {
  for (size_t n = strlen(text); n;) {
    ssize_t k = write(fd, text, n);
    if (k <= 0) return;                    // all signals are blocked
    text += k;
    n -= (size_t)k;
  }
}

// Waits for a byte of this process, or its end.
static char next_word(int from, pid_t parent) {
  struct pollfd p = {from, POLLIN, 0};
  char word = FAILED;
  while (!poll(&p, 1, LOOK_MS)) if (getppid() != parent) return FAILED;
  return read(from, &word, 1) == 1 ? word : FAILED;
}

// Closes all but the standard streams and these two.
static void close_others(int a, int b) {
  unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);
  if (low > 3) close_range(3, low - 1, 0);
  if (high > low + 1) close_range(low + 1, high - 1, 0);
  close_range(high + 1, ~0U, 0);
}

// The child: lines of PMI 1 on the launcher's socket.
static _Noreturn void keep_launcher(int launcher, int from, pid_t parent) {
  struct pollfd p = {launcher, POLLIN, 0};
  char answer[64];
  sigset_t every;
  sigfillset(&every);
  sigprocmask(SIG_BLOCK, &every, NULL);
  close_others(launcher, from);
  prctl(PR_SET_NAME, "weft-launcher");
  bool well = next_word(from, parent) == GOODBYE;
  put_line(launcher, well ? "cmd=finalize\n" : "cmd=abort exitcode=1\n");
  if (well && poll(&p, 1, ANSWER_MS) > 0) well = read(launcher, answer, sizeof answer) > 0;
  _exit(!well);
}

// MPICH's processes inherit a socket, whose number MPI keeps: it must not become another file's.
static bool leave_pmi(void) {
  const char *name = getenv("PMI_FD");
  int fd = name ? atoi(name) : -1, none = fd < 0 ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC), ends[2];
  pid_t parent = getpid();
  if (none < 0 || pipe2(ends, O_CLOEXEC)) {
    if (none >= 0) close(none);
    return false;
  }
  child = fork();
  if (!child) keep_launcher(fd, ends[0], parent);
  close(ends[0]);
  to_child = ends[1];
  bool well = child > 0 && dup2(none, fd) == fd;
  close(none);
  return well;
}

static void tell_child(char word) {
  if (child > 0 && write(to_child, &word, 1) == 1) waitpid(child, NULL, 0);
}

typedef struct pmix { int (*begun)(void), (*end)(const void *info, size_t n); } pmix;
typedef struct names { char at[8][PATH_MAX]; int n; } names;

static int note_pmix(struct dl_phdr_info *info, size_t size, void *ctx) {
  names *all = ctx;
  (void)size;
  if (strstr(info->dlpi_name, "pmix") && all->n < 8) snprintf(all->at[all->n++], PATH_MAX, "%s", info->dlpi_name);
  return 0;
}

// PMIx_Initialized and PMIx_Finalize of a library; Open MPI's own copy of it gives them a prefix.
static bool find_pmix(const char *path, pmix *p) {
  static const char *const prefixes[] = {"", "OPAL_MCA_PMIX3X_", "OPAL_MCA_PMIX4X_"};
  void *at = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *begun = NULL, *end = NULL;
  for (size_t i = 0; at && !end && i < sizeof prefixes / sizeof *prefixes; i++) {
    char name[64];
    snprintf(name, sizeof name, "%sPMIx_Initialized", prefixes[i]);
    begun = dlsym(at, name);
    snprintf(name, sizeof name, "%sPMIx_Finalize", prefixes[i]);
    end = begun ? dlsym(at, name) : NULL;
  }
  if (at) dlclose(at);                     // it stays, since it was there
  memcpy(&p->begun, &begun, sizeof begun);
  memcpy(&p->end, &end, sizeof end);
  return end && p->begun();
}

static bool leave_pmix(void) {
  enum { USERS = 4 };                      // of MPI's parts, each of which has begun it
  static names all;
  pmix p = {0};
  bool found = false;
  dl_iterate_phdr(note_pmix, &all);
  for (int i = 0; i < all.n && !found; i++) found = find_pmix(all.at[i], &p);
  for (int i = 0; found && i < USERS && p.begun(); i++) if (p.end(NULL, 0)) return false;
  return found && !p.begun();
}

// All processes leave MPI_Finalize out, or none.
static int leave_launcher(int rank) {
  int own = leave_pmix() || leave_pmi(), some = own, every = own;
  int r = MPI_Allreduce(MPI_IN_PLACE, &some, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD);
  if (!r) r = MPI_Allreduce(MPI_IN_PLACE, &every, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  left = some;
  if (!r && !every && !rank)
    fprintf(stderr,
            "weft: warning: processes keep their connections to the launcher, which starts programs on request: "
            "the sandbox does not prevent that\n");
  return r;
}

// --- the ring --------------------------------------------------------------------------------------------------------

enum { TICK_NS = 100000000, BEAT = 10, SILENCE = 60 /* ticks */ };
typedef struct ring {
  MPI_Comm comm;                           // MPI_COMM_NULL: no ring, since MPI allows no second thread
  int rank, n;
  pid_t launcher;                          // the parent
  pthread_t thread;
  atomic_bool leaves;
} ring;
static ring all = {.comm = MPI_COMM_NULL};

// Waits until the launcher has passed on the reason, which MPICH's would lose. MPI_Abort returns if MPI has no
// launcher.
static void end_all(int status) {
  nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
  tell_child(FAILED);
  MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

static void end_silent(const ring *r) {
  fprintf(stderr, "weft: error: process %d does not answer; all processes end\n", (r->rank + r->n - 1) % r->n);
  end_all(1);
}

static void end_orphan(void) {
  fprintf(stderr, "weft: error: the launcher of MPI is gone; all processes end\n");
  end_all(1);
}

// Until this process leaves and the process before has said that it leaves. A pause of all processes (a machine that
// sleeps) is no silence: each counts its own ticks.
static void *beat(void *ctx) {
  ring *r = ctx;
  MPI_Request in, out = MPI_REQUEST_NULL;
  char came = 0, sent = 0;
  int from = (r->rank + r->n - 1) % r->n, to = (r->rank + 1) % r->n, silent = 0, there = 0, gone = 0;
  MPI_Irecv(&came, 1, MPI_BYTE, from, 0, r->comm, &in);
  for (long tick = 0; !came || !sent || !gone; tick++) {
    MPI_Test(&out, &gone, MPI_STATUS_IGNORE);
    bool leaves = atomic_load(&r->leaves);
    if (getppid() != r->launcher) end_orphan();
    if (gone && !sent && (leaves || tick % BEAT == 0)) {
      sent = leaves;
      MPI_Isend(&sent, 1, MPI_BYTE, to, 0, r->comm, &out);
      gone = 0;
    }
    for (there = 1; !came && there;) {
      MPI_Test(&in, &there, MPI_STATUS_IGNORE);
      if (there) silent = 0;
      if (there && !came) MPI_Irecv(&came, 1, MPI_BYTE, from, 0, r->comm, &in);
    }
    if (!came && ++silent > SILENCE) end_silent(r);
    if (!came || !sent || !gone) nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
  }
  return NULL;
}

static int begin_ring(int rank, int n) {
  sigset_t every, before;
  int r = MPI_Comm_dup(MPI_COMM_WORLD, &all.comm);
  if (r) return r;
  all.rank = rank;
  all.launcher = getppid();
  all.n = n;
  sigfillset(&every);
  pthread_sigmask(SIG_BLOCK, &every, &before);           // signals are for the program's own threads
  r = pthread_create(&all.thread, NULL, beat, &all) ? MPI_ERR_NO_MEM : 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return r;
}

static void end_ring(void) {
  if (all.comm == MPI_COMM_NULL) return;
  atomic_store(&all.leaves, true);
  pthread_join(all.thread, NULL);
  MPI_Comm_free(&all.comm);
}

// --- the table -------------------------------------------------------------------------------------------------------

// Makes all connections, which MPI otherwise makes when they are first used: the sandbox allows none later. Long
// messages may go another way than short ones.
static int connect_all(int rank, int n) {
  enum { LONG = 1 << 20 };
  static const int sizes[] = {1, LONG};
  int r = 0;
  char *out = calloc(2, LONG);
  if (!out) return MPI_ERR_NO_MEM;
  for (int i = 1; i < n && !r; i++)
    for (int k = 0; k < 2 && !r; k++)
      r = MPI_Sendrecv(out, sizes[k], MPI_BYTE, (rank + i) % n, 0, out + LONG, sizes[k], MPI_BYTE, (rank + n - i) % n,
                       0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int k = 0; k < 2 && !r; k++) {
    int part = sizes[k] < n ? 1 : sizes[k] / n;
    r = MPI_Bcast(out, sizes[k], MPI_BYTE, 0, MPI_COMM_WORLD);
    if (!r && part * n <= 2 * LONG) r = MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, out, part, MPI_BYTE, MPI_COMM_WORLD);
  }
  free(out);
  return r;
}

static int start(int *rank, int *n, int *on_host) {
  MPI_Comm host;
  int level, r = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
  if (!r) r = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (!r) r = MPI_Comm_size(MPI_COMM_WORLD, n);
  if (!r) r = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  if (!r) r = MPI_Comm_size(host, on_host);
  if (!r) r = MPI_Comm_free(&host);
  if (!r) r = connect_all(*rank, *n);
  if (!r) r = leave_launcher(*rank);
  return !r && *n > 1 && level == MPI_THREAD_MULTIPLE ? begin_ring(*rank, *n) : r;
}

static int gather(void *at, const int *count, const int *place) {
  return MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, at, count, place, MPI_BYTE, MPI_COMM_WORLD);
}

static int send_bytes(const void *at, int n, int to) { return MPI_Send(at, n, MPI_BYTE, to, 0, MPI_COMM_WORLD); }
static int receive_bytes(void *at, int n, int from) {
  return MPI_Recv(at, n, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

enum { SPINS = 20000 /* looks, a few milliseconds */, SOON_NS = 200000, LATER_NS = 2000000, MOST_AHEAD = 8 };

// Broadcasts that the first process does not wait for, and copies of what they bring.
static struct { MPI_Request request; void *copy; } begun[MOST_AHEAD];
static unsigned n_begun;

static int end_broadcast(unsigned i) {
  int r = begun[i].copy ? MPI_Wait(&begun[i].request, MPI_STATUS_IGNORE) : 0;
  free(begun[i].copy);
  begun[i].copy = NULL;
  return r;
}

static int begin_broadcast(const void *at, int n) {
  unsigned i = n_begun++ % MOST_AHEAD;
  int r = end_broadcast(i);
  if (r || !(begun[i].copy = malloc((size_t)n))) return r ? r : MPI_ERR_NO_MEM;
  memcpy(begun[i].copy, at, (size_t)n);
  return MPI_Ibcast(begun[i].copy, n, MPI_BYTE, 0, MPI_COMM_WORLD, &begun[i].request);
}

// A process may wait for long until the first one has something to say: after a while it naps.
static int broadcast(void *at, int n, bool ahead) {
  MPI_Request request;
  int rank, there = 0, r = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!r && ahead && !rank) return begin_broadcast(at, n);
  if (!r) r = MPI_Ibcast(at, n, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
  for (int i = 0; !r && !(r = MPI_Test(&request, &there, MPI_STATUS_IGNORE)) && !there; i += i < 2 * SPINS)
    if (i > SPINS) nanosleep(&(struct timespec){.tv_nsec = i < 2 * SPINS ? SOON_NS : LATER_NS}, NULL);
  return r;
}

// If the launcher is unknown, its connection is still there, and MPI ends as it should. The sandbox refuses some of the
// system calls for that (names in /dev/shm stay): MPI may return an error for them, and does not end the process.
static void finalize(void) {
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Finalize();
}

static void stop(void) {
  for (unsigned i = 0; i < MOST_AHEAD; i++) end_broadcast(i);
  end_ring();
  if (left) tell_child(GOODBYE);
  else finalize();
}

extern const mpi_module weft_mpi_module;
__attribute__((visibility("default"))) const mpi_module weft_mpi_module = {
  MPI_MODULE_VERSION, start, gather, broadcast, send_bytes, receive_bytes, stop, end_all};
