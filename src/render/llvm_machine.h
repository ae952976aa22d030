// What differs from one kind of machine to another in the LLVM renderer's text: a row for each. Look next: llvm.c.
#ifndef WEFT_LLVM_MACHINE_H
#define WEFT_LLVM_MACHINE_H
#include "base/base.h"

// How a kernel is called, and where its memory is.
typedef struct machine {
  const char *convention;          // before the type of the function
  const char *param, *shared;      // types of pointers to PARAMs, and to the memory of a work-group
  // over work-groups: arguments one by one; otherwise pointers and variables in arrays, and tiles lo..hi-1
  bool launched;
  // bytes at a multiple of which PARAMs and LOCALs begin; 0: no more is said than the size of their elements
  int aligned;
  // 32 bits each: that a unit has for all items that it runs at once, and that one of these may have
  int registers, most_registers;
  // names of the intrinsics that give the numbers of a work-group and of an item in it, but for the axis
  const char *group, *item;
  const char *barrier;             // of a work-group
  // from PARAMs to the memory of a work-group, but for how and the bytes; that waits for all that the item has begun
  const char *copy, *wait;
  const char *swap;                // of items that run in step, but for the type
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
