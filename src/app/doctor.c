// weft doctor: what is missing or slow on this machine, and what to do about it.
//
// Input: weft_env_report, weft_env_advice, the environment variables, and the model folder. Output: findings on eleven
// subjects, each "ok", "note", "slow" or "fix". The exit status is 1 if one is "fix". Except for the server's library,
// everything checked here is also in `weft env`: a new fact belongs in engine/env_report.c, a new cause of slowness in
// device/advice.c.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/json.h"
#include "app/store.h"
#include "base/env.h"
#include "serve/serve.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command command = {
  "doctor",
  "Checks what is missing or slow on this machine, and says what to do.",
  "[--json]",
  "  ok     nothing to do\n"
  "  note   good to know\n"
  "  slow   models run, but slower than they could\n"
  "  fix    Weft does not work as it should until this is done\n"
  "The exit status is 1 if something has to be fixed.\n",
  COMMAND_BIT(doctor),
  0};

enum state { IS_OK, IS_NOTE, IS_SLOW, IS_TO_FIX, N_STATES };
static const char *const state_names[] = {"ok", "note", "slow", "fix"};

struct finding { const char *check; enum state state; char *text; };
struct findings { struct finding *at; size_t n, cap; };

static void note_finding(struct findings *l, const char *check, enum state state, const char *fmt, ...)
  PRINTF_LIKE(4, 5);
static void note_finding(struct findings *l, const char *check, enum state state, const char *fmt, ...) {
  va_list ap;
  str s = {0};
  va_start(ap, fmt);
  str_vadd_plain(&s, fmt, ap);
  va_end(ap);
  vec_push(l, ((struct finding){check, state, s.at}));
}

// ---- the checks -----------------------------------------------------------------------------------------------------

// Reports what weft_env_advice says about a subject.
static void check_advice(struct findings *l, const char *check, const char *subject, const char *advice) {
  size_t n = strlen(subject);
  for (const char *at = advice; *at; at += strcspn(at, "\n"), at += *at == '\n')
    if (!strncmp(at, subject, n) && !strncmp(at + n, ": ", 2))
      note_finding(l, check, IS_SLOW, "%.*s", (int)strcspn(at + n + 2, "\n"), at + n + 2);
}

static void check_cpu(struct findings *l, const weft_env *m, const char *advice) {
  if (!m->vector_bits) {
    note_finding(l, "cpu", IS_TO_FIX, "%s", m->features);
    return;
  }
  note_finding(l, "cpu", IS_OK, "%s: %.*s, vectors of %d bits", m->cpu[0] ? m->cpu : "unknown",
               (int)strcspn(m->features, " "), m->features, m->vector_bits);
  if (strcmp(env_str(ENV_WEFT_CPU), env_default(ENV_WEFT_CPU)))
    note_finding(l, "cpu", IS_SLOW, "WEFT_CPU=%s may leave out instructions that this processor has; unset it",
         env_str(ENV_WEFT_CPU));
  check_advice(l, "cpu", "clock", advice);
  check_advice(l, "cpu", "power", advice);
}

static void check_threads(struct findings *l, const weft_env *m, const char *advice) {
  note_finding(l, "threads", IS_OK, "%d, on %d core%s", m->threads, m->cores, m->cores == 1 ? "" : "s");
  if (m->cpu_limit > 0 && m->cpu_limit < m->cores)
    note_finding(l, "threads", IS_SLOW,
         "the control group allows %g of %d cores; raise its limit (docker run --cpus, or CPUQuota= of systemd)",
         m->cpu_limit, m->cores);
  check_advice(l, "threads", "threads", advice);
  check_advice(l, "threads", "load", advice);
}

static void check_memory(struct findings *l, const weft_env *m) {
  const uint64_t little = (uint64_t)1 << 30;
  if (!m->memory_total) {
    note_finding(l, "memory", IS_NOTE, "the system does not say how much there is");
    return;
  }
  note_finding(l, "memory", IS_OK, "%.1f GiB, %.1f GiB free%s", (double)m->memory_total / 0x1p30,
       (double)m->memory_available / 0x1p30,
       m->memory_limit && m->memory_limit <= m->memory_total ? " (the limit of the control group)" : "");
  if (m->memory_available < little)
    note_finding(l, "memory", IS_SLOW,
                 "less than 1 GiB is free; end other programs, or use a small model and context (-c)");
}

