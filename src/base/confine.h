// Confinement of a process to what it needs, by seccomp filters and Landlock. A filter is a list of the system calls
// that a kind of process may make, with their arguments checked where these matter (confine_calls.h); every other call
// fails with EPERM, or with ENOSYS if it is one that libraries replace by older ones. Calls that only an attacker makes
// end the process with SIGSYS. Filters hold for every thread of the process and for its children, and cannot be undone;
// a second filter can only narrow the first one.
#ifndef WEFT_CONFINE_H
#define WEFT_CONFINE_H
#include "base/base.h"

// The kinds of processes: each is a set of rows of the list.
enum confine_kind {
  CONFINE_FILES,        // a command: files, threads, children; no other programs, no connections
  CONFINE_COUNTING,     // the same, with hardware counters of its own threads
  CONFINE_FETCHING,     // the same as CONFINE_FILES, but connections can be made; none come in
  CONFINE_OPENING,      // a server before it listens: sockets of all kinds
  CONFINE_SERVING,      // a server: connections that come to sockets which listen already; none can be made
  CONFINE_COMPUTING,    // the compiler: memory that is not executable, open descriptors, clocks, locks, and the end
  CONFINE_KINDS
};

// signals: they go to any process, until confine_signals: for a process that makes another one first. False if the
// kernel has no such filters.
bool confine(enum confine_kind kind, bool signals);
bool confine_signals_leave(void);       // whether this process was confined with `signals`
bool confine_was_asked(void);           // of this process, or of one that made it, whatever the kernel has
// From now on signals go to this process and to one other (0: none).
bool confine_signals(long other);
// Filters made after this call report each call that they refuse on stderr: "weft: the sandbox refused ...". To be
// called before there are threads.
void confine_explain(void);

// What the list says of a call, for tests.
enum confine_answer { CONFINE_ALLOWS, CONFINE_CHECKS, CONFINE_FAILS, CONFINE_IS_UNKNOWN, CONFINE_KILLS };
enum confine_answer confine_answer_to(enum confine_kind kind, int call);
const char *confine_name(int call);     // of those that the list names; NULL: it does not

// From now on this thread, and all that it starts, can open these files and those in these folders (and below), and no
// others. Descriptors that are open stay so. To be called before there are other threads. False where the kernel has no
// Landlock. writes: files are written, and made in a folder, too
typedef struct confine_file { const char *path; bool writes; } confine_file;
bool confine_to(const confine_file *files, size_t n);
bool confine_knows_files(void);
// From now on neither makes connections of TCP, nor reaches sockets outside that have a name but no file: a second wall
// behind the filters, which `confine` builds for all kinds that make no connections. False where Landlock is older than
// version 4 (names: 6).
bool confine_connections(void);
#endif
