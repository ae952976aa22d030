// Communication between the processes of a model: see ranks.h.
#define _GNU_SOURCE
#include "device/ranks.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/env.h"
#include "base/os.h"
#include "device/mpi_module.h"

enum { MOST_PACKED = 1 << 26 /* bytes of parts that are gathered at once */ };

static const mpi_module *mpi;
static ranks here = {0, 1, 1};
static link_times measured_link;
static int rehearsed = -1;
typedef VEC(double) moments;
static moments gathered_at;                                         // seconds, of rehearsed gatherings
static struct packed { unsigned char *at; size_t cap; } packed;     // for gatherings whose parts are not contiguous

ranks ranks_here(void) { return here; }

static bool says_several(const char *name) {
  const char *n = env_of_option(name);
  return n && strtol(n, NULL, 10) > 1;
}

// The MPI whose launcher started this process; NULL for a single process. Slurm's srun is a launcher of Open MPI with
// --mpi=pmix, and one of MPICH with --mpi=pmi2.
static const char *module_wanted(void) {
  if (says_several("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (says_several("PMI_SIZE")) return "mpich";
  return says_several("SLURM_STEP_NUM_TASKS") && env_of_option("PMIX_RANK") ? "openmpi" : NULL;
}

static void note_alone(void) {
  static bool noted;
  const char *first = env_of_option("SLURM_PROCID");
  if (!noted && says_several("SLURM_STEP_NUM_TASKS") && first && !strcmp(first, "0"))
    fprintf(stderr, "weft: each of the %s tasks of srun runs alone, as with --mpi=none; --mpi=pmix (Open MPI) or "
            "--mpi=pmi2 (MPICH) makes them one\n", env_of_option("SLURM_STEP_NUM_TASKS"));
  noted = true;
}

// Looks beside the program, and in the packages' folders.
static void *open_module(const char *which, char *why, size_t cap) {
  static const char *const places[] = {"", "../", "../lib/weft/", "../lib/x86_64-linux-gnu/weft/",
                                       "../lib/aarch64-linux-gnu/weft/"};
  char exe[PATH_MAX], path[PATH_MAX + 128];
  if (!os_program_path(exe, sizeof exe)) exe[0] = 0;
  char *end = strrchr(exe, '/');
  if (end) end[1] = 0;
  for (size_t i = 0; i < COUNT(places); i++) {
    snprintf(path, sizeof path, "%s%slibweft-mpi-%s.so", exe, places[i], which);
    if (access(path, F_OK)) continue;
    void *at = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!at) snprintf(why, cap, "%s", dlerror());
    return at;
  }
  snprintf(why, cap, "libweft-mpi-%s.so is not there; `scripts/setup.sh mpi` installs what it is built with", which);
  return NULL;
}

// Reports an error of MPI: usually MPI ends all processes itself; this is for calls that return.
static void check_mpi(int r) {
  if (!r) return;
  fprintf(stderr, "weft: MPI: error %d\n", r);
  mpi->abort(1);
}

static double gathering_us(unsigned char *at, int bytes) {
  enum { RUNS = 5 };
  double us[RUNS];
  int counts[MOST_RANKS], places[MOST_RANKS];
  for (int i = 0; i < here.n; i++) { counts[i] = bytes; places[i] = i * bytes; }
  for (int i = -1; i < RUNS; i++) {                      // the first one may make buffers
    double began = now_s();
    check_mpi(mpi->gather(at, counts, places));
    if (i >= 0) us[i] = (now_s() - began) * 1e6;
  }
  return median(us, RUNS);
}

static void measure_link(void) {
  unsigned char *at = xcalloc((size_t)here.n, LINK_LARGE);
  measured_link = (link_times){gathering_us(at, LINK_SMALL), gathering_us(at, LINK_LARGE)};
  free(at);
}

link_times ranks_link(void) { return measured_link; }

int ranks_join(error *err) {
  const char *which = module_wanted();
  char why[512];
  if (!which) note_alone();
  if (!which || mpi) return 0;
  void *at = open_module(which, why, sizeof why);
  if (!at) return error_set(err, "a launcher of MPI started this process, and it cannot join the others: %s", why);
  const mpi_module *m = dlsym(at, "weft_mpi_module");
  if (!m || m->version != MPI_MODULE_VERSION) {
    dlclose(at);
    return error_set(err, "libweft-mpi-%s.so is of another version of Weft", which);
  }
  int r = m->start(&here.rank, &here.n, &here.on_host);
  if (r) return error_set(err, "MPI did not start: error %d", r);
  mpi = m;
  if (here.n > MOST_RANKS) return error_set(err, "%d processes, %d at most", here.n, MOST_RANKS);
  measure_link();
  return 0;
}

void ranks_leave(void) {
  if (mpi) mpi->stop();
  mpi = NULL;
  here = (ranks){0, 1, 1};
  measured_link = (link_times){0};
  free(packed.at);
  packed = (struct packed){0};
}

void ranks_end_all(const char *why) {
  fprintf(stderr, "weft: error: process %d: %s\n", here.rank, why);
  mpi->abort(1);
}

// Copies process i's parts of all periods of a buffer between their places and packed ones. Returns their bytes.
static size_t move_parts(unsigned char *at, unsigned char *own, const gathered_buffer *of, int64_t count, int i,
                         bool back) {
  const gathering *g = &of->what;
  size_t part = (size_t)(g->cut[i + 1] - g->cut[i]) * of->size;
  for (int64_t k = 0; k < count; k++, own += part) {
    unsigned char *there = at + (size_t)(k * g->period + g->cut[i]) * of->size;
    memcpy(back ? there : own, back ? own : there, part);
  }
  return part * (size_t)count;
}

static size_t bytes_of_part(const gathered_buffer *of, int n, int64_t count, int i) {
  size_t all = 0;
  for (int b = 0; b < n; b++) all += (size_t)(of[b].what.cut[i + 1] - of[b].what.cut[i]) * of[b].size * (size_t)count;
  return all;
}

// All buffers, process by process.
static void move_buffers(unsigned char *const *at, const gathered_buffer *of, int n, int64_t count, const int *places,
                         bool back) {
  for (int i = 0; i < of->what.n; i++) {
    unsigned char *own = packed.at + places[i];
    if ((i == here.rank) == back) continue;
    for (int b = 0; b < n; b++) own += move_parts(at[b], own, &of[b], count, i, back);
  }
}

static void gather_periods(unsigned char *const *at, const gathered_buffer *of, int n, int64_t count) {
  const gathering *g = &of->what;
  int counts[MOST_RANKS], places[MOST_RANKS];
  size_t all = 0;
  for (int i = 0; i < g->n; i++) {
    size_t own = bytes_of_part(of, n, count, i);
    die_if(own > INT_MAX || all > INT_MAX - own, "a gathering of %zu bytes", all + own);
    counts[i] = (int)own;
    places[i] = (int)all;
    all += own;
  }
  if (count == 1 && n == 1) { check_mpi(mpi->gather(at[0] + (size_t)g->cut[0] * of->size, counts, places)); return; }
  if (packed.cap < all) packed = (struct packed){xrealloc(packed.at, all), all};
  move_buffers(at, of, n, count, places, false);
  check_mpi(mpi->gather(packed.at, counts, places));
  move_buffers(at, of, n, count, places, true);
}

void ranks_rehearse(int rank) {
  rehearsed = rank;
  vec_free(&gathered_at);
}

size_t ranks_rehearsed(const double **at) {
  size_t n = gathered_at.n;
  *at = gathered_at.at;
  gathered_at.n = 0;
  return n;
}

// Fills other processes' parts with copies of this process's: numbers that are indices stay in bounds.
static void repeat_own_part(unsigned char *at, size_t size, const gathering *g, int64_t count) {
  size_t own = (size_t)(g->cut[rehearsed + 1] - g->cut[rehearsed]) * size;
  for (int64_t k = 0; k < count; k++, at += (size_t)g->period * size)
    for (int i = 0; i < g->n; i++) {
      size_t part = (size_t)(g->cut[i + 1] - g->cut[i]) * size;
      unsigned char *to = at + (size_t)g->cut[i] * size;
      if (i == rehearsed) continue;
      if (!own) memset(to, 0, part);
      for (size_t done = 0, n; own && done < part; done += n) {
        n = part - done < own ? part - done : own;
        memcpy(to + done, at + (size_t)g->cut[rehearsed] * size, n);
      }
    }
}

// One process has all parts, and some others get them.
static void send_parts(unsigned char *at, size_t n, const gathering *g) {
  int from = 0;
  while (!g->cut[from + 1]) from++;
  for (int piece; n; at += piece, n -= (size_t)piece) {
    piece = (int)(n < INT_MAX ? n : INT_MAX);
    for (int i = 0; i < g->n; i++) {
      if (i == from || !(g->to >> i & 1)) continue;
      if (here.rank == from) check_mpi(mpi->send(at, piece, i));
      if (here.rank == i) check_mpi(mpi->receive(at, piece, from));
    }
  }
}

void ranks_gather(unsigned char *const *at, const gathered_buffer *of, int n, int64_t count) {
  unsigned char *from[MOST_GATHERED];
  size_t period = 0;
  die_if(n > MOST_GATHERED, "%d buffers are gathered at once", n);
  if (rehearsed >= 0 && rehearsed < of->what.n) {
    for (int b = 0; b < n; b++) repeat_own_part(at[b], of[b].size, &of[b].what, count);
    vec_push(&gathered_at, now_s());
    return;
  }
  if (!mpi || of->what.n != here.n) return;
  for (int b = 0; b < n; b++) period += (size_t)of[b].what.period * of[b].size;
  if (of->what.to) { send_parts(at[0], period * (size_t)count, &of->what); return; }
  int64_t most = max_i64(1, (int64_t)(MOST_PACKED / max_i64((int64_t)period, 1)));
  for (int64_t i = 0; i < count; i += most) {
    for (int b = 0; b < n; b++) from[b] = at[b] + (size_t)(i * of[b].what.period) * of[b].size;
    gather_periods(from, of, n, min_i64(most, count - i));
  }
}

void ranks_broadcast(void *at, size_t n, bool ahead) {
  for (unsigned char *p = at; n && mpi;) {
    int piece = (int)(n < INT_MAX ? n : INT_MAX);
    check_mpi(mpi->broadcast(p, piece, ahead));
    p += piece;
    n -= (size_t)piece;
  }
}
