// The protocol of the keeper's sockets (keeper.h), for both sides and for tests that attack it. A byte with a
// descriptor on the first socket passes a new socket, on which requests and answers alternate.
#ifndef WEFT_DEVICE_KEEPER_WIRE_H
#define WEFT_DEVICE_KEEPER_WIRE_H
#include "device/keeper.h"

enum { KEEPER_MAGIC = 0x50454b57, KEEPER_PARTS = 3, KEEPER_PART_MAX = 64 << 20 };
enum keeper_want {
  KEEPER_OPEN,         // answer: a byte, 1 if the cache is on; the path of the database, or why it is off
  KEEPER_GET,          // key; answer: the value
  KEEPER_PUT,          // key, value
  KEEPER_FLUSH,
  KEEPER_KERNEL,       // line of the machine (plan_machine), IR, OptOps; answer: the entry
  KEEPER_SCHEDULE,     // line of the machine, graph, how; answer: the key, a NUL, the entry
  KEEPER_WANTS
};
// Settings of a device that may change after its start and that determine its kernels.
struct keeper_machine { uint32_t has_streams; prefetch distance, distance_of_tile; };
struct keeper_request {
  uint32_t magic, want, has_opts, filling;
  struct keeper_machine machine;
  uint32_t part[KEEPER_PARTS];         // sizes of the parts that follow
};
struct keeper_reply { uint32_t magic, granted; uint64_t n; double codegen_s; };        // n: bytes that follow

// The entry and key of a schedule from a graph as text; false if the text is invalid or cannot be scheduled. The text
// may be any bytes. key, entry: the caller's, initially empty.
struct keeper_graph { const device *d; keeper_scheduler *scheduler; bytes text, how; };
bool keeper_schedule(const struct keeper_graph *of, str *key, str *entry);
// the process itself (keeper_serve.c); n_threads: of the client
NORETURN void keeper_serve(int fd, keeper_scheduler *scheduler, int n_threads);
#endif
