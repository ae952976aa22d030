// Parses options by a table and prints the table as help: see args.h.
#define _GNU_SOURCE
#include "app/args.h"
#include "base/env.h"
#include "base/str.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the nearest word -----------------------------------------------------------------------------------------------

enum { LONGEST = 40 };

// The number of edits (insert, remove, replace, swap of adjacent characters) that turn a into b.
static size_t distance(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b), d[LONGEST + 1][LONGEST + 1];
  if (n > LONGEST || m > LONGEST) return LONGEST;
  for (size_t i = 0; i <= n; i++) d[i][0] = i;
  for (size_t j = 0; j <= m; j++) d[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    for (size_t j = 1; j <= m; j++) {
      size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
        best = d[i - 2][j - 2] + 1;
      d[i][j] = best;
    }
  }
  return d[n][m];
}

const char *args_nearest(const char *typed, const char *const *words, size_t n) {
  const char *best = NULL;
  size_t allowed = strlen(typed) < 4 ? 1 : 1 + strlen(typed) / 4;
  for (size_t i = 0; i < n; i++) {
    size_t d = distance(typed, words[i]);
    if (d <= allowed && d < strlen(words[i])) {
      allowed = d - (d > 0);   // only a smaller distance replaces it
      best = words[i];
      if (d == 0) break;
    }
  }
  return best;
}

// ---- values ---------------------------------------------------------------------------------------------------------

static int parse_int(const char *text, int64_t *out) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || errno || text[0] == ' ') return -1;
  *out = v;
  return 0;
}

static int parse_real(const char *text, double *out) {
  char *end;
  double v = strtod(text, &end);
  if (end == text || *end || !isfinite(v) || text[0] == ' ') return -1;
  *out = v;
  return 0;
}

static int refuse_range(const char *name, const struct option *o, const char *text, error *err) {
  if (o->max >= 2147483647.0) return error_set(err, "%s must be %.10g or more, not %s", name, o->min, text);
  return error_set(err, "%s must lie between %.10g and %.10g, not %s", name, o->min, o->max, text);
}

// Reads ids separated by commas or white space, optionally in brackets. A comma is allowed only between two ids.
int args_ids(const char *text, struct ids *out, error *err) {
  static const char blank[] = " \t\r\n", end[] = ", \t\r\n[]";
  const char *at = text + strspn(text, blank);
  bool brackets = *at == '[', comma = false;
  if (brackets) at++;
  for (at += strspn(at, blank); *at && !(brackets && *at == ']'); at += strspn(at, blank)) {
    size_t n = strcspn(at, end);
    char word[16];
    int64_t id = -1;
    snprintf(word, sizeof word, "%.*s", (int)(n < 15 ? n : 15), at);
    if (!n) return error_set(err, "no token id stands before '%.40s'", at);
    if (n > 10 || parse_int(word, &id) || id < 0 || id > INT32_MAX)
      return error_set(err, "'%.*s' is not a token id", (int)(n < 40 ? n : 40), at);
    vec_push(out, (int32_t)id);
    at += n + strspn(at + n, blank);
    comma = *at == ',';
    if (comma) at++;
  }
  if (comma) return error_set(err, "no token id stands after the last comma");
  if (brackets && *at++ != ']') return error_set(err, "the bracket '[' is not closed");
  at += strspn(at, blank);
  return *at ? error_set(err, "nothing may stand after the last token id, but '%.40s' does", at) : 0;
}

// Reads one member of a list: a number or a range "first-last[+step]" or "first-last*factor".
static int one_range(const char *name, const char *text, int64_t min, int64_t max, numbers *out, error *err) {
  long long first, last, step = 1;
  int n = 0;
  char how = '+';
  if (sscanf(text, "%lld%n", &first, &n) == 1 && !text[n]) last = first;
  else if (!((sscanf(text, "%lld-%lld%n", &first, &last, &n) == 2 && !text[n]) ||
             (sscanf(text, "%lld-%lld%c%lld%n", &first, &last, &how, &step, &n) == 4 && !text[n])))
    return error_set(err, "%s: '%s' is neither a number nor a range (such as 1,2 or 16-64+16)", name, text);
  if (first < min || last > max || first > last) {
    if (max >= INT32_MAX)
      return error_set(err, "%s: '%s' must be %lld or more, in ascending order", name, text, (long long)min);
    return error_set(err, "%s: '%s' must lie between %lld and %lld, in ascending order", name, text, (long long)min,
                     (long long)max);
  }
  if (!((how == '+' && step >= 1) || (how == '*' && step >= 2 && first >= 1)) || step > INT32_MAX)
    return error_set(err, "%s: '%s' never reaches its end", name, text);
  for (long long v = first; v <= last; v = how == '+' ? v + step : v * step) {
    if (out->n >= 1000) return error_set(err, "%s: '%s' is more than 1000 numbers", name, text);
    vec_push(out, (int64_t)v);
  }
  return 0;
}

