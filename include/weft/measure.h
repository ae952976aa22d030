/* weft/measure.h: statistics, profiles, traces, and the search for better kernels. */
#ifndef WEFT_API_MEASURE_H
#define WEFT_API_MEASURE_H
#include "media.h"

WEFT_BEGIN

/* Some work of loading is done in small steps between tokens (weights move into huge pages: about a second per 2 GB).
 * This does the rest of it now: for measurements of a steady state, or before a server reports that it is ready. */
void weft_model_promote_pages(weft_model *m);

typedef struct weft_stats {
  double load_ms;            /* opening and checking the file, packing weights */
  double compile_ms;         /* making kernels: 0 when all came from the cache */
  /* from the model to kernels: its graph, and schedules made or found in the cache; part of load_ms */
  double schedule_ms;
  double codegen_ms;         /* of compile_ms: the rewriting rules; the rest is the compiler */
  int64_t kernels_compiled, plans_scheduled;     /* those that were not in the cache */
  double kernels_per_token;  /* of one decode step */
  double kernels_per_block;  /* of them, per layer */
  double fusion_rate;        /* graph operations per kernel */
  uint64_t kv_bytes;         /* KV cache that one whole context fills */
  uint64_t peak_rss_bytes;   /* peak memory of this process, file pages included */
  int kernels, kernels_tuned; /* different kernels of a decode step; those of them that an earlier search found */
  /* WEFT_TUNE: candidates measured while the model ran, and those that replaced a kernel */
  int tune_tried, tune_better;
  double tune_cost;          /* share of the time of all decode steps that this took */
  const char *tune_state;    /* "on", "done", or what it waits for; NULL: off */
} weft_stats;
void weft_model_stats(const weft_model *m, weft_stats *out);   /* as of now */

/* The time of each kernel, measured inside whole steps. A step is one token, or a chunk of a prompt. All times are in
 * microseconds per step and add up: us = overhead_us + the sum of kernels[].us. Launches of one kernel for one part of
 * the model (in all layers) are one entry. */
typedef struct weft_kernel_time {
  const char *name;          /* "r_48_16_8_4_8": r reduces, E does not; the sizes of its loops */
  /* "blk.*.ffn_down": the weight that it reads; "attention", "output", "quantise activations", "positions" */
  const char *role;
  int count;                 /* launches per step */
  double us;                 /* of all of them, until every thread had finished */
  double wait_us;            /* of that: threads waiting for one another, on average */
  /* moved and done by all of them, as estimated from the loops: each byte counts once per launch */
  double bytes, flops;
  double cycles, instructions, cache_misses,
    branch_misses; /* hardware counters over all threads; 0 if there are none */
} weft_kernel_time;
typedef struct weft_profile {
  int tokens;                /* of a step */
  int parts; double before_us;         /* of a picture: steps that it takes; decoding it and preprocessing; else 0 */
  double us;                 /* a step */
  double overhead_us;        /* of that: outside of all kernels */
  double wait_us;            /* sum of the kernels' */
  const char *no_counters;   /* NULL, or why the processor's counters could not be read */
  double limit_gb_s; /* memory that the same threads can read, 10^9 bytes per second, measured just after; 0: unknown */
  double kernels_per_step;   /* dispatches: kernels that do not wait for one another share one */
  double kernels_per_block;  /* of them, per layer */
  double fusion_rate;        /* graph operations per dispatch */
  const weft_kernel_time *kernels;   /* slowest first */
  size_t n_kernels;
} weft_profile;
/* Profiles `steps` steps (1 to 10000) from position pos on with random tokens. prompt 0: one token per step, which
 * takes a position each; otherwise chunks of `prompt` tokens, at most weft_options.chunk, always at pos. Positions
 * before pos must have been evaluated; the KV cache from pos on is lost. *out is for weft_profile_free. */
int weft_profile_model(weft_model *m, int prompt, int steps, int pos, weft_profile **out, weft_error *err);
/* A profile of a picture or sound: a step encodes its first tile or window. */
int weft_profile_medium(weft_media *a, const char *path, int steps, weft_profile **out, weft_error *err);
void weft_profile_free(weft_profile *p);      /* NULL is fine */
/* A record of everything that the compiler did with the model, for weft viz or another viewer: lines, each a JSON
 * object: an overview with kernels, buffers and a timeline of one step; the tensor graph; each different kernel with
 * all rewrites, source and assembly. The keys depend on the version of the library. The text contains no '<', so that
 * it can be embedded in an HTML script. prompt, steps and pos as for weft_profile_model, with at most 64 steps. *text
 * is terminated (*n does not count that) and for weft_free. */
int weft_model_trace(weft_model *m, int prompt, int steps, int pos, char **text, size_t *n, weft_error *err);
int weft_model_chunk(const weft_model *m);    /* tokens of a prompt that are evaluated at once */

/* Searches for better kernels than the rules choose (BEAM), on this model's own weights, and stores those that make the
 * model faster in the kernel cache for later runs on this machine. A kernel counts as better only if it computes the
 * same bits; all of them count only if whole tokens take less time with them, measured alternately with and without.
 * The contents of the KV cache are lost. */
