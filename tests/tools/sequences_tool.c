// Many sequences over one model at random (tests/engine/stress.h), for test_sequences.py:
//
//   sequences_tool MODEL STEPS SEED [SECONDS [POSITIONS [SLACK [LIVE]]]]
//
// A line with what happened; exit status 1, and the line says what, where logits differed.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../engine/stress.h"

int main(int argc, char **argv) {
  if (argc < 4 || argc > 8) {
    fprintf(stderr, "usage: sequences_tool MODEL STEPS SEED [SECONDS [POSITIONS [SLACK [LIVE]]]]\n");
    return 2;
  }
  static stress s;
  s = (stress){.path = argv[1], .seed = strtoull(argv[3], NULL, 10)};
  s.positions = argc > 5 ? atoi(argv[5]) : 600;
  s.slack = argc > 6 ? atoi(argv[6]) : 0;
  s.live = argc > 7 ? atoi(argv[7]) : 1 + (int)stress_below(&s, STRESS_LIVE);
  s.threads = 1 + (int)stress_below(&s, 3);
  s.chunk = stress_below(&s, 2) ? 64 : 16 + (int)stress_below(&s, 60);
  int wrong = stress_run(&s, atoi(argv[2]), argc > 4 ? strtod(argv[4], NULL) : 1e9);
  printf(
    "%d steps of up to %d sequences (%d threads, chunk %d, slack %d), %d logits compared (hash %016llx): %d ended "
    "early, %d without memory, %d copies, %d cuts (%d evaluated again), %d saved, %d loaded, %d as "
    "pages, %d found, %d alone, %d marks%s%s\n",
    s.steps, s.live, s.threads, s.chunk, s.slack, s.compared, (unsigned long long)s.hash, s.ended, s.full, s.copied,
    s.cut, s.again, s.saved, s.loaded, s.kept, s.found, s.alone, s.marked, wrong ? ": " : "", s.wrong);
  return wrong ? 1 : 0;
}
