// app: the weft command. app.c has the table of commands; each command is one file. The command uses the library like
// any other program: it includes weft.h and, for what C lacks, base/.
//
//   args.h           options from a table: parsing and help
//   settings.h       the list of commands and the values of all options; options.c has the table
//   manual.h         further output of that table: manual, shell completion, docs/from-llama.cpp.md
//   model_args.h     opens the model that the options describe
//   sampling_args.h  the sampler, for run and chat
//   grammar_args.h   the grammar, for run and chat
//   out.h json.h     stdout with checked errors; JSON on it
//   pull.h store.h http.h  models by name: registries, the folder of downloads, HTTP
//   files.c          which files a command may open
//   stats.h          the figures at the end of a run
//   terminal.h       output of a chat; typed.h edit.h: line input, and files named in a line
//   perplexity.h     splits a text into chunks, for perplexity.c and divergence.c
//   exported.h       the command line of a program that contains a model
//   run.c chat.c serve.c bench.c embed.c perplexity.c quantize.c export.c imatrix.c models.c profile.c plan.c viz.c
//   tune.c cache.c inspect.c tokenize.c template.c env.c doctor.c uninstall.c: the commands
#ifndef WEFT_APP_H
#define WEFT_APP_H
#include "app/settings.h"
#include "app/out.h"
#include "base/confine.h"
#include "base/progress.h"
#include "weft.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };   // 128 + SIGINT, as in shells

// say prints "weft: ..." on one line; failed and usage_error print "weft: error: ..." and return the exit status.
void say(const char *fmt, ...) PRINTF_LIKE(1, 2);         // a message on stderr
int failed(const char *fmt, ...) PRINTF_LIKE(1, 2);       // returns 1: a file, the machine or a request has an error
int usage_error(const char *fmt, ...) PRINTF_LIKE(1, 2);  // returns 2: the command line is wrong

// Each command gets its own name as argv[0] and returns the exit status.
#define C(name, what) int name##_command(int argc, char **argv);
COMMANDS(C)
#undef C

extern const struct command run_options, chat_options;
// Starts a chat, with the model's template if it has one: for a command line without a command, or run without a
// prompt.
int talk_command(int argc, char **argv);

bool sandbox_is_wanted(void);
const char *sandbox_state(void);         // "on: ..." or "off: ...", for people
// Installs the sandbox unless the user has switched it off: for a command that needs a filter of its own kind.
void enter_sandbox(enum confine_kind kind);
// Allows signals to this process and the other one, now or with the call that restricts files.
void sandbox_signals(long other, bool now);
// From now on only files that the settings name may be read, and only `made` written (NULL: none). Must be called
// before threads start.
void keep_to_files(const struct settings *s, const char *made);
// keep_to_files for a command that evaluates a model: a separate process writes the kernel cache.
void keep_to_evaluating(const struct settings *s, const char *made);
void keep_cache_apart(int threads);      // the separate process of keep_to_evaluating; threads: 0: automatic
void keep_to_cache(const struct settings *s, const char *made);            // keep_to_files plus the kernel cache
// All files may be read; only `made`, a file, or files in `folder` may be written (NULL: neither).
void keep_to_reading(const char *made, const char *folder);
// System files that a transfer needs may be read; only `folder`, which it fills, may be written.
void keep_to_fetching(const char *folder);
// For the process that downloads for a server: keep_to_fetching with connections, and without the user's own folders.
void enter_fetcher(void *ctx);
// Restricts files to a list, in all processes that compute together.
void enter_files(const confine_file *files, size_t n);
bool computes_together(void);            // with other processes, started by MPI
void sandbox_fetched(void);             // the download is complete: no connections from now on
const char *program_version(void);       // "0.1.0 (51a3086de)", or "0.1.0" if the commit is unknown
const char *program_commit(void);        // "51a3086de", with "-dirty" after it if files were changed; "" if unknown
double started_at(void);         // now_s() when the program started

// Ctrl-C. Until interrupt_catch, Ctrl-C ends the program with status 130. After it the first Ctrl-C sets interrupted(),
// and the second one kills.
void interrupt_start(void);
void interrupt_catch(void);      // also resets interrupted()
void interrupt_note(void);       // like interrupt_catch, but no Ctrl-C kills
void interrupt_leave_by(void (*fn)(void));       // a Ctrl-C that kills calls fn first; fn must be async-signal-safe
bool interrupted(void);

// Maximum bytes read of a file. READ_SOURCE is the limit of the parsers of grammars, schemas and templates.
enum { READ_SOURCE = 4 << 20, READ_JSON = 64 << 20, READ_PROMPT = 256 << 20, READ_CORPUS = 1 << 30 };
// Opens a file that is read to its end, "-" for stdin. Devices other than /dev/null and terminals are errors, because
// they have no end.
int open_text(const char *path, int *fd, error *err);
// Reads a whole file, "-" for stdin. *text is terminated and for free(). -1 and an error, for example for a file of
// more than `most` bytes; reading stops soon after that many.
int read_file(const char *path, size_t most, char **text, size_t *n, error *err);
// Replaces \n \r \t \\ \' \" \xHH in place; other text stays. Returns the new length.
size_t unescape(char *text, size_t n);
void unescape_texts(struct texts *t);

// Fills positions 0..depth-1 of the KV cache with random tokens. Returns 0 or the exit status.
int fill_context(weft_model *m, int depth, progress *bar);
// Prints the tokens of a prompt on stderr, one per line.
void show_tokens(const weft_vocab *v, const int32_t *ids, size_t n);
// For commands that run a model, before they close it (NULL is allowed): writes the page of weft viz if VIZ is set.
// Returns `status`, or the exit status of a failed write.
int viz_if_asked(weft_model *m, int status);

// A weft_options.progress; its context is a struct progress.
void show_progress(void *ctx, const char *what, double fraction);
#endif
