// ranks: the processes that compute a model together, started by mpirun of Open MPI or MPICH. The system's MPI is the
// transport; a module per MPI calls its functions (mpi_module.h). A single process opens no module.
//
// One thread of each process calls these at a time; all processes call them in equal order.
#ifndef WEFT_DEVICE_RANKS_H
#define WEFT_DEVICE_RANKS_H
#include "schedule/ranks.h"

typedef struct ranks { int rank, n, on_host; } ranks;     // on_host: number that share this machine's memory
// Joins the other processes, if a launcher of MPI started this one. Returns 0, or -1 and the reason.
int ranks_join(error *err);
ranks ranks_here(void);                   // {0, 1, 1} for a single process
// Times of messages between the processes, measured when they joined: a gathering of `small` bytes of each process, and
// of `large` ones, in microseconds. 0 for a single process.
enum { LINK_SMALL = 8, LINK_LARGE = 128 << 10 };
typedef struct link_times { double small_us, large_us; } link_times;
link_times ranks_link(void);
// For an error that the other processes cannot detect: prints it and ends all processes.
void ranks_end_all(const char *why);
void ranks_leave(void);                   // when all others do
// A buffer that is gathered, with elements of `size` bytes.
typedef struct gathered_buffer { gathering what; size_t size; } gathered_buffer;
// Gathers what.period * count elements of each buffer of[i], which is at[i], in one message.
void ranks_gather(unsigned char *const *at, const gathered_buffer *of, int n, int64_t count);
// From now on gatherings transfer nothing: parts of others become copies of this process's, as if it were number
// `rank`. For timing plans with one process (engine/rehearse.h). Negative: ends this mode.
void ranks_rehearse(int rank);
// The times at which gatherings ended since the last call; valid until the next gathering.
size_t ranks_rehearsed(const double **at);
// From rank 0 to all. ahead: rank 0 goes on at once, and the others may get the data only when it communicates again.
void ranks_broadcast(void *at, size_t n, bool ahead);
#endif
