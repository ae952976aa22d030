// settings: the values of all options of all commands. A row of the table in options.c says which commands have an
// option; other fields keep the value of settings_new.
#ifndef WEFT_APP_SETTINGS_H
#define WEFT_APP_SETTINGS_H
#include "app/args.h"
#include "app/denoise_args.h"
#include "app/grammar_args.h"
#include "app/media_args.h"
#include "app/model_args.h"
#include "app/sampling_args.h"

//       name, for the list of commands
#define COMMANDS(C) \
  C(run, "continue a text") \
  C(chat, "talk with a model in the terminal") \
  C(serve, "answer over HTTP: OpenAI's interface, and a page") \
  C(loadtest, "measure a server") \
  C(bench, "measure tokens per second") \
  C(embed, "compute embeddings") \
  C(perplexity, "measure how well a model predicts a text") \
  C(quantize, "write a model file with fewer bits") \
  C(convert, "write a folder of Hugging Face's as a GGUF file") \
  C(export, "write one file that holds a model and runs it") \
  C(imatrix, "compute an importance matrix, for quantize") \
  C(pull, "fetch a model from Hugging Face, from ollama's registry, or from an address") \
  C(list, "show downloaded models") \
  C(rm, "remove one of them") \
  C(profile, "show where the time of a token goes") \
  C(plan, "predict a model's speed and memory on several machines") \
  C(viz, "write a page that shows what the compiler made of a model") \
  C(tune, "search for better kernels, and keep them") \
  C(cache, "manage the kernel cache") \
  C(inspect, "show what a model file holds") \
  C(tokenize, "text to tokens, and back") \
  C(template, "show a conversation as the prompt that a model expects") \
  C(env, "show the environment variables and this machine") \
  C(doctor, "check what is missing or slow on this machine, and say what to do") \
  C(uninstall, "show where everything is, and the commands that remove it")

enum command_id {
#define C(name, what) COMMAND_##name,
  COMMANDS(C)
#undef C
  N_COMMANDS
};
#define COMMAND_BIT(name) (1u << COMMAND_##name)

enum color { COLOR_AUTO, COLOR_ON, COLOR_OFF };
enum { REASONING_IN_CONTENT = 2 };       // of --reasoning-format auto|deepseek|none
enum thinking { THINKING_AUTO, THINKING_ON, THINKING_OFF };

struct perplexity_args { const char *base; int64_t chunks, stride, format; bool compare; };
struct embed_args { const char *separator, *pair_separator; int64_t normalize; int format, pooling; };
struct imatrix_args { const char *out; int64_t chunks, from, every; };
struct quantize_args {
  const char *in, *out, *type, *number, *output_type, *embedding_type, *types_file, *imatrix;
  struct texts types, overrides, include, exclude;
  int64_t buffer;
  bool requantize, leave_output, pure, keep_split, dry_run;
};
struct export_args { const char *in, *out, *program, *cpu; bool as_c; };
struct convert_args { const char *in, *out; int type; };
struct serve_args {
  const char *prefix;
  bool adapters_off;
  const char *host, *alias, *key_file, *tls_key, *tls_certificate;
  int64_t port, connections, parallel, waiting, waiting_tokens, max_wait, body_mib, drain, drain_delay,
    keep_mib, block_size;
  int64_t memory_mib, request_mib, request_work;         // limits for requests
  int64_t encoder_mib;
  const char *keep, *slots, *files, *kv_events;
  bool no_key, page, slots_shown, autoload, suffix_first, rerank, log_jsonl;
  const char *log_file;
  int log_format;
  int64_t verbosity;
  const char *models_dir;
  int64_t models_max, idle, timeout, workers;
  struct texts keys, hosts, origins, media_hosts;
  struct texts encoders;     // encoders found for settings.models; "": none
  struct texts repos;        // pull_repo of settings.models; NULL: not by name
  struct texts warned;       // models whose encoder was said to be another repository's
};

struct loadtest_args { const char *url, *model, *key, *html; int64_t clients, requests, prompt, tokens; bool json; };

struct settings {
  struct model_args model;
  struct draft_args draft;
  struct sampling_args sampling;
  struct denoise_args denoise;
  struct media_args media;
  struct grammar_args grammar;
  bool verbose, quiet, json;
  // input and output: run, chat, tokenize
  const char *prompt, *text, *file;                 // text: the prompt as an operand
  struct ids ids, force, detokenize;
  struct texts stops;
  bool escapes, no_bos, no_speculation, draft_always, parse_special, from_stdin, only_ids, special;
  bool display_prompt, verbose_prompt;
  int64_t count, top_logprobs, benchmark;
  const char *stats;
  // chat, template
  const char *system, *system_file, *template_name, *template_file, *variables, *tools, *messages, *bos, *eos, *now,
    *effort;
  bool no_generation_prompt, chat_bos, completion, single_turn, context_shift, rates, simple_io;
  int color, thinking, reasoning_format;
  int64_t reasoning_budget;
  const char *reasoning_message;
  // measurements: bench, profile, plan, viz, tune
  struct texts models, prompts, generations, both, depths, threads, chunks, sequences;
  int64_t repetitions, delay, steps, chunk_of, depth, beam;
  double budget, skip_ms;
  const char *predict, *link;
  int64_t machines;
  int format;
  bool no_prompt, no_layouts, all;
  const char *out;
  struct perplexity_args perplexity;
  struct quantize_args quantize;
  struct convert_args convert;
  struct export_args export;
  struct imatrix_args imatrix;
  struct embed_args embed;
  struct loadtest_args loadtest;
  struct serve_args serve;
  // cache, inspect
  const char *action, *exchange;
  bool tunings, full;
  // pull, rm
  const char *name;
  bool yes;
};

extern const struct options option_table;       // the table

// The defaults of every command.
struct settings settings_new(void);
// args_parse for a command of the table. Prints one line on stderr about options without effect. True: continue;
// otherwise *status is the exit status. The caller frees with settings_free in both cases.
bool settings_parse(struct settings *s, const struct command *c, int argc, char **argv, int *status);
// Runs a command: parses its arguments and calls `work` if that succeeds. Returns the exit status.
int settings_run(const struct command *c, int argc, char **argv, int (*work)(struct settings *s));

// Inspects a command line before parsing. Returns whether it has an option that `this` lacks and `other` has, so that
// `other` is meant.
bool settings_are_for(const struct command *other, const struct command *this, int argc, char **argv);
// The model named on the command line of either of two commands; NULL: none.
const char *settings_model(const struct command *a, const struct command *b, int argc, char **argv);
// By --no-speculation, which takes precedence, and --draft-always.
enum weft_speculating settings_speculating(const struct settings *s);
void settings_free(struct settings *s);
#endif
