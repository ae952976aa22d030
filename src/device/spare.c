// Measures spare processor time: see spare.h. The load of other programs is what /proc/stat reports for the processors
// that this process may use, minus its own time; time stolen by a virtual machine's host counts as theirs.
#define _GNU_SOURCE
#include "device/spare.h"
#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "device/team.h"

static const double LOOK_S = .5, IDLE = .7, OTHERS = .3;          // processors

// Reads the first word of a small file; "" if there is none.
static void read_word(const char *root, const char *folder, const char *name, const char *file, char out[32]) {
  char path[512];
  snprintf(path, sizeof path, "%s%s/%s/%s", root, folder, name, file);
  FILE *f = fopen(path, "re");
  if (!f || fscanf(f, "%31s", out) != 1) out[0] = 0;
  if (f) fclose(f);
}

bool spare_on_battery(const char *root) {
  static const char folder[] = "/sys/class/power_supply";
  char path[512], type[32], status[32], scope[32];
  snprintf(path, sizeof path, "%s%s", root, folder);
  DIR *d = opendir(path);
  bool discharging = false;
  for (struct dirent *e; d && (e = readdir(d));) {
    read_word(root, folder, e->d_name, "type", type);
    read_word(root, folder, e->d_name, "status", status);
    read_word(root, folder, e->d_name, "scope", scope);  // "Device": a peripheral's battery, such as a mouse's
    discharging |= !strcmp(type, "Battery") && !strcmp(status, "Discharging") && strcmp(scope, "Device");
  }
  if (d) closedir(d);
  return discharging;
}

// Seconds that the processors of this process's affinity mask were busy since boot; -1: unknown.
static double busy_s(const char *root) {
  char path[512], line[512];
  cpu_set_t mask;
  double ticks = 0;
  int cpu, seen = 0;
  bool all = sched_getaffinity(0, sizeof mask, &mask) != 0;
  snprintf(path, sizeof path, "%s/proc/stat", root);
  FILE *f = fopen(path, "re");
  while (f && fgets(line, sizeof line, f)) {
    unsigned long long user, nice, system, idle, wait, irq, soft, stolen;
    int n = sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &user, &nice, &system, &idle, &wait,
                   &irq, &soft, &stolen);
    if (n != 9) continue;
    if (!all && (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &mask))) continue;
    ticks += (double)(user + nice + system + irq + soft + stolen);
    seen++;
  }
  if (f) fclose(f);
  return seen ? ticks / (double)sysconf(_SC_CLK_TCK) : -1;
}

enum spare_state spare_judge(int cores, int threads, double all, double own) {
  double others = all > own ? all - own : 0, idle = cores - others - threads;
  if (idle >= IDLE) return SPARE_FREE;
  return others > OTHERS ? SPARE_NONE : SPARE_SHARED;
}

void spare_open(spare *s, const char *root, int threads) {
  *s = (spare){.root = root, .cores = team_default_threads(), .threads = threads, .at = now_s(), .busy = busy_s(root),
      .own = processor_s()};
}

enum spare_state spare_look(spare *s) {
  double now = now_s(), passed = now - s->at;
  if (passed < LOOK_S) return s->state;
  double busy = busy_s(s->root), own = processor_s();
  s->state = busy < 0 || s->busy < 0 || spare_on_battery(s->root) ? SPARE_NONE
      : spare_judge(s->cores, s->threads, (busy - s->busy) / passed, (own - s->own) / passed);
  s->at = now;
  s->busy = busy;
  s->own = own;
  return s->state;
}
