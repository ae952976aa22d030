// tuning: what a search found for a kernel, as it is kept in the kernel cache and used by every later run.
//
// A tuning belongs to a kernel shape: its key is the kernel's canonical IR with everything else that decides about code
// (processor features, the heuristic's knobs, and the version of the compiler's sources). No pointer, role or number of
// threads is part of it.
#ifndef WEFT_DEVICE_TUNING_H
#define WEFT_DEVICE_TUNING_H
#include "codegen/search.h"
#include "device/device.h"

enum { MOST_LISTS = 160 };

typedef struct tuning {
  opt opts[MOST_OPTS];
  int n;
  bool better;               // false: a search found nothing better than the heuristic's list, and need not be repeated
  double before_us, after_us;// of one launch over cold weights, when it was searched
  double cut_s;              // the search was cut short after so many seconds; 0: it came to its end
  // of a search in the background (online_tuner.c): for each list to be tried instead, '1' if it has been
  char done[MOST_LISTS + 1];
  char name[96], role[64];   // for tables
  char compiler[32];         // "22.1.8": with another one the search is worth repeating; until then its result is used
} tuning;

// The program that plan_build makes of a kernel, made once more; r hears of it. *t, if *searched: how a search for it
// ended. (plan_kernels.c)
struct recorder;
program *plan_program(const device *d, graph *g, uop *ast, struct recorder *r, tuning *t, bool *searched);

enum { TUNING_TEXT = 4096 };
bool tuning_get(const device *d, uop *ast, tuning *out);              // false: none, or a damaged one
// The same for the layout of a weight, which is "weight Q6_K 2048 8192 1" (format and sizes): the list is LAYOUT(0,
// enum layout_kind).
bool tuning_get_layout(const device *d, const char *weight, tuning *out);
void tuning_put_layout(device *d, const char *weight, const tuning *t);
void tuning_put(device *d, uop *ast, const tuning *t);                // with the next flush
// of the sources that make kernels: entries of another version are not used
const char *tuning_version(void);
// As text, one "word value" a line, and back. False: this is no tuning.
void tuning_print(str *out, const tuning *t);
bool tuning_parse(const char *text, size_t n, tuning *out);

// What a key says, for tables, export and import: the machine part (a line) and the kernel's IR. False: no such key.
bool tuning_key_parts(const void *key, size_t n, const char **machine, size_t *machine_n, const char **ir,
                      size_t *ir_n);
// Puts a tuning that comes from elsewhere, if its IR is that of a kernel and it was made for this machine and version.
// Whether its list suits the kernel is asked when a model has such a kernel (plan_kernels.c), as for any tuning. -1 and
// why not.
int tuning_import(device *d, const char *machine, const char *ir, const tuning *t, bool check_only, error *err);
#endif
