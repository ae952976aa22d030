// tuning: the result of a search for a kernel, stored in the kernel cache and used by later runs.
//
// A tuning belongs to a kernel shape: its key is the kernel's canonical IR with everything else that determines code
// (processor features, the heuristic's settings, the version of the compiler's sources). Pointers, roles and numbers of
// threads are not part of it.
#ifndef WEFT_DEVICE_TUNING_H
#define WEFT_DEVICE_TUNING_H
#include "codegen/search.h"
#include "device/device.h"

enum { MOST_LISTS = 160 };

typedef struct tuning {
  opt opts[MOST_OPTS];
  int n;
  bool better;               // false: a search found nothing better than the heuristic's list and need not be repeated
  double before_us, after_us;// of one launch with cold weights, at the time of the search
  double cut_s;              // seconds after which the search was cut off; 0: it was completed
  // of a search in the background (online_tuner.c): for each list to try, '1' if it has been tried
  char done[MOST_LISTS + 1];
  char name[96], role[64];   // for tables
  char compiler[32];         // "22.1.8": after an update the search is worth repeating; until then its result is used
} tuning;

// Makes again the program that plan_build makes of a kernel; r records it. *t, if *searched: the result of its search.
// (plan_kernels.c)
struct recorder;
program *plan_program(const device *d, graph *g, uop *ast, struct recorder *r, tuning *t, bool *searched);

enum { TUNING_TEXT = 4096 };
static const double TUNING_MOST_US = 1e12, TUNING_MOST_S = 1e9;      // times are less
bool tuning_get(const device *d, uop *ast, tuning *out);              // false: absent or damaged
// The tuning of a weight's layout. `weight` is "weight Q6_K 2048 8192 1" (format and sizes); its list is LAYOUT(0, enum
// layout_kind).
bool tuning_get_layout(const device *d, const char *weight, tuning *out);
void tuning_put_layout(device *d, const char *weight, const tuning *t);
void tuning_put(device *d, uop *ast, const tuning *t);                // stored at the next flush
// version of the sources that make kernels: entries of other versions are not used
const char *tuning_version(void);
// Prints a tuning as text, one "word value" per line, and parses it. False: invalid.
void tuning_print(str *out, const tuning *t);
bool tuning_parse(const char *text, size_t n, tuning *out);

// The parts of a key, for tables, export and import: the machine (a line) and the kernel's IR. False: not a tuning's
// key.
bool tuning_key_parts(const void *key, size_t n, const char **machine, size_t *machine_n, const char **ir,
                      size_t *ir_n);
// Stores a tuning from elsewhere, if its IR is a kernel's and it was made for this machine and version. Whether its
// list fits the kernel is checked when a model has such a kernel (plan_kernels.c), as for any tuning. Returns -1 and
// the reason.
int tuning_import(device *d, const char *machine, const char *ir, const tuning *t, bool check_only, error *err);
#endif