int args_numbers(const char *name, const char *text, int64_t min, int64_t max, numbers *out, error *err) {
  char *copy = xstrdup(text), *rest = copy;
  int status = 0;
  for (char *word; !status && (word = strsep(&rest, ",")) != NULL;) status = one_range(name, word, min, max, out, err);
  free(copy);
  return status;
}

void texts_free(struct texts *t) {
  for (size_t i = 0; i < t->n; i++) free(t->at[i]);
  vec_free(t);
}

// Returns the index of the choice, -1 if the text is not a choice. Brackets around the choices are skipped.
static int find_word(const char *choices, const char *text) {
  size_t n = strlen(text);
  choices += *choices == '[';
  for (int i = 0;; i++) {
    size_t len = strcspn(choices, "|]");
    if (len == n && !strncmp(choices, text, n)) return i;
    if (choices[len] != '|') return -1;
    choices += len + 1;
  }
}

// llama.cpp's words for yes (1) and no (0); -1: neither.
static int yes_or_no(const char *text) {
  return find_word("on|enabled|true|1", text) >= 0 ? 1 : find_word("off|disabled|false|0", text) >= 0 ? 0 : -1;
}

// If the choices are on and off, other words for these are accepted too.
static int find_choice(const char *choices, const char *text) {
  int at = find_word(choices, text), said = yes_or_no(text);
  if (at < 0 && said >= 0) at = find_word(choices, said ? "on" : "off");
  return at;
}

// Returns whether a text is one of the words separated by bars; "*" matches every text.
static bool is_listed_word(const char *words, const char *text) {
  return words && (!strcmp(words, "*") || find_choice(words, text) >= 0);
}

// Returns whether each element of a list such as "0,1" is one of `words` or `more`.
static bool all_listed(const char *words, const char *more, const char *text) {
  bool all = true;
  char *copy = xstrdup(text), *rest = copy;
  for (char *word; all && (word = strsep(&rest, ",")) != NULL;)
    all = is_listed_word(words, word) || is_listed_word(more, word);
  free(copy);
  return all;
}

// Adds "--numa is ignored: threads are pinned automatically" to the list; options with one reason share a sentence.
static void add_idle(str *idle, const char *name, const char *reason) {
  static const char one[] = " is ignored: ", many[] = " are ignored: ";
  const char *at = idle->n ? strstr(idle->at, reason) : NULL;
  if (!at) { str_addf(idle, "%s%s%s%s", idle->n ? "; " : "", name, one, reason); return; }
  bool first = at - idle->at >= (ptrdiff_t)sizeof one - 1 && !memcmp(at - sizeof one + 1, one, sizeof one - 1);
  size_t keep = (size_t)(at - idle->at) - (first ? sizeof one : sizeof many) + 1;
  str tail = {0};
  str_add(&tail, at);
  idle->n = keep;
  str_addf(idle, ", %s%s%s", name, many, str_c(&tail));
  str_free(&tail);
}

// Handles an option that does not apply or is not supported.
static int take_foreign(const struct option *o, const char *name, const char *text, str *idle, error *err) {
  if (!text && o->value && o->value[0] == '[') text = "on";
  if (text ? all_listed(o->fine, NULL, text) : o->fine != NULL) return 0;
  if (o->kind == OPT_REFUSED && !(text && all_listed(o->fine, o->idle, text)))
    return error_set(err, text && strpbrk(text, " \t\n") ? "%s%s'%.80s' is not supported: %s"
                                                       : "%s%s%.80s is not supported: %s",
                     name, text ? " " : "", text ? text : "", o->help);
  add_idle(idle, name, o->help);
  return 0;
}

bool args_names_path(const struct option *o) {
  static const char *const kinds[] = {"FILE", "DIR", "PAGE"};
  const char *of = o->kind == OPT_OPERAND ? o->names : o->value;
  for (size_t i = 0; of && i < COUNT(kinds); i++) {
    size_t n = strlen(kinds[i]);
    if (!strncmp(of, kinds[i], n) && (!of[n] || strchr(":,[", of[n]))) return true;
  }
  return of && strstr(of, ".gguf");
}

