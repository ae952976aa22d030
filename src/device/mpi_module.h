// What a module of an MPI (mpi/module.c, compiled once for Open MPI and once for MPICH, whose types differ) gives
// the program, which opens it when a launcher of that MPI started it.
#ifndef WEFT_MPI_MODULE_H
#define WEFT_MPI_MODULE_H

enum { MPI_MODULE_VERSION = 2 };
typedef struct mpi_module {
  int version;
  // All return 0, or a number of MPI's. rank, n: of this process, and of how many; on_host: of those, how many
  // are on this machine.
  int (*start)(int *rank, int *n, int *on_host);
  // Bytes place[i] .. place[i] + count[i] - 1 at `at` are process i's, and everybody gets them.
  int (*gather)(void *at, const int *count, const int *place);
  int (*broadcast)(void *at, int n);      // from process 0
  void (*stop)(void);
  void (*abort)(int status);              // ends all processes
} mpi_module;
#endif
