// Facts about this processor: see machine.h. engine/env_report.c makes the measurements, since it has products to
// measure with.
#include "device/machine.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/env.h"
#include "codegen/opt.h"
#include "device/kernel_set.h"

enum { COMMON_CACHE = 512 << 10 };
static const char *const hints[PREFETCH_HINTS] = {"t0", "t1", "t2", "nta"};

int64_t machine_cache_bytes(void) {
  if (kernel_set_is_on()) return COMMON_CACHE;
#ifdef _SC_LEVEL2_CACHE_SIZE
  long n = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (n > 0) return n;
#endif
  return COMMON_CACHE;
}

int64_t machine_tile_bytes(void) {
  struct rlimit stack;
  int64_t fit = machine_cache_bytes() / 2;
  if (kernel_set_is_on() || getrlimit(RLIMIT_STACK, &stack) || stack.rlim_cur == RLIM_INFINITY) return fit;
  return min_i64(fit, (int64_t)(stack.rlim_cur / 8));
}

void machine_print_prefetch(str *out, prefetch p) {
  if (p.kib) str_addf(out, "%d,%s", p.kib, hints[p.hint]);
  else str_add(out, "0");
}

bool machine_may_prefetch(prefetch p) {
  return p.kib >= 0 && p.kib <= MOST_PREFETCH_KIB && p.hint >= 0 && p.hint < PREFETCH_HINTS;
}

bool machine_parse_prefetch(const char *text, prefetch *out) {
  char *end;
  long kib = strtol(text, &end, 10);
  int hint = PREFETCH_T0;
  if (end == text || kib < 0 || kib > MOST_PREFETCH_KIB) return false;
  if (*end == ',') {
    for (hint = 0; hint < PREFETCH_HINTS && strcmp(end + 1, hints[hint]); hint++) {}
    if (hint == PREFETCH_HINTS) return false;
  } else if (*end) return false;
  *out = (prefetch){(int)kib, kib ? hint : 0};
  return true;
}

int machine_prefetch_from_env(prefetch *out, bool *set, error *err) {
  const char *text = env_str(ENV_PREFETCH);
  *set = *text;
  if (!*text || machine_parse_prefetch(text, out)) return 0;
  return error_set(err, "PREFETCH: '%s' is not KiB[,HINT], with 0 to %d KiB and the hint t0, t1, t2 or nta", text,
                   MOST_PREFETCH_KIB);
}