// The shell's variable that should have had the path is often not set.
static int refuse_no_path(const struct option *o, const char *name, error *err) {
  const char *of = o->kind == OPT_OPERAND ? o->names : o->value;
  return error_set(err, "%s is empty: it needs the path of a %s", name, strncmp(of, "DIR", 3) ? "file" : "folder");
}

int args_check_operands(const struct command *c, struct options table, const void *from, error *err) {
  for (size_t i = 0; i < table.n; i++) {
    const struct option *o = &table.at[i];
    if (o->kind != OPT_OPERAND || !(o->commands & c->bit) || !args_names_path(o)) continue;
    const char *path = *(const char *const *)((const char *)from + o->to);
    if (path && !*path) return refuse_no_path(o, o->names, err);
  }
  return 0;
}

// Splits "a,b,c" into three texts; a comma between quotation marks does not separate, and the marks are removed.
static void take_list(struct texts *to, const char *text) {
  str one = {0};
  bool quoted = false;
  for (;; text++) {
    if (*text == '"') { quoted = !quoted; continue; }
    if (*text && (quoted || *text != ',')) { str_addc(&one, *text); continue; }
    if (one.n) vec_push(to, xstrdup(str_c(&one)));
    one.n = 0;
    if (!*text) break;
  }
  str_free(&one);
}

static double nearest_bound(const struct option *o, double x) { return x < o->min ? o->min : x > o->max ? o->max : x; }

static int take(const struct option *o, void *base, const char *name, const char *text, error *err) {
  void *to = (char *)base + o->to;
  int64_t i;
  double f;
  int choice;
  error inner = {0};
  if (text && !*text && o->kind != OPT_OPERAND && args_names_path(o)) return refuse_no_path(o, name, err);
  switch (o->kind) {
  case OPT_GROUP: case OPT_IDLE: case OPT_REFUSED: break;
  case OPT_FLAG: *(bool *)to = true; break;
  case OPT_OFF: *(bool *)to = false; break;
  case OPT_OPERAND: case OPT_TEXT: *(const char **)to = text; break;
  case OPT_INT:
    if (o->words && (choice = find_word(o->words, text)) >= 0) i = -1 - choice;
    else if (parse_int(text, &i)) return error_set(err, "%s needs a whole number, not '%s'", name, text);
    if (o->clamp) i = (int64_t)nearest_bound(o, (double)i);
    if ((double)i < o->min || (double)i > o->max) return refuse_range(name, o, text, err);
    *(int64_t *)to = i;
    break;
  case OPT_REAL:
    if (parse_real(text, &f)) return error_set(err, "%s needs a number, not '%s'", name, text);
    if (o->clamp) f = nearest_bound(o, f);
    if (f < o->min || f > o->max) return refuse_range(name, o, text, err);
    *(double *)to = f;
    break;
  case OPT_IDS: {
    struct ids *ids = to;
    ids->n = 0;
    if (args_ids(text, ids, &inner)) return error_set(err, "%s: %s", name, inner.text);
    if (!ids->n) return error_set(err, "%s needs token ids, such as 1,2,3", name);
    break;
  }
  case OPT_CHOICE:
    if (!text) text = "on";
    if ((choice = find_choice(o->value, text)) < 0)
      return error_set(err, "%s must be one of %s, not '%s'", name, o->value, text);
    *(int *)to = choice;
    break;
  case OPT_TEXTS: {
    struct texts *t = to;
    size_t before = t->n;
    if (o->list) take_list(t, text);
    else vec_push(t, xstrdup(text));
    if (t->n == before) return error_set(err, "%s is empty: it needs %s", name, o->value);
    break;
  }
  }
  return 0;
}

// ---- names ----------------------------------------------------------------------------------------------------------

static bool each_word(const char *words, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx) {
  for (const char *at = words; at && *at; at += strspn(at, ", ")) {
    size_t n = strcspn(at, ", ");
    if (visit(ctx, at, n)) return true;
    at += n;
  }
  return false;
}

bool args_each_name(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx) {
  return o->kind != OPT_GROUP && o->kind != OPT_OPERAND && each_word(o->names, visit, ctx);
}

bool args_each_variable(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx) {
  return each_word(o->env, visit, ctx);
}

