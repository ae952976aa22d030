// Reading control groups: see cgroup.h.
//
// /proc/self/cgroup gives the group of the process, one line per hierarchy ("0::/path" is version 2, "4:memory:/path"
// is version 1). /proc/self/mountinfo gives the mount point of each hierarchy and the part that is mounted ("root"). In
// a container the path often does not exist below the mount point; then the files at the mount point hold the
// container's limits.
#define _GNU_SOURCE
#include "device/cgroup.h"
#include "base/plain.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };   // these files are small; a larger one is not trusted

static bool read_file(const char *path, str *out) {
  FILE *f = fopen(path, "re");
  if (!f) return false;
  char part[4096];
  size_t n;
  out->n = 0;
  while (out->n < FILE_MAX && (n = fread(part, 1, sizeof part, f)) > 0) str_addn(out, part, n);
  fclose(f);
  return out->n > 0;
}

static bool read_in(const char *folder, const char *name, str *out) {
  str path = {0};
  str_addf(&path, "%s/%s", folder, name);
  bool ok = read_file(path.at, out);
  str_free(&path);
  return ok;
}

// Is `word` in a comma-separated list?
static bool lists(const char *list, size_t n, const char *word) {
  size_t len = strlen(word);
  for (size_t i = 0; i + len <= n; i++)
    if ((!i || list[i - 1] == ',') && !memcmp(list + i, word, len) && (i + len == n || list[i + len] == ','))
      return true;
  return false;
}

// The next line of a text, its end cut off; NULL at the end.
static char *cut_line(char **at) {
  char *line = *at, *end;
  if (!line || !*line) return NULL;
  end = strchr(line, '\n');
  *at = end ? end + 1 : line + strlen(line);
  if (end) *end = 0;
  return line;
}

// This process's group in a controller's hierarchy (version 2 if controller is NULL): its path within the hierarchy.
static bool group_path(const char *root, const char *controller, str *out) {
  str text = {0};
  bool found = false;
  char *at, *line;
  if (read_in(root, "proc/self/cgroup", &text))
    for (at = text.at; !found && (line = cut_line(&at));) {
      char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
      if (!path) continue;
      names++;
      found = controller ? lists(names, (size_t)(path - names), controller) : names == path && !strncmp(line, "0:", 2);
      if (found) str_add(out, path + 1);
    }
  str_free(&text);
  return found;
}

// The mount point of that hierarchy, and the group that the mount shows as its root.
static bool mount_of(const char *root, const char *controller, str *point, str *shown) {
  str text = {0};
  bool found = false;
  char *at, *line;
  if (read_in(root, "proc/self/mountinfo", &text))
    for (at = text.at; !found && (line = cut_line(&at));) {
      char *field[5] = {0}, *rest = strstr(line, " - "), *save, *type, *options;
      if (!rest) continue;
      *rest = 0;
      int n = 0;
      for (char *w = strtok_r(line, " ", &save); w && n < 5; w = strtok_r(NULL, " ", &save)) field[n++] = w;
      type = strtok_r(rest + 3, " ", &save);
      strtok_r(NULL, " ", &save);
      options = strtok_r(NULL, " ", &save);
      if (n < 5 || !type) continue;
      found = controller ? !strcmp(type, "cgroup") && options && lists(options, strlen(options), controller)
                         : !strcmp(type, "cgroup2");
      if (found) { str_add(shown, field[3]); str_addf(point, "%s%s", root, field[4]); }
    }
  str_free(&text);
  return found;
}

// Calls visit(folder) for the process's group and each group above it, up to the mount point.
static void walk_groups(const char *root, const char *controller, void (*visit)(const char *folder, void *ctx),
                        void *ctx) {
  str group = {0}, point = {0}, shown = {0};
  if (group_path(root, controller, &group) && mount_of(root, controller, &point, &shown)) {
    const char *below = group.at;
    size_t len = strcmp(shown.at, "/") ? shown.n : 0;
    if (len && (strncmp(below, shown.at, len) || (below[len] && below[len] != '/'))) below = "";
    else below += len;
    if (strstr(below, "/..")) below = "";   // a group outside this namespace
    size_t top = point.n;
    if (strcmp(below, "/")) str_add(&point, below);
    for (;;) {
      visit(point.at, ctx);
      if (point.n <= top) break;
      while (point.n > top && point.at[point.n - 1] != '/') point.n--;
      while (point.n > top && point.at[point.n - 1] == '/') point.n--;
      point.at[point.n] = 0;
    }
  }
  str_free(&group);
  str_free(&point);
  str_free(&shown);
}

