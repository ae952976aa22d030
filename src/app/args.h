// args: options of a command, from a table that is parser and help at once.
//
// A command lists its options as rows that point at where their values go; args_parse fills those in and args_help prints
// the table.  Defaults are what stands there before.  Long options take "--name value" and "--name=value".
#ifndef WEFT_ARGS_H
#define WEFT_ARGS_H
#include "base/base.h"

enum opt_kind { OPT_GROUP, OPT_OPERAND, OPT_FLAG, OPT_TEXT, OPT_INT, OPT_REAL, OPT_IDS, OPT_CHOICE, OPT_TEXTS };

struct ids { int32_t *at; size_t n, cap; };       // token ids; at is for free()
struct texts { char **at; size_t n, cap; };        // copies, of an option that can be given more than once; texts_free

struct option {
  enum opt_kind kind;
  const char *names;        // "-n, --predict, --count"; of a GROUP its title, of an OPERAND (an argument without a name) what it is
  const char *value;        // "N"; for CHOICE the choices, "md|json"; NULL for FLAG and GROUP
  const char *help;         // lines are broken where they stand; "" hides the option
  void *to;                 // FLAG bool *, TEXT and OPERAND const char **, INT int64_t *, REAL double *, IDS struct ids *, CHOICE int *, TEXTS struct texts *
  double min, max;          // of INT and REAL, inclusive
};

// Rows of a table, each with a destination of the right type.
#define O_GROUP(title)                      {OPT_GROUP, title, NULL, NULL, NULL, 0, 0}
#define O_OPERAND(what, help, to)           {OPT_OPERAND, what, NULL, help, (const char **){to}, 0, 0}
#define O_FLAG(names, help, to)             {OPT_FLAG, names, NULL, help, (bool *){to}, 0, 0}
#define O_TEXT(names, value, help, to)      {OPT_TEXT, names, value, help, (const char **){to}, 0, 0}
#define O_INT(names, value, help, to, a, b) {OPT_INT, names, value, help, (int64_t *){to}, a, b}
#define O_REAL(names, value, help, to, a, b) {OPT_REAL, names, value, help, (double *){to}, a, b}
#define O_IDS(names, value, help, to)       {OPT_IDS, names, value, help, (struct ids *){to}, 0, 0}
#define O_CHOICE(names, choices, help, to)  {OPT_CHOICE, names, choices, help, (int *){to}, 0, 0}
#define O_TEXTS(names, value, help, to)     {OPT_TEXTS, names, value, help, (struct texts *){to}, 0, 0}

// What a command does with its arguments.
struct command {
  const char *name;         // "run"
  const char *what;         // "continues a text", for the list of commands
  const char *usage;        // "-m FILE -p TEXT [options]"
  const char *notes;        // paragraphs after the options, or NULL
};

enum args_result { ARGS_GO, ARGS_HELP, ARGS_BAD };
// Reads argv[1..argc).  HELP: -h or --help was given (and printed to stdout).  BAD: err says what is wrong.
enum args_result args_parse(const struct command *c, const struct option *table, size_t n, int argc, char **argv, error *err);
// The same for a table that consists of parts.
struct options { const struct option *at; size_t n; };
#define OPTIONS(array) {array, COUNT(array)}
enum args_result args_parse_parts(const struct command *c, const struct options *parts, size_t n, int argc, char **argv, error *err);
void args_help(const struct command *c, const struct option *table, size_t n, FILE *to);

void texts_free(struct texts *t);
static inline const char *const *texts_of(const struct texts *t) { return (const char *const *)t->at; }

// "1,2, 3", "[1, 2]" or "1 2" as token ids, appended.  -1 and which part is none.
int args_ids(const char *text, struct ids *out, error *err);
// "512", "1,2,8", "16-64+16" (16 32 48 64) or "16-64*2" (16 32 64) as numbers from min to max, appended.
typedef struct numbers { int64_t *at; size_t n, cap; } numbers;
int args_numbers(const char *name, const char *text, int64_t min, int64_t max, numbers *out, error *err);

// The word of a list that is nearest to what was typed, or NULL if none is near.
const char *args_nearest(const char *typed, const char *const *words, size_t n);
#endif
