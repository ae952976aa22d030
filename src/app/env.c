// weft env: prints the environment variables that Weft reads, and what it detects on this machine.
#include "app/app.h"
#include "base/env.h"
#include "app/json.h"
#include <string.h>

static const struct command command = {
  "env",
  "Shows the environment variables that Weft reads, and what it sees of this machine.",
  "[--json]",
  NULL,
  COMMAND_BIT(env),
  0};

// A secret is not printed.
static const char *shown_value(enum env_var v) { return v == ENV_HF_TOKEN && *env_str(v) ? "(set)" : env_str(v); }

static void show_variables(struct out *o) {
  int name = 0, value = 0, def = 0;
  for (int v = 0; v < ENV_COUNT; v++) {
    int n = (int)strlen(env_name((enum env_var)v)), m = (int)strlen(shown_value((enum env_var)v)),
        k = (int)strlen(env_default((enum env_var)v));
    if (n > name) name = n;
    if (m > value) value = m;
    if (k > def) def = k;
  }
  if (value < 5) value = 5;
  if (def < 7) def = 7;
  out_addf(o, "%-*s  %-*s  %-*s  %s\n", name, "name", value, "value", def, "default", "meaning");
  for (int i = 0; i < ENV_COUNT; i++) {
    enum env_var v = (enum env_var)i;
    out_addf(o, "%-*s  %-*s  %-*s  %s\n", name, env_name(v), value, shown_value(v), def, env_default(v), env_help(v));
  }
}

// ---- variables of options -------------------------------------------------------------------------------------------

// Calls visit once for each variable of an option (LLAMA_ARG_...) that is set.
struct shown { struct out *o; json_t *json; const struct option *of; struct texts seen; };

static void show_one(struct shown *s, const char *name) {
  const char *text = env_of_option(name);
  if (!text) return;
  for (size_t i = 0; i < s->seen.n; i++) if (!strcmp(s->seen.at[i], name)) return;
  vec_push(&s->seen, xstrdup(name));
  if (strstr(name, "API_KEY") && !strstr(name, "FILE")) text = "(set)";
  size_t n;
  char *valid = weft_utf8(text, strlen(text), &n);
  if (s->json)
    json_object_set_new(s->json, name, json_pack("{so ss ss}", "value", json_stringn(valid, n), "default", "",
                                                 "meaning", s->of->names));
  else out_addf(s->o, "%s  %s  as %s\n", name, valid, s->of->names);
  weft_free(valid);
}

static bool show_variable(void *ctx, const char *at, size_t n) {
  struct shown *s = ctx;
  char name[64], negative[64];
  snprintf(name, sizeof name, "%.*s", (int)n, at);
  show_one(s, name);
  if (args_negative_variable(s->of, at, n, negative)) show_one(s, negative);
  return false;
}

static void show_option_variables(struct out *o, json_t *json) {
  struct shown s = {o, json, NULL, {0}};
  for (size_t i = 0; i < option_table.n; i++) {
    s.of = &option_table.at[i];
    if (s.of->kind != OPT_OPERAND) args_each_variable(s.of, show_variable, &s);
  }
  texts_free(&s.seen);
}

// ---- the machine ----------------------------------------------------------------------------------------------------

// The effect of instruction sets on kernels. LLVM may use others as well.
static const struct { const char *name, *what;
} features[] = {
  {"x86-64", "128-bit vectors; products of bytes in plain arithmetic"},
  {"x86-64-v2", "128-bit vectors; products of bytes in plain arithmetic"},
  {"x86-64-v3", "256-bit vectors, multiply-add in one instruction, 16-bit floats converted by the processor; a dot "
                "product of bytes is two instructions"},
  {"x86-64-v4", "512-bit vectors, with masks for what does not fill them"},
  {"avx512vnni", "64 products of bytes and their sums in one instruction: quantised weights, in tokens and in prompts"},
  {"avxvnni", "32 products of bytes and their sums in one instruction: quantised weights, in tokens and in prompts"},
  {"avx512bf16", "32 products of BF16 and their sums in one instruction: prompts of BF16 models"},
  {"armv8-a", "128-bit vectors; products of bytes in plain arithmetic"},
  {"armv8.2-a", "128-bit vectors, and arithmetic on 16-bit floats"},
  {"armv8.6-a", "128-bit vectors, products of bytes and of BF16"},
  {"dotprod", "16 products of bytes and their sums in one instruction: quantised weights"},
  {"i8mm", "products of small matrices of bytes"},
};

// Returns whether a list separated by spaces contains a word.
static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
    if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
  return false;
}

static void show_features(struct out *o, const weft_env *m) {
  for (size_t i = 0; i < COUNT(features); i++) {
    if (!has_word(m->features, features[i].name)) continue;
    out_addf(o, "          %-11s ", features[i].name);
    out_wrapped(o, features[i].what, 22, 90);
  }
}

