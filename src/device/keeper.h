// The keeper: a process beside the evaluating one that alone has access to the kernel cache.
//
// Later runs execute what is in the cache, so a process that reads models, prompts and requests must not write it. The
// keeper is started before any of these is read. It alone opens the folder, the secret and the database; the other
// process gets copies of entries through sockets. The keeper accepts no code: the client sends a kernel's IR with the
// OptOps of a tuning, or a model's graph, and the keeper compiles the code, or makes the schedule, and computes the
// key. An entry therefore always matches its key. Entries stored as sent are numbers and names that are checked at
// every read: tunings, profiles of the machine, digests of files.
//
// Requests are treated as untrusted input: texts are parsed and verified, sizes are bounded, and a broken invariant
// fails only that request (attempt.h). If the keeper ends, the client goes on without a cache.
#ifndef WEFT_DEVICE_KEEPER_H
#define WEFT_DEVICE_KEEPER_H
#include "device/device.h"

typedef struct keeper keeper;

// Makes a schedule and its key from a graph as the n bytes `how` say, which came with the graph. False: they are
// invalid. Runs within an attempt.
typedef bool keeper_scheduler(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *out);

// Starts the process; call it before there are threads. `enter` is called in the new process first, to confine it.
// n_threads: concurrent requests of the client; 0: the default. False: there is no keeper, because the cache is off or
// the process could not be made.
bool keeper_start(void (*enter)(void *ctx), void *ctx, keeper_scheduler *scheduler, int n_threads);
keeper *keeper_running(void);           // the running keeper; NULL: none
// Announces requests: the keeper opens the cache now. It does not earlier, because most failing runs fail before this.
void keeper_prepare(void);
void keeper_stop(void);                 // waits until all entries are stored; no request may be running

bool keeper_lives(keeper *k);           // false: it has ended

// ---- requests, from any thread. False: the keeper has no entry, refuses, or has ended; or no socket was available

// does it have a cache? text: its path, or why it is off if that was not yet reported
bool keeper_open(keeper *k, bool *on, str *text);
bool keeper_get(keeper *k, const void *key, size_t n, bytes *value);                   // caller: bytes_free
bool keeper_put(keeper *k, const void *key, size_t n, const void *value, size_t value_n);
bool keeper_flush(keeper *k);
// Makes and stores the entry of a kernel (plan_kernels.c). ir: text of uop_print; opts: of a tuning, or NULL.
struct keeper_kernel { const device *d; const str *ir; const char *opts; bool filling; };
bool keeper_make_kernel(keeper *k, const struct keeper_kernel *of, bytes *entry, double *codegen_s);
// Makes and stores the entry of a schedule (schedule_cache.c), and returns its key.
bool keeper_make_schedule(keeper *k, const device *d, const str *graph_text, const void *how, size_t n, str *key,
                          bytes *entry);
bool keeper_takes(const void *key, size_t n);           // is an entry under this key stored as sent?
#endif
