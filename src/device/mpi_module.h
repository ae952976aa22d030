// The interface of an MPI module (mpi/module.c, compiled once for Open MPI and once for MPICH, whose types differ). The
// program opens a module if a launcher of that MPI started it.
#ifndef WEFT_MPI_MODULE_H
#define WEFT_MPI_MODULE_H
#include <stdbool.h>

enum { MPI_MODULE_VERSION = 4 };
typedef struct mpi_module {
  int version;
  // All return 0 or an MPI error code. rank, n: of this process, and their number; on_host: number on this machine.
  int (*start)(int *rank, int *n, int *on_host);
  // Bytes place[i] .. place[i] + count[i] - 1 at `at` belong to process i; all processes get all of them.
  int (*gather)(void *at, const int *count, const int *place);
  // From process 0. ahead: it goes on at once, and the others may get the data only when it sends or receives again.
  int (*broadcast)(void *at, int n, bool ahead);
  int (*send)(const void *at, int n, int to);
  int (*receive)(void *at, int n, int from);
  void (*stop)(void);
  void (*abort)(int status);              // ends all processes
} mpi_module;
#endif
