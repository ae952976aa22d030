/* weft/machine.h: this machine, and the cache of kernels. */
#ifndef WEFT_API_MACHINE_H
#define WEFT_API_MACHINE_H
#include "base.h"

WEFT_BEGIN

/* ---- The kernel cache */
typedef struct weft_cache_entry {
  const char *kind; /* "kernel", "filling" (packs a weight), "schedule" (of a plan), "tuning", "machine" (what was
                       measured of it), "content" (the digest of a file) */
  const char *name, *role;   /* of the kernel; role "" if it is not known */
  size_t bytes;
  int64_t created;           /* Unix time */
  bool sound;                /* complete, and written by this user */
  bool current;              /* of this version of Weft; others are never used */
  /* Tunings only (otherwise NULL and 0): the machine and the compiler that it was measured with, the kernel as IR, the
   * list of OptOps ("heuristic": nothing better was found), and microseconds per launch. */
  const char *machine, *compiler, *ir, *opts;
  double before_us, after_us;
  double cut_s; /* a tuning whose search was stopped after that many seconds; 0: it was completed */
} weft_cache_entry;
/* Visits every entry until visit returns false; texts are borrowed until then. */
int weft_cache_each(bool (*visit)(const weft_cache_entry *e, void *ctx), void *ctx, weft_error *err);
/* The folder of the cache, which is created if necessary, for weft_free; NULL: no cache. */
char *weft_cache_folder(void);
/* Makes a process that alone opens the cache from now on, so that this process does not need access to it: it compiles
 * the code that is cached and returns copies. Call it once, before there are threads and before a model is read.
 * `enter` (may be NULL) is called in the new process first, to confine it. threads: as in weft_options, of the models
 * that will be loaded. False: the process was not made, and nothing has changed. weft_cache_end waits until everything
 * is stored and the process has ended; all handles must be closed by then. */
bool weft_cache_keep(void (*enter)(void *ctx), void *ctx, int threads);
void weft_cache_end(void);
int weft_cache_clear(bool tunings_only, int64_t *removed, weft_error *err);
/* Adds a tuning (name, role, machine, compiler, ir, opts and times count).  Checked: made for this machine and
 * settings, a kernel's IR, OptOps that exist.  Whether they suit the kernel is checked when a model needs it; a list
 * that does not is not used.  check_only: adds nothing. */
int weft_cache_add_tuning(const weft_cache_entry *e, bool check_only, weft_error *err);

/* ---- This machine */
typedef struct weft_env {
  char cpu[128];             /* "AMD EPYC 9B45"; "" if unknown */
  char features[1024];       /* what kernels may use (WEFT_CPU), or why that is nothing */
  int vector_bits;           /* widest vector that kernels use; 0 if unknown */
  int threads;               /* the default for weft_options.threads */
  uint64_t memory_total, memory_available;      /* bytes; 0 if unknown */
  char llvm[1024];           /* "22.1.8", or why there is none */
  bool has_llvm;
  char cache[1024];          /* file of the kernel cache; "" when it is off */
  /* the prefetch distance of weights, in the notation of PREFETCH, as measured here or on another processor of this
   * kind ("8,t0 (known of Zen 4; GB/s of a product: 0: 15.9; ..."); "" if none */
  char prefetch[256];
  double barrier_ns;         /* time of a barrier over all threads; 0: not measured yet */
  int64_t cache_bytes;       /* of a core's own second cache */
  /* the values of DEV, a line each: "CL: Portable Computing Language: pthread-...", or "CL: none: " and why */
  char devices[2048];
  char huge_pages[16];       /* the system's setting for huge pages: "always", "madvise", "never"; "" if unknown */
  int cores;                 /* that this process may use */
  double cpu_limit;          /* processors' worth of time that control groups allow; 0: no limit */
  uint64_t memory_limit;     /* bytes that control groups allow; 0: no limit */
} weft_env;
/* Collects these values: asks drivers for devices, loads LLVM for its version, and opens the kernel cache. */
void weft_env_report(weft_env *out);
/* bytes that programs can still allocate, counting the system's file cache as free; UINT64_MAX if unknown */
uint64_t weft_memory_available(void);
int weft_default_threads(void);
/* What makes this machine slower than necessary for n threads (huge pages that are off, other programs, a slow clock,
 * ...), and what to do about it: lines "SUBJECT: what is so; what to do", with the subjects huge pages, threads, load,
 * clock and power; "" if there is nothing; for weft_free. Call it before a model runs: the load of the last minute
 * counts. */
char *weft_env_advice(int threads);
void weft_cpu_name(char *out, size_t cap);    /* "" if unknown */

/* ---- a model on several processes ---------------------------------------------------------------------------------
 */

/* Joins the other processes if mpirun of Open MPI or MPICH, or Slurm's srun, started this one with others. Call it
 * first, from one thread. *rank, *n: the number of this process, and of all; 0 and 1 if it is alone. Process 0 is the
 * program: all processes share the models that it opens. The others call weft_ranks_follow instead. */
int weft_ranks_join(int *rank, int *n, weft_error *err);
/* For the other processes: opens the models that process 0 opens and computes this process's part of each evaluation,
 * until process 0 leaves. Bytes of weft_ranks_tell are passed to `told` (NULL: they are ignored). -1 and the reason:
 * the others would wait forever, so the process should end with a status other than 0, so that the launcher ends
 * them. */
int weft_ranks_follow(void (*told)(void *ctx, const void *bytes, size_t n), void *ctx, weft_error *err);
/* For process 0: sends bytes to the others, for the program's own use. Alone it does nothing. */
void weft_ranks_tell(const void *bytes, size_t n);
/* For all processes, after they joined and before process 0 opens a model: compares their options, as texts. -1 on a
 * process whose options differ from those of process 0: it should end, as above. */
int weft_ranks_agree(const char *const *asked, int n, weft_error *err);
void weft_ranks_leave(void);                  /* the last call */

WEFT_END
#endif
