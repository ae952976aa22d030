// rehearse: estimates the speed of a model on several machines like this one (weft plan). The plans of one process of n
// run here, with random weights, and are timed; the network's time is computed from a link's figures. Only the header
// of the file is read, so a model may exceed this machine's memory.
//
// Split by rows: as with n processes (schedule/ranks.h); the last process is timed, which has the largest parts if they
// do not divide evenly. Split by layers: the time of one machine, the machine with most of it, and the data sent
// between machines.
#ifndef WEFT_REHEARSE_H
#define WEFT_REHEARSE_H
#include "engine/engine.h"
#include "schedule/ranks.h"

// A network link: latency of a message in microseconds, and bandwidth in Gbit/s.
typedef struct network { double latency_us, gbit_s; } network;
// A name ("10GbE"), or LATENCY:GBIT in microseconds and Gbit/s ("50:9.4"). Returns 0, or -1 and the known names.
int network_parse(const char *text, network *out, error *err);
// Microseconds for n processes to gather parts of this total size.
double network_gather_us(const network *l, int n, double size);
// Microseconds for a broadcast from one process.
double network_broadcast_us(const network *l, int n, double size);

// The link between n processes, from times that were measured when they joined.
network network_measured(int n);

typedef struct rehearsal {
  int n, chunk;              // processes; tokens of a chunk of a prompt
  double token_us, chunk_us; // compute time of a process; 0: not timed
  double token_link_us, chunk_link_us;
  int token_gathers, chunk_gathers;
  double token_bytes, chunk_bytes;       // gathered
  // bytes of a process: weights, KV cache and intermediates; of these, intermediates
  uint64_t memory, work;
} rehearsal;
// options: as for engine_open, with a context that has room for a token after `depth` ones. A chunk that is timed has
// at most the positions that are left. Returns 0, or -1 and the reason.
int rehearse_rows(const char *path, const struct engine_options *options, int n, int depth, bool prompt,
                  const network *link, rehearsal *out, error *err);

// Limits a context to the positions that the model has. Returns 0, or -1 and the reason.
int rehearse_context(const char *path, const struct engine_options *options, int *n_ctx, error *err);

// Layers dealt to n machines so that the largest part is as small as possible.
typedef struct rehearsed_layers {
  uint64_t sizes[MOST_RANKS];            // bytes of each machine, with states for the context
  double token_bytes;                    // of the stream
  double busiest;                        // the largest part of the work on a chunk of a prompt, by bytes of matrices
} rehearsed_layers;
int rehearse_layers(const char *path, const struct engine_options *options, int n, rehearsed_layers *out, error *err);
#endif
