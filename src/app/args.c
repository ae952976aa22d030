// Parsing options from a table, and printing that table as help: see args.h.
#define _GNU_SOURCE
#include "app/args.h"
#include "base/str.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- the nearest word -------------------------------------------------------------------------------------------------

enum { LONGEST = 40 };

// Edits (insert, remove, replace, swap of neighbours) that turn a into b.
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
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best) best = d[i - 2][j - 2] + 1;
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
      allowed = d - (d > 0);   // only a nearer one replaces it
      best = words[i];
      if (d == 0) break;
    }
  }
  return best;
}

// ---- values -----------------------------------------------------------------------------------------------------------

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

static int out_of_range(const char *name, const struct option *o, const char *text, error *err) {
  if (o->max >= 2147483647.0) return error_set(err, "%s must be %.10g or more, not %s", name, o->min, text);
  return error_set(err, "%s must lie between %.10g and %.10g, not %s", name, o->min, o->max, text);
}

// Ids between commas or white space, perhaps in brackets. A comma stands between two of them and nowhere else.
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
    if (n > 10 || parse_int(word, &id) || id < 0 || id > INT32_MAX) return error_set(err, "'%.*s' is not a token id", (int)(n < 40 ? n : 40), at);
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

// One member of a list: a number or a range "first-last[+step]" or "first-last*factor".
static int one_range(const char *name, const char *text, int64_t min, int64_t max, numbers *out, error *err) {
  long long first, last, step = 1;
  int n = 0;
  char how = '+';
  if (sscanf(text, "%lld%n", &first, &n) == 1 && !text[n]) last = first;
  else if (!((sscanf(text, "%lld-%lld%n", &first, &last, &n) == 2 && !text[n]) ||
             (sscanf(text, "%lld-%lld%c%lld%n", &first, &last, &how, &step, &n) == 4 && !text[n])))
    return error_set(err, "%s: '%s' is neither a number nor a range (such as 1,2 or 16-64+16)", name, text);
  if (first < min || last > max || first > last) {
    if (max >= INT32_MAX) return error_set(err, "%s: '%s' must be %lld or more, in ascending order", name, text, (long long)min);
    return error_set(err, "%s: '%s' must lie between %lld and %lld, in ascending order", name, text, (long long)min, (long long)max);
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

// The number of the choice, -1 if it is none.
static int find_choice(const char *choices, const char *text) {
  size_t n = strlen(text);
  for (int i = 0;; i++) {
    size_t len = strcspn(choices, "|");
    if (len == n && !strncmp(choices, text, n)) return i;
    if (!choices[len]) return -1;
    choices += len + 1;
  }
}

static int take(const struct option *o, const char *name, const char *text, error *err) {
  int64_t i;
  double f;
  int choice;
  error inner = {0};
  switch (o->kind) {
  case OPT_GROUP: break;
  case OPT_FLAG: *(bool *)o->to = true; break;
  case OPT_OPERAND: case OPT_TEXT: *(const char **)o->to = text; break;
  case OPT_INT:
    if (parse_int(text, &i)) return error_set(err, "%s needs a whole number, not '%s'", name, text);
    if ((double)i < o->min || (double)i > o->max) return out_of_range(name, o, text, err);
    *(int64_t *)o->to = i;
    break;
  case OPT_REAL:
    if (parse_real(text, &f)) return error_set(err, "%s needs a number, not '%s'", name, text);
    if (f < o->min || f > o->max) return out_of_range(name, o, text, err);
    *(double *)o->to = f;
    break;
  case OPT_IDS: {
    struct ids *ids = o->to;
    ids->n = 0;
    if (args_ids(text, ids, &inner)) return error_set(err, "%s: %s", name, inner.text);
    if (!ids->n) return error_set(err, "%s needs token ids, such as 1,2,3", name);
    break;
  }
  case OPT_CHOICE:
    if ((choice = find_choice(o->value, text)) < 0) return error_set(err, "%s must be one of %s, not '%s'", name, o->value, text);
    *(int *)o->to = choice;
    break;
  case OPT_TEXTS: { struct texts *t = o->to; vec_push(t, xstrdup(text)); break; }
  }
  return 0;
}

// ---- names ------------------------------------------------------------------------------------------------------------

// Calls visit with each name of an option until it returns true; returns whether it did.
static bool each_name(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx) {
  if (o->kind == OPT_GROUP || o->kind == OPT_OPERAND) return false;
  for (const char *at = o->names; *at; at += strspn(at, ", ")) {
    size_t n = strcspn(at, ", ");
    if (visit(ctx, at, n)) return true;
    at += n;
  }
  return false;
}

struct typed { const char *at; size_t n; };
static bool same_name(void *ctx, const char *name, size_t n) {
  const struct typed *t = ctx;
  return t->n == n && !memcmp(t->at, name, n);
}

static const struct option *find_option(const struct option *table, size_t n, const char *name, size_t len) {
  for (size_t i = 0; i < n; i++)
    if (each_name(&table[i], same_name, &(struct typed){name, len})) return &table[i];
  return NULL;
}

// The next argument without a name that the command takes, or NULL.
static const struct option *free_operand(const struct option *table, size_t n) {
  for (size_t i = 0; i < n; i++) if (table[i].kind == OPT_OPERAND && !*(const char **)table[i].to) return &table[i];
  return NULL;
}

typedef VEC(char *) words;
static bool collect(void *ctx, const char *name, size_t n) {
  words *w = ctx;
  char *copy = xmalloc(n + 1);
  memcpy(copy, name, n);
  copy[n] = 0;
  vec_push(w, copy);
  return false;
}

static int unknown_option(const struct command *c, const struct option *table, size_t n, const char *typed, size_t len, error *err) {
  words all = {0};
  for (size_t i = 0; i < n; i++) each_name(&table[i], collect, &all);
  char word[LONGEST + 2];
  snprintf(word, sizeof word, "%.*s", (int)len, typed);
  const char *near = args_nearest(word, (const char *const *)all.at, all.n);
  if (near) error_set(err, "unknown option '%.*s'; did you mean '%s'?", (int)len, typed, near);
  else error_set(err, "unknown option '%.*s'; 'weft %s --help' lists them", (int)len, typed, c->name);
  for (size_t i = 0; i < all.n; i++) free(all.at[i]);
  vec_free(&all);
  return -1;
}

enum args_result args_parse(const struct command *c, const struct option *table, size_t n, int argc, char **argv, error *err) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-h") && strcmp(argv[i], "--help")) continue;
    if (i > 1) {   // not where it is the value of the option before
      const struct option *before = find_option(table, n, argv[i - 1], strlen(argv[i - 1]));
      if (before && before->kind != OPT_FLAG) continue;
    }
    args_help(c, table, n, stdout);
    return ARGS_HELP;
  }
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i], *equals = strncmp(arg, "--", 2) ? NULL : strchr(arg, '=');
    size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
    if (arg[0] != '-' || !arg[1]) {
      const struct option *operand = free_operand(table, n);
      if (operand && !take(operand, operand->names, arg, err)) continue;
      error_set(err, "unexpected argument '%s'; 'weft %s --help' shows the usage", arg, c->name);
      return ARGS_BAD;
    }
    const struct option *o = find_option(table, n, arg, len);
    if (!o) { unknown_option(c, table, n, arg, len, err); return ARGS_BAD; }
    char name[LONGEST + 2];
    snprintf(name, sizeof name, "%.*s", (int)len, arg);
    const char *value = equals ? equals + 1 : NULL;
    if (o->kind == OPT_FLAG && value) { error_set(err, "%s takes no value", name); return ARGS_BAD; }
    if (o->kind != OPT_FLAG && !value) {
      if (i + 1 == argc) { error_set(err, "%s needs a value: %s", name, o->value); return ARGS_BAD; }
      value = argv[++i];
    }
    if (take(o, name, value, err)) return ARGS_BAD;
  }
  return ARGS_GO;
}

enum args_result args_parse_parts(const struct command *c, const struct options *parts, size_t n, int argc, char **argv, error *err) {
  VEC(struct option) all = {0};
  for (size_t i = 0; i < n; i++) for (size_t j = 0; j < parts[i].n; j++) vec_push(&all, parts[i].at[j]);
  enum args_result result = args_parse(c, all.at, all.n, argc, argv, err);
  vec_free(&all);
  return result;
}

// ---- help -------------------------------------------------------------------------------------------------------------

enum { HELP_COLUMN = 34 };

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

void args_help(const struct command *c, const struct option *table, size_t n, FILE *to) {
  fprintf(to, "weft %s %s\n\n%s\n", c->name, c->usage, c->what);
  for (size_t i = 0; i < n; i++) {
    if (table[i].kind == OPT_GROUP) fprintf(to, "\n%s\n", table[i].names);
    else if (table[i].help[0]) print_option(&table[i], to);
  }
  print_option(&(struct option){.names = "-h, --help", .help = "this text"}, to);
  if (c->notes) fprintf(to, "\n%s", c->notes);
}