// ---------------------------------------------------------------------------------------------------------- processors

static void tighten(double *least, double quota, double period) {
  if (quota > 0 && period > 0 && (!*least || quota / period < *least)) *least = quota / period;
}

static void visit_cpu_v2(const char *folder, void *ctx) {
  str text = {0};
  double quota, period;
  // "max 100000" does not scan
  if (read_in(folder, "cpu.max", &text) && plain_sscanf(text.at, "%lf %lf", &quota, &period) == 2)
    tighten(ctx, quota, period);
  str_free(&text);
}

static void visit_cpu_v1(const char *folder, void *ctx) {
  str quota = {0}, period = {0};
  if (read_in(folder, "cpu.cfs_quota_us", &quota) && read_in(folder, "cpu.cfs_period_us", &period))
    tighten(ctx, plain_strtod(quota.at, NULL), plain_strtod(period.at, NULL));
  str_free(&quota);
  str_free(&period);
}

double cgroup_cpus(const char *root) {
  double least = 0;
  walk_groups(root, NULL, visit_cpu_v2, &least);
  walk_groups(root, "cpu", visit_cpu_v1, &least);
  return least;
}

// -------------------------------------------------------------------------------------------------------------- memory

struct memory { uint64_t limit, available; };

static bool read_number(const char *folder, const char *name, uint64_t *out) {
  str text = {0};
  bool ok = false;
  if (read_in(folder, name, &text) && text.at[0] >= '0' && text.at[0] <= '9') {   // "max" is no limit
    *out = strtoull(text.at, NULL, 10);
    ok = true;
  }
  str_free(&text);
  return ok;
}

// The sum of two lines "name number" of memory.stat.
static uint64_t page_cache(const char *folder, const char *a, const char *b) {
  str text = {0};
  uint64_t sum = 0;
  char *at, *line;
  if (read_in(folder, "memory.stat", &text))
    for (at = text.at; (line = cut_line(&at));) {
      char *value = strchr(line, ' ');
      if (!value) continue;
      *value++ = 0;
      if (!strcmp(line, a) || !strcmp(line, b)) sum += strtoull(value, NULL, 10);
    }
  str_free(&text);
  return sum;
}

static void note_limits(struct memory *m, uint64_t limit, uint64_t usage, uint64_t cache) {
  if (limit >= (uint64_t)1 << 62) return;       // version 1 writes "unlimited" as a huge number
  uint64_t used = usage > cache ? usage - cache : 0, available = limit > used ? limit - used : 0;
  if (limit < m->limit) m->limit = limit;
  if (available < m->available) m->available = available;
}

static void visit_memory_v2(const char *folder, void *ctx) {
  uint64_t limit, usage;
  if (read_number(folder, "memory.max", &limit) && read_number(folder, "memory.current", &usage))
    note_limits(ctx, limit, usage, page_cache(folder, "inactive_file", "active_file"));
}

static void visit_memory_v1(const char *folder, void *ctx) {
  uint64_t limit, usage;
  if (read_number(folder, "memory.limit_in_bytes", &limit) && read_number(folder, "memory.usage_in_bytes", &usage))
    note_limits(ctx, limit, usage, page_cache(folder, "total_inactive_file", "total_active_file"));
}

static struct memory read_memory(const char *root) {
  struct memory m = {UINT64_MAX, UINT64_MAX};
  walk_groups(root, NULL, visit_memory_v2, &m);
  walk_groups(root, "memory", visit_memory_v1, &m);
  return m;
}

uint64_t cgroup_memory_limit(const char *root) { return read_memory(root).limit; }
uint64_t cgroup_memory_available(const char *root) { return read_memory(root).available; }
