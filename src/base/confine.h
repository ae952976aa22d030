// Confinement of a process to what it needs, by seccomp filters and Landlock. Filters hold for every thread of the
// process and for its children, and cannot be undone; what they refuse fails with EPERM. False where the kernel has no
// such filters.
#ifndef WEFT_CONFINE_H
#define WEFT_CONFINE_H
#include "base/base.h"

// No other programs, no connections, no looking into other processes, no typing for the user, no memory that is
// writable and executable at once.
bool confine_to_files(void);

// The same for a server: connections that come to sockets which listen already are fine; none can be made, and no other
// socket.
bool confine_to_serving(void);

// The same, but connections can be made; none come in. confine_to_files may follow, when everything has come.
bool confine_to_fetching(void);

// Memory that is not executable, descriptors that are open, clocks, locks, and the end; nothing else.
bool confine_to_computing(void);

// From now on this thread, and all that it starts, can open these files and those in these folders (and below), and no
// others. Descriptors that are open stay so. To be called before there are other threads. False where the kernel has no
// Landlock. writes: files are written, and made in a folder, too
typedef struct confine_file { const char *path; bool writes; } confine_file;
bool confine_to(const confine_file *files, size_t n);
bool confine_knows_files(void);
#endif
