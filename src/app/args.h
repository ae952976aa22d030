// args: command-line options from a table. The parser, help, manual, completion and docs/from-llama.cpp.md all use it.
//
// options.c has the table. A row says which commands have the option and which member of `struct settings` gets its
// value; the caller sets the defaults first. Long options take "--name value" and "--name=value", and "_" in a name
// equals "-". Options of llama.cpp that do not apply are rows too: they are accepted with a note, or are errors with
// the reason.
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
  OPT_IDLE,  // accepted; has no effect here
  OPT_REFUSED  // not supported: an error
};

struct ids { int32_t *at; size_t n, cap; };       // token ids; at is for free()
struct texts { char **at; size_t n, cap; };        // copies, of an option that may be repeated; texts_free

struct option {
  enum opt_kind kind;
  unsigned commands;        // bits: 1 << enum command_id
  // "-n, --predict, --count"; the title of a GROUP; the description of an OPERAND (an argument without a name)
  const char *names;
  // "N"; for CHOICE the choices, "md|json"; "A B": two values; "[on|off]": an optional choice; NULL: no value
  // A value that names a path (args_names_path) is never empty.
  const char *value;
  const char *help;         // line breaks are kept; for IDLE and REFUSED the reason, as the rest of a sentence
  // offset of the value: FLAG and OFF bool, TEXT and OPERAND const char *, INT int64_t (two values: int64_t[2]), REAL
  // double, IDS struct ids, CHOICE int, TEXTS struct texts
  size_t to;
  double min, max;          // for INT and REAL, inclusive
  const char *words;        // for INT: "a|b" mean -1 and -2; NULL: no words
  const char *more;         // further sentences for the manual, or NULL
  const char *meant;        // other words that people type for it, "--max-tokens --max-new-tokens", or NULL
  const char *theirs;  // llama.cpp has it: "" with equal meaning, otherwise the difference; NULL: it does not have it
  // For IDLE and REFUSED, values "a|b": `fine` are already the default ("*": all), `idle` change nothing.
  const char *fine, *idle;
  // Environment variables with equal effect, separated by spaces; the command line overrides them. A flag's variable is
  // 1 or 0: 0 sets the next row with that variable, the opposite option. settles: further variables that are ignored if
  // this option is given.
  const char *env, *settles;
  bool clamp;               // for INT and REAL: a value outside the bounds becomes the nearest bound
  bool list;                // for TEXTS: a value is a list separated by commas
  bool writes;              // for TEXT and OPERAND: a file that is written, which no other row may name
};

// How a command parses its arguments.
struct command {
  const char *name;         // "run"
  const char *what;         // "continues a text", in the list of commands
  const char *usage;        // "FILE -p TEXT [options]"
  const char *notes;        // paragraphs after the options, or NULL
  unsigned bit;             // in option.commands
  unsigned near;            // commands whose options are also suggested for an unknown one
};

enum args_result { ARGS_GO, ARGS_HELP, ARGS_BAD };
// Reads argv[1..argc) and the environment variables into `to`, by the rows of the table for this command. HELP: -h or
// --help was given, and the help is printed to stdout. BAD: err has the reason. idle: the options without effect, with
// reasons, as one sentence; empty if there are none.
struct options { const struct option *at; size_t n; };
enum args_result args_parse(const struct command *c, struct options table, void *to, int argc, char **argv, str *idle,
                            error *err);
void args_help(const struct command *c, struct options table, FILE *to);
// Calls visit with each name of an option until it returns true; returns whether it did.
bool args_each_name(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx);
// Calls visit with each variable of an option (.env).
bool args_each_variable(const struct option *o, bool (*visit)(void *ctx, const char *name, size_t n), void *ctx);
// The variable that switches a flag off: LLAMA_ARG_NO_X for LLAMA_ARG_X. False: it has no such variable.
bool args_negative_variable(const struct option *o, const char *name, size_t n, char out[64]);
// Returns whether the option has an effect: it is no title, operand, IDLE or REFUSED row.
static inline bool args_does_something(const struct option *o) {
  return o->kind != OPT_GROUP && o->kind != OPT_OPERAND && o->kind != OPT_IDLE && o->kind != OPT_REFUSED;
}
// Returns whether values of the option are paths: FILE, DIR, PAGE, FILE:SCALE, OUT.gguf.
bool args_names_path(const struct option *o);
// Refuses an operand that is an empty path. It is called once it is known which operand is text instead of a model.
int args_check_operands(const struct command *c, struct options table, const void *from, error *err);
// args_find: the row of a command for an argument that is an option ("--name" or "--name=value"), or NULL.
// args_takes_value: whether the option takes the following argument as its value. Both are for inspecting a command
// line before parsing.
const struct option *args_find(const struct command *c, struct options table, const char *arg);
bool args_takes_value(const struct option *o);

void texts_free(struct texts *t);
static inline const char *const *texts_of(const struct texts *t) { return (const char *const *)t->at; }

// Appends the token ids of "1,2, 3", "[1, 2]" or "1 2". -1 and an error that names the bad part.
int args_ids(const char *text, struct ids *out, error *err);
// Appends the numbers of "512", "1,2,8", "16-64+16" (16 32 48 64) or "16-64*2" (16 32 64), each from min to max.
typedef struct numbers { int64_t *at; size_t n, cap; } numbers;
int args_numbers(const char *name, const char *text, int64_t min, int64_t max, numbers *out, error *err);

// The word of a list that is nearest to the typed text, or NULL if none is near.
const char *args_nearest(const char *typed, const char *const *words, size_t n);
#endif
