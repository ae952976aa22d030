// The keeper: a process beside the one that evaluates, which alone has the kernel cache.
//
// What lies in the cache is executed by later runs, so a process that reads models, prompts and requests must not write
// it. The keeper is made before anything of those is read. It alone opens the folder, the secret and the database; the
// other process gets copies of entries through sockets. Code is never taken from it: it sends a kernel's IR with the
// OptOps of a tuning, or a model's graph, and the keeper itself makes the code, or the schedule, and the key that it is
// kept under. So an entry is always what its key says, whoever asked for it. What is kept as it was sent are numbers
// and names that are checked whenever they are read: tunings, profiles of the machine, digests of files.
//
// What is asked is read as input: texts are parsed and verified, sizes are bounded, and a broken invariant is that
// request's failure (attempt.h). If the keeper ends, its other side goes on without a cache.
#ifndef WEFT_DEVICE_KEEPER_H
#define WEFT_DEVICE_KEEPER_H
#include "device/device.h"

typedef struct keeper keeper;

// Makes a schedule and its key in the cache as `how` says, n bytes that came with the graph. False: they say nothing.
// Runs within an attempt.
typedef bool keeper_scheduler(const device *d, graph *g, uop *sink, const void *how, size_t n, str *key, schedule *out);

// Makes the process; before there are threads. `enter` is called in it before it does anything, to confine it.
// n_threads: of this side, which ask at once; 0: the default. False: there is none, as the cache is off, or because
// none could be made.
bool keeper_start(void (*enter)(void *ctx), void *ctx, keeper_scheduler *scheduler, int n_threads);
keeper *keeper_running(void);           // the one that was started; NULL: none
// Requests come soon: it opens the cache meanwhile. It does not before, as most runs that fail have failed by then.
void keeper_prepare(void);
void keeper_stop(void);                 // waits until all is kept; no request may be running

bool keeper_lives(keeper *k);           // false: it has ended

// ---- requests, from any thread. False: it has none, has refused, or has ended; or sockets could not be had this time.

bool keeper_open(keeper *k, bool *on, str *text);      // of its cache; text: its path, or why it is off if nobody said
bool keeper_get(keeper *k, const void *key, size_t n, bytes *value);                   // caller: bytes_free
bool keeper_put(keeper *k, const void *key, size_t n, const void *value, size_t value_n);
bool keeper_flush(keeper *k);
// The entry of a kernel (plan_kernels.c), made and kept. ir: as uop_print prints it; opts: of a tuning, or NULL.
struct keeper_kernel { const device *d; const str *ir; const char *opts; bool filling; };
bool keeper_make_kernel(keeper *k, const struct keeper_kernel *of, bytes *entry, double *codegen_s);
// The same of a schedule (schedule_cache.c), whose key comes with it.
bool keeper_make_schedule(keeper *k, const device *d, const str *graph_text, const void *how, size_t n, str *key,
                          bytes *entry);
bool keeper_takes(const void *key, size_t n);           // whether an entry under this key is kept as it was sent
#endif
