// rehearse: what a model would do on several machines like this one (weft plan). The plans of one process of n run
// here, over made-up weights, and are timed; what the network takes is added from a link's figures. Nothing but the
// head of the file is read, so that models may be larger than this machine's memory.
//
// Split by rows: as on n processes (schedule/ranks.h). The last process is timed, whose parts are the largest where
// they do not divide evenly. Split by layers: the time of one machine, and what goes from each to the next.
#ifndef WEFT_REHEARSE_H
#define WEFT_REHEARSE_H
#include "engine/engine.h"

// A network between machines: what a message takes on top of its bytes, in microseconds, and 10^9 bits a second.
typedef struct network { double latency_us, gbit_s; } network;
// A name ("10GbE"), or LATENCY:GBIT in microseconds and Gbit/s ("50:9.4"). 0, or -1 and which names there are.
int network_parse(const char *text, network *out, error *err);
// Microseconds until n processes have each other's parts of so many bytes.
double network_gather_us(const network *l, int n, double size);
// ... until all have what one of them says.
double network_broadcast_us(const network *l, int n, double size);

typedef struct rehearsal {
  int n, chunk;              // processes; tokens of a chunk of a prompt
  double token_us, chunk_us; // what a process computes; 0: not timed
  double token_link_us, chunk_link_us;
  int token_gathers, chunk_gathers;
  double token_bytes, chunk_bytes;       // that are gathered
  // bytes of a process: its weights, its keys and values, its intermediates; of these, the latter
  uint64_t memory, work;
} rehearsal;
// options: as for engine_open, with a context of `depth` tokens, which stand before those that are timed, and a chunk
// more. 0, or -1 and why not.
int rehearse_rows(const char *path, const struct engine_options *options, int n, int depth, bool prompt,
                  const network *link, rehearsal *out, error *err);

// Layers of each of n machines, so that the one with the most bytes has as few as can be; sizes[i]: its bytes, with the
// states for so many positions. to[i]: behind its last layer.
int rehearse_layers(const char *path, const struct engine_options *options, int n, int *to, uint64_t *sizes,
                    double *token_bytes, error *err);
#endif