static void show_advice(struct out *o) {
  char *advice = weft_env_advice(weft_default_threads());
  for (const char *at = advice; *at; at += strcspn(at, "\n") + 1) {
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    out_addf(o, "advice    ");
    out_wrapped(o, line, 10, 100);
  }
  weft_free(advice);
}

static void show_machine(struct out *o, const weft_env *m) {
  error wrong = {0};
  out_addf(o, "\nversion   weft %s\n", program_version());
  if (env_check(&wrong)) out_addf(o, "error     %s\n", wrong.text);
  out_addf(o, "cpu       %s\n", m->cpu[0] ? m->cpu : "unknown");
  out_addf(o, "features  ");
  out_wrapped(o, m->features[0] ? m->features : "none that matter", 10, 100);
  show_features(o, m);
  if (m->vector_bits) out_addf(o, "vectors   %d bits\n", m->vector_bits);
  out_addf(o, "threads   %d\n", m->threads);
  if (m->memory_total)
    out_addf(o, "memory    %.1f GiB, %.1f GiB free\n", (double)m->memory_total / 0x1p30,
             (double)m->memory_available / 0x1p30);
  out_addf(o, "L2 cache  %lld KiB a core\n", (long long)(m->cache_bytes >> 10));
  out_addf(o, "prefetch  %s\n", m->prefetch[0] ? m->prefetch : "not measured yet: done when a large model is loaded");
  if (m->barrier_ns > 0) out_addf(o, "barrier   %.0f ns\n", m->barrier_ns);
  for (const char *at = m->devices; *at; at += strcspn(at, "\n"), at += *at == '\n')
    out_addf(o, "%s   %.*s\n", at == m->devices ? "devices" : "       ", (int)strcspn(at, "\n"), at);
  out_addf(o, "LLVM      %s\n", m->llvm);
  out_addf(o, "cache     %s\n", m->cache[0] ? m->cache : "off");
  out_addf(o, "sandbox   %s\n", sandbox_state());
  show_advice(o);
}

static void show_env_json(struct out *o, const weft_env *m) {
  json_t *all = json_object(), *variables = json_object(), *machine = json_object();
  for (int i = 0; i < ENV_COUNT; i++) {
    enum env_var v = (enum env_var)i;
    json_t *row = json_object();
    size_t n;
    char *value = weft_utf8(shown_value(v), strlen(shown_value(v)), &n);
    json_object_set_new(row, "value", json_stringn(value, n));
    json_object_set_new(row, "default", json_string(env_default(v)));
    json_object_set_new(row, "meaning", json_string(env_help(v)));
    json_object_set_new(variables, env_name(v), row);
    weft_free(value);
  }
  show_option_variables(o, variables);
  json_object_set_new(machine, "version", json_string(program_version()));
  json_object_set_new(machine, "cpu", json_string(m->cpu));
  json_object_set_new(machine, "features", json_string(m->features));
  json_t *changes = json_object();
  for (size_t i = 0; i < COUNT(features); i++)
    if (has_word(m->features, features[i].name))
      json_object_set_new(changes, features[i].name, json_string(features[i].what));
  json_object_set_new(machine, "changes", changes);
  json_object_set_new(machine, "vector_bits", json_integer(m->vector_bits));
  json_object_set_new(machine, "threads", json_integer(m->threads));
  json_object_set_new(machine, "memory_total", json_integer((json_int_t)m->memory_total));
  json_object_set_new(machine, "memory_available", json_integer((json_int_t)m->memory_available));
  json_object_set_new(machine, "cache_bytes", json_integer((json_int_t)m->cache_bytes));
  json_object_set_new(machine, "prefetch", m->prefetch[0] ? json_string(m->prefetch) : json_null());
  json_object_set_new(machine, "barrier_ns", json_real(m->barrier_ns));
  json_object_set_new(machine, "llvm", m->has_llvm ? json_string(m->llvm) : json_null());
  json_object_set_new(machine, "cache", m->cache[0] ? json_string(m->cache) : json_null());
  json_object_set_new(machine, "devices", json_string(m->devices));
  json_object_set_new(machine, "sandbox", json_string(sandbox_state()));
  json_object_set_new(all, "variables", variables);
  json_object_set_new(all, "machine", machine);
  out_json(o, all, JSON_INDENT(2));
}

static int show_env(struct settings *s) {
  weft_env machine;
  weft_env_report(&machine);
  keep_to_files(s, NULL);        // only now: drivers open files that are not known beforehand
  struct out o = {0};
  if (s->json) {
    show_env_json(&o, &machine);
  } else {
    show_variables(&o);
    show_option_variables(&o, NULL);
    show_machine(&o, &machine);
  }
  return out_end(&o, EXIT_OK);
}

int env_command(int argc, char **argv) { return settings_run(&command, argc, argv, show_env); }
