// The functions of MPI that Weft calls, behind one table: see device/mpi_module.h.
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>
#include <stddef.h>
#include <time.h>
#include "device/mpi_module.h"

static int start(int *rank, int *n, int *on_host) {
  MPI_Comm host;
  int level, r = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
  if (!r) r = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  if (!r) r = MPI_Comm_size(MPI_COMM_WORLD, n);
  if (!r) r = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  if (!r) r = MPI_Comm_size(host, on_host);
  return r ? r : MPI_Comm_free(&host);
}

static int gather(void *at, const int *count, const int *place) {
  return MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, at, count, place, MPI_BYTE, MPI_COMM_WORLD);
}

enum { SPINS = 20000 /* looks, a few milliseconds */, SOON_NS = 200000, LATER_NS = 2000000 };

// A process may wait for long until the first one has something to say: after a while it naps.
static int broadcast(void *at, int n) {
  MPI_Request request;
  int there = 0, r = MPI_Ibcast(at, n, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
  for (int i = 0; !r && !(r = MPI_Test(&request, &there, MPI_STATUS_IGNORE)) && !there; i += i < 2 * SPINS)
    if (i > SPINS) nanosleep(&(struct timespec){.tv_nsec = i < 2 * SPINS ? SOON_NS : LATER_NS}, NULL);
  return r;
}
static void stop(void) { MPI_Finalize(); }
static void end_all(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

extern const mpi_module weft_mpi_module;
__attribute__((visibility("default"))) const mpi_module weft_mpi_module = {MPI_MODULE_VERSION, start, gather,
                                                                           broadcast, stop, end_all};
