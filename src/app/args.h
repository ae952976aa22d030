// args: options of the commands, from a table that is parser, help, manual, completion and docs/from-llama.cpp.md at
// once.
//
// options.c has the table; a row says which commands it is for and where in `struct settings` its value goes.  Defaults
// are what stands there before.  Long options take "--name value" and "--name=value", and "_" in a name is "-".
// Options of llama.cpp that do not apply are rows too: they are accepted with a reason, or refused with one.
#ifndef WEFT_ARGS_H
#define WEFT_ARGS_H
#include "base/base.h"
#include "base/str.h"

enum opt_kind {
  OPT_GROUP,
  OPT_OPERAND,
  OPT_FLAG,
  OPT_OFF /* a flag that sets false */,
  OPT_TEXT,
  OPT_INT,
  OPT_REAL,
  OPT_IDS,
  OPT_CHOICE,
  OPT_TEXTS,
  OPT_IDLE,  // accepted; does nothing here
  OPT_REFUSED  // cannot be had here
};

struct ids { int32_t *at; size_t n, cap; };       // token ids; at is for free()
struct texts { char **at; size_t n, cap; };        // copies, of an option that can be given more than once; texts_free

struct option {
  enum opt_kind kind;
  unsigned commands;        // bits: 1 << enum command_id
  // "-n, --predict, --count"; of a GROUP its title, of an OPERAND (an argument without a name) what it is
  const char *names;
  // "N"; for CHOICE the choices, "md|json"; "A B": two values; "[on|off]": one of these or none; NULL: no value
  const char *value;
  const char *help;         // lines are broken where they stand; of IDLE and REFUSED the reason, the rest of a sentence
  // offset of the value: FLAG and OFF bool, TEXT and OPERAND const char *, INT int64_t (of two values int64_t[2]), REAL
  // double, IDS struct ids, CHOICE int, TEXTS struct texts
  size_t to;
  double min, max;          // of INT and REAL, inclusive
  const char *words;        // of INT: "a|b", for -1 and -2; NULL: there are none
  const char *more;         // further sentences for the manual, or NULL
  const char *meant;        // words that people type for it, "--max-tokens --max-new-tokens", or NULL
  const char *theirs;       // llama.cpp has it: "" with the same meaning, or what differs; NULL: it has not
  // Of IDLE and REFUSED, values "a|b": fine are those that ask for what is so anyway ("*": all), idle those that change
  // nothing.
  const char *fine, *idle;
  // Environment variables that do the same, with spaces between; the command line overrides them.  A flag's is 1 or 0:
  // 0 takes the next row of the variable, its opposite.  settles: variables that do not count once this option is
  // given, beside its own.
  const char *env, *settles;
  bool clamp;               // of INT and REAL: a value outside the bounds means the nearest bound
  bool list;                // of TEXTS: a value is a list with commas between
  bool writes;              // of TEXT and OPERAND: a file that is written, and that no other row may name
};

// What a command does with its arguments.
struct command {
  const char *name;         // "run"
  const char *what;         // "continues a text", for the list of commands
  const char *usage;        // "FILE -p TEXT [options]"
  const char *notes;        // paragraphs after the options, or NULL
  unsigned bit;             // in option.commands
  unsigned near;            // further commands whose options may be meant where one is unknown
};

enum args_result { ARGS_GO, ARGS_HELP, ARGS_BAD };
// Reads argv[1..argc), and the variables of the environment, into `to`, by the rows of the table that are for this
// command.  HELP: -h or --help was given (and
// printed to stdout).  BAD: err says what is wrong.  idle: what was accepted and does nothing, with reasons, as one
// sentence; empty: nothing was.
struct options { const struct option *at; size_t n; };
enum args_result args_parse(const struct command *c, struct options table, void *to, int argc, char **argv, str *idle,
                            error *err);
void args_help(const struct command *c, struct options table, FILE *to);
// Calls visit with each name of an option until it returns true; returns whether it did.
bool args_each_name(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx);
// Calls visit with each variable of an option (.env).
bool args_each_variable(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx);
// The variable that switches a flag off: LLAMA_ARG_NO_X of LLAMA_ARG_X.  False: there is none.
bool args_negative_variable(const struct option *o, const char *name, size_t n, char out[64]);
// Whether it does something: no title, no operand, neither IDLE nor REFUSED.
static inline bool args_does_something(const struct option *o) {
  return o->kind != OPT_GROUP && o->kind != OPT_OPERAND && o->kind != OPT_IDLE && o->kind != OPT_REFUSED;
}
// The row of a command for an argument that is an option ("--name" or "--name=value"), or NULL; for a look at a command
// line before it is parsed.  Whether an option takes the argument that follows as its value.
const struct option *args_find(const struct command *c, struct options table, const char *arg);
bool args_takes_value(const struct option *o);

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
