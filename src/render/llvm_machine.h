// The differences between kinds of machines in the LLVM renderer's text, one row each. Look next: llvm.c.
#ifndef WEFT_LLVM_MACHINE_H
#define WEFT_LLVM_MACHINE_H
#include "base/base.h"

// The calling convention of a kernel and the address spaces of its memory.
typedef struct machine {
  const char *convention;          // calling convention, before the function's type
  const char *param, *shared;      // types of pointers to PARAMs, and to work-group memory
  // launched over work-groups with separate arguments; otherwise pointers and variables come in arrays, with tiles
  // lo..hi-1
  bool launched;
  // alignment of PARAMs and LOCALs in bytes; 0: only the size of their elements is known
  int aligned;
  // 32-bit registers: of a multiprocessor for all work-items that it runs at once; maximum of one work-item
  int registers, most_registers;
  // names of the intrinsics for the ids of a work-group and of a work-item, without the axis
  const char *group, *item;
  const char *barrier;             // of a work-group
  // copy: from PARAMs to work-group memory, without cache operator and size; wait: for all copies that the work-item
  // started
  const char *copy, *wait;
  const char *swap;                // exchange within a subgroup, without the type
} machine;

static const machine processor = {.convention = "", .param = "ptr", .shared = "ptr"};
static const machine nvptx = {.convention = "ptx_kernel ",
                              .param = "ptr addrspace(1)",
                              .shared = "ptr addrspace(3)",
                              .launched = true,
                              .aligned = 16,
                              .registers = 65536,
                              .most_registers = 128,
                              .group = "nvvm.read.ptx.sreg.ctaid",
                              .item = "nvvm.read.ptx.sreg.tid",
                              .barrier = "nvvm.barrier0",
                              .copy = "nvvm.cp.async",
                              .wait = "nvvm.cp.async.wait.all",
                              .swap = "nvvm.shfl.sync.bfly"};
#endif
