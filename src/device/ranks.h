// ranks: the processes that compute a model together, as mpirun of Open MPI or MPICH started them. The system's MPI is
// the transport. A module per MPI calls its functions (mpi_module.h), and a process that is alone opens no module.
//
// One thread of each process calls these at a time, all processes in the same order.
#ifndef WEFT_DEVICE_RANKS_H
#define WEFT_DEVICE_RANKS_H
#include "schedule/ranks.h"

typedef struct ranks { int rank, n, on_host; } ranks;     // on_host: how many share this machine's memory
// Joins the others, if a launcher of MPI started this process. 0; -1 and why not.
int ranks_join(error *err);
ranks ranks_here(void);                   // {0, 1, 1}: it is alone
// An error that the others cannot hear of: it is printed, and all processes end.
void ranks_end_all(const char *why);
void ranks_leave(void);                   // when all others do
// size: bytes of an element; of g->period * count elements at `at`, as the gathering says.
void ranks_gather(void *at, size_t size, const gathering *g, int64_t count);
// From now on gatherings bring nothing: parts of others become copies of this process's, as if it were number `rank`.
// For plans that are timed by one process alone (engine/rehearse.h). Negative: no more.
void ranks_rehearse(int rank);
void ranks_broadcast(void *at, size_t n);      // from rank 0 to all
#endif
