// Processor features that Weft reads from Linux's auxiliary vector, from macOS's own interface.
#ifndef WEFT_MACOS_AUXV_H
#define WEFT_MACOS_AUXV_H
#include <stddef.h>
#include <stdint.h>
#include <sys/sysctl.h>
enum { AT_HWCAP = 16, AT_HWCAP2 = 26 };
static inline unsigned long getauxval(unsigned long which) {
  static const struct { const char *name; unsigned long word; int bit; } all[] = {
    {"hw.optional.arm.FEAT_FP16", AT_HWCAP, 9},
    {"hw.optional.arm.FEAT_DotProd", AT_HWCAP, 20},
    {"hw.optional.arm.FEAT_I8MM", AT_HWCAP2, 13},
    {"hw.optional.arm.FEAT_BF16", AT_HWCAP2, 14},
  };
  unsigned long bits = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    int has = 0;
    size_t n = sizeof has;
    if (all[i].word == which && !sysctlbyname(all[i].name, &has, &n, NULL, 0) && has) bits |= 1ul << all[i].bit;
  }
  return bits;
}
#endif