static void check_huge_pages(struct findings *l, const weft_env *m, const char *advice) {
  if (!m->huge_pages[0]) note_finding(l, "huge pages", IS_NOTE, "the system does not say whether it gives them");
  else if (strcmp(m->huge_pages, "never")) note_finding(l, "huge pages", IS_OK, "%s", m->huge_pages);
  check_advice(l, "huge pages", "huge pages", advice);
}

static void check_server(struct findings *l) {
  error err = {0};
  const char *version;
  if (serve_load(&version, &err)) note_finding(l, "server", IS_TO_FIX, "%s", err.text);
  else note_finding(l, "server", IS_OK, "libmicrohttpd %s", version);
}

static void check_cache(struct findings *l, const weft_env *m) {
  if (m->cache[0]) note_finding(l, "cache", access(m->cache, W_OK) ? IS_SLOW : IS_OK, "%s%s", m->cache,
                        access(m->cache, W_OK) ? " cannot be written: kernels that are new are compiled at each start"
                                               : "");
  else if (!strcmp(env_str(ENV_WEFT_CACHE), "off"))
    note_finding(l, "cache", IS_SLOW, "off: each start compiles its kernels again; unset WEFT_CACHE");
  else
    note_finding(l, "cache", IS_TO_FIX,
                 "it cannot be used, as the warning says: each start compiles its kernels again; give "
                 "the folder to this user, or name another one with WEFT_CACHE");
}

// The model folder does not exist yet: checks that its nearest existing parent is writable.
static void check_models_to_be(struct findings *l, const char *folder) {
  char *above = xstrdup(folder), *end;
  do {
    end = strrchr(above, '/');
    if (end) end[end == above] = 0;
    else snprintf(above, 2, ".");
  } while (access(above, F_OK) && end && end != above);
  if (access(above, W_OK | X_OK))
    note_finding(l, "models", IS_TO_FIX,
                 "none yet; %s cannot be made, as %s cannot be written; name another folder with LLAMA_CACHE", folder,
                 above);
  else note_finding(l, "models", IS_OK, "none yet; 'weft pull NAME' makes %s", folder);
  free(above);
}

static void check_models(struct findings *l) {
  str folder = {0};
  error err = {0};
  stored_list models = {0};
  if (store_folder(&folder, &err)) {
    note_finding(l, "models", IS_TO_FIX, "%s; set one of them", err.text);
    return;
  }
  store_list(&models);
  uint64_t bytes = 0;
  size_t partial = 0;
  for (size_t i = 0; i < models.n; i++) {
    bytes += models.at[i].bytes;
    partial += models.at[i].partial;
  }
  if (access(folder.at, F_OK)) check_models_to_be(l, folder.at);
  else {
    note_finding(l, "models", IS_OK, "%zu in %s, %.1f GB", models.n, folder.at, (double)bytes / 1e9);
    if (access(folder.at, W_OK | X_OK))
      note_finding(l, "models", IS_NOTE,
                   "this folder cannot be written, so nothing can be fetched; LLAMA_CACHE names another one");
  }
  if (partial)
    note_finding(l, "models", IS_NOTE, "%zu download%s not complete: 'weft pull NAME' resumes %s, 'weft list' shows %s",
                 partial, partial == 1 ? " is" : "s are", partial == 1 ? "it" : "them", partial == 1 ? "it" : "them");
  store_free(&models);
  str_free(&folder);
}

// For device NAME or NAME:WHICH, returns whether weft_env.devices has "NAME: something" instead of "NAME: none: why";
// *what: the rest of that line.
static bool device_line(const weft_env *m, const char *name, const char **what) {
  size_t n = strcspn(name, ":");
  for (const char *at = m->devices; *at; at += strcspn(at, "\n"), at += *at == '\n')
    if (!strncmp(at, name, n) && !strncmp(at + n, ": ", 2)) {
      *what = at + n + 2;
      return strncmp(*what, "none: ", 6);
    }
  *what = "";
  return false;
}

static void check_devices(struct findings *l, const weft_env *m) {
  static const char *const others[] = {"CUDA", "NV", "METAL", "VK", "CL"};
  const char *dev = env_str(ENV_DEV), *what;
  bool there = device_line(m, dev, &what);
  if (!there && *what) what += strlen("none: ");
  int n = (int)strcspn(what, "\n");
  if (there) note_finding(l, "devices", IS_OK, "%s is used: %.*s", dev, n, what);
  else if (!strncmp(what, "DEV=", 4)) note_finding(l, "devices", IS_TO_FIX, "%.*s", n, what);
  else note_finding(l, "devices", IS_TO_FIX, "DEV=%s: %.*s", dev, *what ? n : 17, *what ? what : "no such device");
  for (size_t i = 0; i < COUNT(others); i++)
    if (!env_device_is(others[i]) && device_line(m, others[i], &what))
      note_finding(l, "devices", IS_NOTE, "DEV=%s uses %.*s", others[i], (int)strcspn(what, "\n"), what);
}