bool args_negative_variable(const struct option *o, const char *name, size_t n, char out[64]) {
  static const char prefix[] = "LLAMA_ARG_";
  size_t k = sizeof prefix - 1;
  if (o->value || o->kind == OPT_OPERAND) return false;
  if (n < k || n > 56 || memcmp(name, prefix, k) || !strncmp(name + k, "NO_", 3)) return false;
  snprintf(out, 64, "%sNO_%.*s", prefix, (int)(n - k), name + k);
  return true;
}

// Names are compared with "_" in the typed text equal to "-".
struct typed { const char *at; size_t n; };
static bool same_name(void *ctx, const char *name, size_t n) {
  const struct typed *t = ctx;
  if (t->n != n) return false;
  for (size_t i = 0; i < n; i++)
    if (t->at[i] != name[i] && !(name[i] == '-' && t->at[i] == '_' && i > 1)) return false;
  return true;
}

static const struct option *find_option(const struct command *c, struct options table, const char *name, size_t len) {
  for (size_t i = 0; i < table.n; i++)
    if ((table.at[i].commands & c->bit) && args_each_name(&table.at[i], same_name, &(struct typed){name, len}))
      return &table.at[i];
  return NULL;
}

// Returns how many of the following arguments are values of o; next: the first of them, or NULL.
static int values_of_option(const struct option *o, const char *next) {
  if (!o->value) return 0;
  if (o->value[0] == '[') return next && find_choice(o->value, next) >= 0;
  return strchr(o->value, ' ') ? 2 : 1;
}

const struct option *args_find(const struct command *c, struct options table, const char *arg) {
  const char *equals = strncmp(arg, "--", 2) ? NULL : strchr(arg, '=');
  return find_option(c, table, arg, equals ? (size_t)(equals - arg) : strlen(arg));
}

bool args_takes_value(const struct option *o) { return o && o->value && o->value[0] != '['; }

// Returns the next operand that the command takes and that has no value yet, or NULL.
static const struct option *free_operand(const struct command *c, struct options table, const void *base) {
  for (size_t i = 0; i < table.n; i++)
    if (table.at[i].kind == OPT_OPERAND && (table.at[i].commands & c->bit) &&
        !*(const char *const *)((const char *)base + table.at[i].to))
      return &table.at[i];
  return NULL;
}

// ---- suggestions ----------------------------------------------------------------------------------------------------

// The typed text of an unknown option, and the best match so far. A word that people use for an option (`meant`) counts
// as its name. Short names are no candidates: they are too short to be a likely typing error of anything. The opposite
// of the typed option is no help either.
struct guess { const char *typed; const struct option *of; char name[LONGEST + 2], near[LONGEST + 2]; size_t far; };

static bool negated(const char *name) { return !strncmp(name, "--no-", 5); }

static bool consider(void *ctx, const char *name, size_t n) {
  struct guess *g = ctx;
  char word[LONGEST + 2];
  if (n > LONGEST || strncmp(name, "--", 2)) return false;
  snprintf(word, sizeof word, "%.*s", (int)n, name);
  if (negated(word) != negated(g->typed)) return false;
  size_t d = distance(g->typed, word);
  if (d < g->far && d + 2 < n) { g->far = d; memcpy(g->near, word, sizeof word); return true; }
  return false;
}

// Finds the name to show: the long name if there is one.
static bool shown_name(void *ctx, const char *name, size_t n) {
  struct guess *g = ctx;
  snprintf(g->name, sizeof g->name, "%.*s", (int)(n < LONGEST ? n : LONGEST), name);
  return n > 2 && name[1] == '-';
}

static int unknown_option(const struct command *c, struct options table, const char *typed, size_t len, error *err) {
  char word[LONGEST + 2];
  bool single = typed[1] != '-' && len > 3;                 // "-temp" for "--temp"
  snprintf(word, sizeof word, "%s%.*s", single ? "-" : "", (int)(len < LONGEST ? len : LONGEST - 1), typed);
  struct guess g = {.typed = word, .far = 2 + strlen(word) / 5};
  for (size_t i = 0; (typed[1] == '-' || single) && i < table.n; i++) {
    const struct option *o = &table.at[i];
    if (!(o->commands & (c->bit | c->near)) || o->kind == OPT_IDLE || o->kind == OPT_REFUSED) continue;
    size_t before = g.far;
    args_each_name(o, consider, &g);
    if (g.far < before) memcpy(g.name, g.near, sizeof g.name);
    before = g.far;
    each_word(o->meant, consider, &g);
    if (g.far < before) args_each_name(o, shown_name, &g);
  }
  if (g.name[0] && !strncmp(g.name, typed, len) && !g.name[len])
    return error_set(err, "weft %s has no option '%s'; 'weft %s --help' lists those it has", c->name, g.name, c->name);
  if (g.name[0]) return error_set(err, "unknown option '%.*s'; did you mean '%s'?", (int)len, typed, g.name);
  return error_set(err, "unknown option '%.*s'; 'weft %s --help' lists them", (int)len, typed, c->name);
}

