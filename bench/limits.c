// limits: what memory allows on this machine, now. compare.py compiles and runs it between its rounds.
//   cc -O3 -march=native -pthread limits.c -o limits && ./limits [MiB] [threads] [seconds]
// Prints {"plain_gb_s": x, "huge_gb_s": y}: 10^9 bytes per second that all threads together read, each summing up its part of one area
// again and again, with plain pages and with huge ones. The best pass counts. The sums are plain C; the compiler makes vectors of them.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_THREADS = 256, HUGE = 2 << 20 };

static uint64_t *area;
static size_t words;                    // of the area
static int n_threads, stop;             // stop is written by thread 0 between two barriers
static double seconds, best_s;
static pthread_barrier_t barrier;
static uint64_t sums[MAX_THREADS * 8];  // a cache line each: what is not used would not be computed

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t sum(const uint64_t *p, size_t n) {
  uint64_t s = 0;
  for (size_t i = 0; i < n; i++) s += p[i];
  return s;
}

static void *work(void *arg) {
  size_t t = (size_t)(uintptr_t)arg, from = words / (size_t)n_threads * t, n = words / (size_t)n_threads;
  for (size_t i = 0; i < n; i++) area[from + i] = i;            // fresh memory is one page of zeros until it is written to
  double began = 0, start = 0;
  for (;;) {
    pthread_barrier_wait(&barrier);
    if (t == 0) {
      double time = now();
      if (start > 0 && time - start < best_s) best_s = time - start;
      if (began <= 0) began = time;
      stop = time - began > seconds && start > 0;
    }
    pthread_barrier_wait(&barrier);
    if (stop) return NULL;
    if (t == 0) start = now();
    sums[t * 8] += sum(area + from, n);
  }
}

static double measure(int advice) {
  size_t bytes = words * sizeof *area;
  unsigned char *m = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) { perror("limits: mmap"); exit(1); }
  area = (uint64_t *)(((uintptr_t)m + HUGE - 1) / HUGE * HUGE);
  madvise(area, bytes, advice);
  best_s = 1e30;
  pthread_t threads[MAX_THREADS];
  pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
  for (int t = 1; t < n_threads; t++)
    if (pthread_create(&threads[t], NULL, work, (void *)(uintptr_t)t)) { fprintf(stderr, "limits: no more threads\n"); exit(1); }
  work(NULL);
  for (int t = 1; t < n_threads; t++) pthread_join(threads[t], NULL);
  pthread_barrier_destroy(&barrier);
  munmap(m, bytes + HUGE);
  return (double)bytes / best_s / 1e9;
}

int main(int argc, char **argv) {
  long mib = argc > 1 ? atol(argv[1]) : 256, threads = argc > 2 ? atol(argv[2]) : 2;
  seconds = argc > 3 ? atof(argv[3]) : 0.3;
  if (mib < 1 || mib > 1 << 20 || threads < 1 || threads > MAX_THREADS || !(seconds >= 0 && seconds <= 60)) {
    fprintf(stderr, "usage: limits [MiB] [threads 1..%d] [seconds 0..60]\n", MAX_THREADS);
    return 2;
  }
  n_threads = (int)threads;
  words = (size_t)mib * (1 << 20) / sizeof *area / (size_t)threads * (size_t)threads;
  double plain = measure(MADV_NOHUGEPAGE), huge = measure(MADV_HUGEPAGE);
  printf("{\"plain_gb_s\": %.3f, \"huge_gb_s\": %.3f}\n", plain, huge);
  return 0;
}