typedef struct weft_tune_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int beam;                  /* candidates that go on to the next round; 0: 4 */
  double seconds; /* for all searches; 0: 60.  Loading, compiling and the trial of whole tokens come on top */
  double skip_ms;            /* a kernel this fast needs no search; 0: none is */
  bool no_prompt;            /* kernels of single tokens only */
  bool no_layouts; /* keeps the weights' layouts; otherwise other layouts are tried if memory holds the weights twice */
  int depth;                 /* positions before the token that is timed; less than the context */
  /* predicts times from the figures of this GPU, on a device with work-groups: nothing runs and nothing is stored;
   * NULL: times are measured */
  const char *predict;
  void (*progress)(void *ctx, const char *what, double fraction);    /* may be NULL */
  void *progress_ctx;
} weft_tune_options;
enum weft_tune_state {
  WEFT_TUNE_SMALL,           /* its share of the time is not worth a search */
  WEFT_TUNE_KNOWN,           /* searched before: the cache knows the outcome */
  WEFT_TUNE_NOT_RUN,         /* not searched: `why` */
  WEFT_TUNE_NO_GAIN,         /* nothing better was found */
  WEFT_TUNE_DROPPED,         /* faster alone, but not in the model: not kept */
  WEFT_TUNE_BETTER           /* found and kept */
};
typedef struct weft_tuned_kernel {
  const char *name, *role;   /* as in weft_kernel_time; `name` before */
  bool prompt;               /* of the plan for prompts */
  int count;                 /* launches per step */
  double share;              /* of a step's time, before: 0..1 */
  enum weft_tune_state state;
  double before_us, after_us; /* a launch over cold weights; equal where nothing better was found; 0: unknown */
  int tried, compiled, wrong; /* candidates; those with code of their own; those whose results were not the same bits */
  const char *opts, *why;    /* the list of OptOps that was found ("": none); why there was no search */
  bool cut_short;            /* the time limit ended the search: one with 1.5 times as much continues it */
} weft_tuned_kernel;
/* The layout of the weights of one format and size in memory: "stream" (in the order of reading), "file" (as in the
 * file), "tiles2", "tiles4" (a stream of that many interleaved tiles of rows), "values" (a stream of precomputed
 * values). */
enum weft_layout_state {
  WEFT_LAYOUT_KNOWN /* from the cache */,
  WEFT_LAYOUT_NOT_TRIED /* too small a share, or layouts_why */,
  WEFT_LAYOUT_SAME /* nothing is better */,
  WEFT_LAYOUT_DROPPED /* better alone, but not in the model, or not for prompts */,
  WEFT_LAYOUT_BETTER /* found and kept */
};
typedef struct weft_tuned_layout {
  const char *weight, *role; /* "weight Q6_K 2048 8192 1": format and sizes; the kernel that reads most of them */
  const char *layout;        /* the layout in use, or (DROPPED) the one that was better alone */
  enum weft_layout_state state;
  double share, ratio;       /* of a token's time; of the time of these kernels, best over before (1: nothing better) */
} weft_tuned_layout;
typedef struct weft_tuned {
  const weft_tuned_kernel *kernels;    /* single tokens, then prompts; largest share first */
  size_t n_kernels;
  double token_us[2], chunk_us[2]; /* a token, and a chunk of a prompt (0 with no_prompt), before and after; medians */
  int chunk;                           /* its tokens */
  /* that a token moves; that the same threads read from memory meanwhile, 10^9 per second (0: unknown) */
  double token_bytes, limit_gb_s;
  double seconds;                      /* all of it */
  const weft_tuned_layout *layouts;    /* tried before the kernels, which are then tuned with what was kept */
  size_t n_layouts;
  const char *layouts_why;             /* why none were tried; "": they were, or are known */
  double layouts_token_us[2], layouts_chunk_us[2]; /* before and after, if some were tried in the model (else 0) */
} weft_tuned;
int weft_tune(weft_model *m, const weft_tune_options *opt, weft_tuned **out, weft_error *err); /* opt NULL: defaults */
void weft_tuned_free(weft_tuned *t);          /* NULL is fine */

/* The speed of a model on several machines like this one: their plans run here, over made-up weights, and the figures
 * of a link are added. Only the head of the file is read. */
typedef struct weft_plan_options {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  int machines;              /* 1 to 64 */
  const char *link;          /* "1GbE", "10GbE", "25GbE", "100GbE", "USB4", or "MICROSECONDS:GBIT"; NULL: "1GbE" */
  int depth;                 /* positions before the tokens that are timed */
  bool no_prompt;            /* single tokens only */
} weft_plan_options;
enum weft_plan_split {
  WEFT_PLAN_ONE,             /* one machine has all of it */
  WEFT_PLAN_ROW,             /* every machine has rows of all matrices, as processes of MPI do */
  WEFT_PLAN_LAYER            /* each machine has some layers, one after the other; a token goes through all */
};
typedef struct weft_planned_split {
  enum weft_plan_split split;
  int machines;
  double token_us, chunk_us; /* a token, and a chunk of a prompt (0: not timed), the link's part included */
  double token_link_us, chunk_link_us;
  int token_gathers, chunk_gathers;              /* messages that all wait for */
  double token_bytes, chunk_bytes;               /* that they bring together */
  /* of each machine: weights, keys and values, intermediates; by rows all have the largest */
  const uint64_t *memory;
} weft_planned_split;
typedef struct weft_planned {
  const weft_planned_split *splits;
  size_t n_splits;
  int chunk;                 /* its tokens */
  int context;               /* positions of keys and values that memory is for */
  double latency_us, gbit_s; /* of the link */
  uint64_t machine_bytes;    /* memory of this machine; 0: unknown */
} weft_planned;
/* opt: how the model would be opened, NULL: defaults; its context is the one that memory is for. */
int weft_plan(const char *path, const weft_options *opt, const weft_plan_options *plan, weft_planned **out,
              weft_error *err);
void weft_planned_free(weft_planned *p);      /* NULL is fine */

WEFT_END
#endif