// ---- parsing --------------------------------------------------------------------------------------------------------

static bool asks_for_help(const char *arg) {
  return !strcmp(arg, "-h") || !strcmp(arg, "--help") || !strcmp(arg, "--usage");
}

// given: rows of the table that the command line has set.
struct parsing {
  const struct command *c;
  struct options table;
  void *to;
  int argc;
  char **argv;
  str *idle;
  error *err;
  bool *given;
};

static int take_row(struct parsing *p, const struct option *o, const char *name, const char *value) {
  return o->kind == OPT_IDLE || o->kind == OPT_REFUSED ? take_foreign(o, name, value, p->idle, p->err)
                                                       : take(o, p->to, name, value, p->err);
}

// Takes one option with its values from argv[*i].
static int take_option(struct parsing *p, int *i) {
  const char *arg = p->argv[*i], *equals = strncmp(arg, "--", 2) ? NULL : strchr(arg, '=');
  size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
  const struct option *o = find_option(p->c, p->table, arg, len);
  if (!o) return unknown_option(p->c, p->table, arg, len, p->err);
  char name[LONGEST + 2];
  snprintf(name, sizeof name, "%.*s", (int)(len < LONGEST ? len : LONGEST), arg);
  const char *value = equals ? equals + 1 : NULL;
  int n = values_of_option(o, *i + 1 < p->argc ? p->argv[*i + 1] : NULL);
  if (value && !o->value) return error_set(p->err, "%s takes no value", name);
  if (!value && *i + n >= p->argc) return error_set(p->err, "%s needs a value: %s", name, o->value);
  if (!value && n) { value = p->argv[*i + 1]; *i += n; }
  p->given[o - p->table.at] = true;
  if (n < 2 || o->kind != OPT_INT) return take_row(p, o, name, value);
  if (equals) return error_set(p->err, "%s needs two values: %s", name, o->value);
  struct option second = *o;
  second.to += sizeof(int64_t);
  return take(o, p->to, name, value, p->err) ? -1 : take(&second, p->to, name, p->argv[*i], p->err);
}

static int take_operand(struct parsing *p, const char *text) {
  const struct option *o = free_operand(p->c, p->table, p->to);
  if (!o) return error_set(p->err, "unexpected argument '%s'; 'weft %s --help' shows the usage", text, p->c->name);
  p->given[o - p->table.at] = true;
  return take(o, p->to, o->names, text, p->err);
}

// ---- environment variables ------------------------------------------------------------------------------------------

// The next row of the command with this variable, from row i on; NULL: no more.
static const struct option *row_of_variable(const struct parsing *p, size_t i, struct typed name) {
  for (; i < p->table.n; i++)
    if ((p->table.at[i].commands & p->c->bit) && args_each_variable(&p->table.at[i], same_name, &name))
      return &p->table.at[i];
  return NULL;
}

// Returns whether the command line already sets what the variable sets.
static bool is_settled(const struct parsing *p, struct typed name) {
  for (size_t i = 0; i < p->table.n; i++)
    if (p->given[i] && (each_word(p->table.at[i].env, same_name, &name) ||
                        each_word(p->table.at[i].settles, same_name, &name)))
      return true;
  return false;
}

// shown: the name of the variable, for errors.
static int take_variable(struct parsing *p, const struct option *o, struct typed name, const char *shown,
                         const char *text) {
  if (o->value || o->kind == OPT_OPERAND) return take_row(p, o, shown, text);
  int said = yes_or_no(text);
  if (said < 0) return error_set(p->err, "%s must be 1 or 0, not '%.80s'", shown, text);
  const struct option *opposite = said ? o : row_of_variable(p, (size_t)(o - p->table.at) + 1, name);
  if (opposite) return take_row(p, opposite, shown, NULL);
  if (o->kind == OPT_FLAG) *(bool *)((char *)p->to + o->to) = false;
  return 0;
}