static void check_sandbox(struct findings *l) {
  bool on = !strncmp(sandbox_state(), "on", 2);
  if (on && confine_knows_files()) note_finding(l, "sandbox", IS_OK, "on: system calls and files from lists");
  else if (on)
    note_finding(l, "sandbox", IS_NOTE,
                 "on for system calls; files are not limited, since Landlock is not available (Linux 5.13 or newer, "
                 "switched on, not blocked by a container)");
  else note_finding(l, "sandbox", IS_NOTE, "%s", sandbox_state());
}

// Variables that slow everything down, and are sometimes left set after debugging the compiler.
static void check_variables(struct findings *l) {
  static const enum env_var slow[] = {ENV_DEBUG, ENV_SPEC, ENV_NOOPT};
  error err = {0};
  size_t before = l->n;
  if (env_check(&err)) note_finding(l, "variables", IS_TO_FIX, "%s", err.text);
  for (size_t i = 0; i < COUNT(slow); i++)
    if (strcmp(env_str(slow[i]), env_default(slow[i])))
      note_finding(l, "variables", IS_SLOW, "%s=%s makes runs slower; unset it", env_name(slow[i]), env_str(slow[i]));
  if (!strcmp(env_str(ENV_DEV), "REF") || !strcmp(env_str(ENV_DEV), "NULL"))
    note_finding(l, "variables", IS_SLOW, "DEV=%s is for looking at the compiler; unset it", env_str(ENV_DEV));
  if (l->n == before) note_finding(l, "variables", IS_OK, "none that slows runs down ('weft env' lists them)");
}

// ---- output ---------------------------------------------------------------------------------------------------------

static void show_findings(struct out *o, const struct findings *l, const int *count) {
  for (size_t i = 0; i < l->n; i++) {
    bool again = i && !strcmp(l->at[i].check, l->at[i - 1].check);
    out_addf(o, "%-5s %-11s ", state_names[l->at[i].state], again ? "" : l->at[i].check);
    out_wrapped(o, l->at[i].text, 18, 100);
  }
  if (!count[IS_TO_FIX] && !count[IS_SLOW]) out_addf(o, "Nothing has to be done.\n");
  else out_addf(o, "%d to fix, %d slow.\n", count[IS_TO_FIX], count[IS_SLOW]);
}

static void show_findings_json(struct out *o, const struct findings *l, const int *count) {
  json_t *rows = json_array();
  for (size_t i = 0; i < l->n; i++)
    json_array_append_new(rows, json_pack("{ss ss so}", "check", l->at[i].check, "state", state_names[l->at[i].state],
                                          "text", json_text(l->at[i].text, strlen(l->at[i].text))));
  out_json(o, json_pack("{ss si si so}", "version", program_version(), "fix", count[IS_TO_FIX], "slow", count[IS_SLOW],
                        "checks", rows), JSON_INDENT(2));
}

static int check_all(struct settings *s) {
  weft_env m;
  char *advice = weft_env_advice(weft_default_threads());        // before this program itself loads the processor
  weft_env_report(&m);
  struct findings l = {0};
  check_cpu(&l, &m, advice);
  check_threads(&l, &m, advice);
  check_memory(&l, &m);
  check_huge_pages(&l, &m, advice);
  note_finding(&l, "LLVM", m.has_llvm ? IS_OK : IS_TO_FIX, "%s", m.llvm);
  check_server(&l);
  check_cache(&l, &m);
  check_models(&l);
  check_devices(&l, &m);
  check_sandbox(&l);
  check_variables(&l);
  keep_to_files(s, NULL);        // only now: drivers open files that are not known beforehand
  weft_free(advice);
  int count[N_STATES] = {0};
  for (size_t i = 0; i < l.n; i++) count[l.at[i].state]++;
  struct out o = {0};
  (s->json ? show_findings_json : show_findings)(&o, &l, count);
  for (size_t i = 0; i < l.n; i++) free(l.at[i].text);
  vec_free(&l);
  return out_end(&o, count[IS_TO_FIX] ? EXIT_FAILED : EXIT_OK);
}

int doctor_command(int argc, char **argv) { return settings_run(&command, argc, argv, check_all); }
