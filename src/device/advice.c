// Finds settings of the system that slow it down, from files in /sys and /proc: see advice.h.
#include "device/advice.h"
#include <string.h>
#include "base/plain.h"
#include "device/spare.h"

// Reads the first line of a file; false if there is none.
static bool read_first_line(const char *root, const char *path, char out[256]) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s%s", root, path);
  FILE *f = fopen(whole, "re");
  bool ok = f && fgets(out, 256, f);
  if (f) fclose(f);
  if (ok) out[strcspn(out, "\n")] = 0;
  return ok;
}

void advice_huge_pages(const char *root, char out[16]) {
  char line[256];
  *out = 0;
  if (read_first_line(root, "/sys/kernel/mm/transparent_hugepage/enabled", line) && strchr(line, '['))
    snprintf(out, 16, "%.*s", (int)strcspn(strchr(line, '[') + 1, "]"), strchr(line, '[') + 1);
}

static void huge_pages(const char *root, str *out) {
  char setting[16];
  advice_huge_pages(root, setting);
  if (!strcmp(setting, "never"))
    str_add(out, "huge pages: they are off, and plain ones are slower to read; as root: echo madvise > "
                 "/sys/kernel/mm/transparent_hugepage/enabled\n");
}

static void threads_and_cores(int threads, int cores, str *out) {
  if (threads > cores)
    str_addf(out, "threads: %d share %d core%s, and wait for one another; -t %d is faster\n", threads, cores,
             cores == 1 ? "" : "s", cores);
}

static void others(const char *root, int threads, int cores, str *out) {
  const double SOME = .5;
  char line[256];
  double load;
  if (read_first_line(root, "/proc/loadavg", line) && plain_sscanf(line, "%lf", &load) == 1 && load >= SOME &&
      load + threads > cores + SOME)
    str_addf(out,
             "load: other programs wanted %.1f of %d core%s during the last minute, and figures are lower and less "
             "certain for it\n",
             load, cores, cores == 1 ? "" : "s");
}

// Two drivers choose the clock themselves and report "powersave"; for them the energy preference counts.
static void clock_speed(const char *root, str *out) {
  static const char folder[] = "/sys/devices/system/cpu/cpu0/cpufreq/";
  char path[128], driver[256] = "", governor[256] = "", preference[256] = "";
  const struct {
    const char *name;
    char *to;
  } files[] = {
    {"scaling_driver", driver}, {"scaling_governor", governor}, {"energy_performance_preference", preference}};
  for (size_t i = 0; i < COUNT(files); i++) {
    snprintf(path, sizeof path, "%s%s", folder, files[i].name);
    read_first_line(root, path, files[i].to);
  }
  bool itself = !strcmp(driver, "intel_pstate") || !strncmp(driver, "amd-pstate", 10);
  if (!strcmp(governor, "powersave") && !itself)
    str_add(out, "clock: it is held low (governor powersave); as root: cpupower frequency-set -g performance\n");
  else if (!strcmp(preference, "power") || !strcmp(preference, "balance_power"))
    str_addf(out,
             "clock: it is chosen to save power (energy_performance_preference %s); a power profile for performance is "
             "faster\n",
             preference);
}

void advice(const char *root, int threads, int cores, str *out) {
  huge_pages(root, out);
  threads_and_cores(threads, cores, out);
  others(root, threads, cores, out);
  clock_speed(root, out);
  if (spare_on_battery(root)) str_add(out, "power: the machine runs on its battery, and may be slower for it\n");
}