struct variable { struct parsing *p; const struct option *o; };

// Returns true on an error.
static bool read_variable(void *ctx, const char *at, size_t n) {
  struct variable *v = ctx;
  struct typed name = {at, n};
  char shown[64], negative[64];
  snprintf(shown, sizeof shown, "%.*s", (int)n, at);
  const char *text = env_of_option(shown);
  if (args_negative_variable(v->o, at, n, negative) && env_of_option(negative)) {
    text = "0";
    memcpy(shown, negative, sizeof shown);
  }
  if (!text || is_settled(v->p, name) || row_of_variable(v->p, 0, name) != v->o) return false;
  return take_variable(v->p, v->o, name, shown, text) != 0;
}

static int read_variables(struct parsing *p) {
  for (size_t i = 0; i < p->table.n; i++)
    if ((p->table.at[i].commands & p->c->bit) &&
        args_each_variable(&p->table.at[i], read_variable, &(struct variable){p, &p->table.at[i]}))
      return -1;
  return 0;
}

enum args_result args_parse(const struct command *c, struct options table, void *to, int argc, char **argv, str *idle,
                            error *err) {
  for (int i = 1; i < argc; i++) {
    if (!asks_for_help(argv[i]) || (i > 1 && args_takes_value(args_find(c, table, argv[i - 1])))) continue;
    args_help(c, table, stdout);
    return ARGS_HELP;
  }
  struct parsing p = {c, table, to, argc, argv, idle, err, xcalloc(table.n, sizeof *p.given)};
  int status = 0;
  for (int i = 1; i < argc && !status; i++)
    status = argv[i][0] == '-' && argv[i][1] ? take_option(&p, &i) : take_operand(&p, argv[i]);
  if (!status) status = read_variables(&p);
  free(p.given);
  return status ? ARGS_BAD : ARGS_GO;
}

// ---- help -----------------------------------------------------------------------------------------------------------

enum { HELP_COLUMN = 34, HELP_WIDTH = 100 };

static void print_option(const struct option *o, FILE *to) {
  int n = fprintf(to, "  %s%s%s", o->names, o->value ? " " : "", o->value ? o->value : "");
  if (n >= HELP_COLUMN) { fputc('\n', to); n = 0; }
  for (const char *at = o->help;;) {
    size_t len = strcspn(at, "\n");
    fprintf(to, "%*s%.*s\n", HELP_COLUMN - n, "", (int)len, at);
    if (!at[len]) break;
    at += len + 1;
    n = 0;
  }
}

struct wrapping { FILE *to; int column; };
static bool print_name(void *ctx, const char *name, size_t n) {
  struct wrapping *w = ctx;
  if (w->column + (int)n + 2 > HELP_WIDTH) { fputc('\n', w->to); w->column = 0; }
  w->column += fprintf(w->to, "%s%.*s", w->column ? " " : "  ", (int)n, name);
  return false;
}

static void print_names(const struct command *c, struct options table, enum opt_kind kind, const char *title,
                        FILE *to) {
  struct wrapping w = {to, 0};
  for (size_t i = 0; i < table.n; i++) {
    if (table.at[i].kind != kind || !(table.at[i].commands & c->bit)) continue;
    if (title) fprintf(to, "\n%s\n", title);
    title = NULL;
    args_each_name(&table.at[i], print_name, &w);
  }
  if (w.column) fputc('\n', to);
}

void args_help(const struct command *c, struct options table, FILE *to) {
  const struct option *group = NULL;
  fprintf(to, "weft %s %s\n\n%s\n", c->name, c->usage, c->what);
  for (size_t i = 0; i < table.n; i++) {
    const struct option *o = &table.at[i];
    if (!(o->commands & c->bit) || o->kind == OPT_IDLE || o->kind == OPT_REFUSED) continue;
    if (o->kind == OPT_GROUP) { group = o; continue; }
    if (group) fprintf(to, "\n%s\n", group->names);
    group = NULL;
    print_option(o, to);
  }
  print_option(&(struct option){.names = "-h, --help", .help = "this text"}, to);
  print_names(c, table, OPT_IDLE, "Of llama.cpp, ignored with a note", to);
  print_names(c, table, OPT_REFUSED, "Of llama.cpp, refused with a reason", to);
  if (c->notes) fprintf(to, "\n%s", c->notes);
}
