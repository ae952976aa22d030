// confine: restricts a process to what it needs, by seccomp filters and Landlock. A filter is a list of the system
// calls that a kind of process may make, with checks of arguments where these matter (confine_calls.h). Every other
// call fails with EPERM, or with ENOSYS if libraries have an older alternative. Calls that only an attacker would make
// end the process with SIGSYS. Filters apply to every thread of the process and to its children, and cannot be undone;
// a second filter can only narrow the first one.
#ifndef WEFT_CONFINE_H
#define WEFT_CONFINE_H
#include "base/base.h"

// The kinds of processes; each is a set of rows of the list.
enum confine_kind {
  CONFINE_FILES,        // a command: files, threads, children; no other programs, no connections
  CONFINE_COUNTING,     // CONFINE_FILES, and hardware counters of its own threads
  CONFINE_FETCHING,     // CONFINE_FILES, and outgoing connections
  CONFINE_OPENING,      // a server before it listens: sockets of all kinds
  CONFINE_SERVING,      // a server: incoming connections on existing listening sockets, no outgoing ones
  CONFINE_COMPUTING,    // the compiler: memory that is not executable, open descriptors, clocks, locks, exit
  CONFINE_KINDS
};

// signals: the process may signal any process until confine_signals is called: for a process that first makes another
// one. False if the kernel has no such filters.
bool confine(enum confine_kind kind, bool signals);
bool confine_signals_leave(void);       // whether this process was confined with `signals`
bool confine_was_asked(void);  // requested for this process or a parent, even if the kernel does not support it
// From now on this process may only signal itself and one other process (0: none).
bool confine_signals(long other);
// Filters made after this call report each refused call on stderr: "weft: the sandbox refused ...". Call it before
// there are threads.
void confine_explain(void);

// What the list says about a call, for tests.
enum confine_answer { CONFINE_ALLOWS, CONFINE_CHECKS, CONFINE_FAILS, CONFINE_IS_UNKNOWN, CONFINE_KILLS };
enum confine_answer confine_answer_to(enum confine_kind kind, int call);
const char *confine_name(int call);     // for calls that the list names; NULL: others

// From now on this thread, and all that it starts, can open only these files and those in these folders (and below).
// Open descriptors stay open. Call it before there are other threads. writes: files may also be written, and created in
// a folder; folders: folders in it may be created and removed, too. NO_DESCRIPTORS: the process has none
// left for a rule, so that a file of the list may be refused.
enum confine_result { CONFINE_DONE, CONFINE_NO_LANDLOCK, CONFINE_NO_DESCRIPTORS };
typedef struct confine_file { const char *path; bool writes, folders; } confine_file;
enum confine_result confine_to(const confine_file *files, size_t n);
bool confine_knows_files(void);
// From now on this thread makes no TCP connections and does not reach outside sockets that have a name but no file. A
// second barrier besides the filters, which `confine` adds for all kinds without outgoing connections. False if
// Landlock is older than version 4 (names: 6).
bool confine_connections(void);
// Closes all sockets on which this process awaits connections: their descriptors stay open, and nothing arrives on
// them. For libraries that listen without need. False if that is impossible.
bool confine_listeners(void);
#endif
