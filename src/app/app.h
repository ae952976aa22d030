// app: the weft command.  app.c has the table of commands; each command is one file.  The command is a user of the
// library like any other: it includes weft.h and, for what C lacks, base/.
//
//   args.h           options from a table: parsing, and the help
//   settings.h       the list of commands, and what all their options can say; options.c has the table
//   manual.h         what else is made of that table: the manual, completion for shells, docs/from-llama.cpp.md
//   model_args.h     the model that the options describe, for all that run one
//   sampling_args.h  the sampler, for run and chat
//   grammar_args.h   the grammar, for both as well
//   out.h json.h     stdout, with errors that are noticed; JSON on it
//   pull.h store.h http.h  models by name: from a registry, in a folder, over a network
//   files.c          which files a command may open
//   stats.h          the figures at the end of a run
//   terminal.h       what is shown in a chat; typed.h edit.h: lines that people type, and the files that these name
//   perplexity.h     a text in chunks, for perplexity.c and divergence.c
//   exported.h       the command line of a program that carries a model
//   run.c chat.c serve.c bench.c embed.c perplexity.c quantize.c export.c imatrix.c models.c profile.c plan.c viz.c
//   tune.c cache.c inspect.c tokenize.c template.c env.c doctor.c uninstall.c: the commands
#ifndef WEFT_APP_H
#define WEFT_APP_H
#include "app/settings.h"
#include "app/out.h"
#include "base/confine.h"
#include "base/progress.h"
#include "weft.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };   // 128 + SIGINT, as shells say it

// Prints "weft: error: ..." on one line and returns the exit status.
void say(const char *fmt, ...) PRINTF_LIKE(1, 2);         // one line for people, on stderr: "weft: ..."
int failed(const char *fmt, ...) PRINTF_LIKE(1, 2);       // 1: something is wrong with a file, the machine or a request
int usage_error(const char *fmt, ...) PRINTF_LIKE(1, 2);  // 2: the command line is wrong

// Each command gets its own name as argv[0] and returns the exit status.
#define C(name, what) int name##_command(int argc, char **argv);
COMMANDS(C)
#undef C

extern const struct command run_options, chat_options;
// A command line without a command, or one of run without a prompt: a conversation, by the model's template if it has
// one.
int talk_command(int argc, char **argv);

bool sandbox_is_wanted(void);
const char *sandbox_state(void);         // "on: ..." or "off: ...", for people
// unless the user does without: for a command that needs one of its own
void enter_sandbox(enum confine_kind kind);
// signals go to this process and the other one, now or once the files are known
void sandbox_signals(long other, bool now);
// no files from now on but what the settings name to be read, and one that the command makes (NULL: none); before there
// are threads
void keep_to_files(const struct settings *s, const char *made);
// the same for a command that evaluates: another process has the kernel cache from now on
void keep_to_evaluating(const struct settings *s, const char *made);
void keep_to_cache(const struct settings *s, const char *made);            // the same with the kernel cache
// all files may be read; what is made is a file, or lies in a folder (NULL: neither)
void keep_to_reading(const char *made, const char *folder);
// the system's files that a transfer needs may be read, and the folder that it fills written
void keep_to_fetching(const char *folder);
// In the process that fetches for a server: the same, with connections, and no folder of a user.
void enter_fetcher(void *ctx);
void enter_files(const confine_file *files, size_t n);     // the same for a list
void sandbox_fetched(void);             // what was to be fetched has come: from now on no connections
const char *program_version(void);       // "0.1.0 (51a3086de)", or "0.1.0" if the commit is unknown
const char *program_commit(void);        // "51a3086de", with "-dirty" after it if files were changed; "" if unknown
double started_at(void);         // now_s() when the program started

// Ctrl-C.  Until interrupt_catch it ends the program with status 130 at once; from then on the first one is noticed by
// interrupted(), and the second one kills.
void interrupt_start(void);
void interrupt_catch(void);      // again: as if there had been none
void interrupt_note(void);       // the same, and none kills
void interrupt_leave_by(void (*fn)(void));       // what is done first by one that kills: what a signal may do
bool interrupted(void);

// The most bytes that are read of a file. READ_SOURCE is for grammars, schemas and templates, whose parsers take no
// more.
enum { READ_SOURCE = 4 << 20, READ_JSON = 64 << 20, READ_PROMPT = 256 << 20, READ_CORPUS = 1 << 30 };
// Opens a file that is read to its end, "-" for stdin. Devices other than /dev/null and terminals are refused, because
// they have no end.
int open_text(const char *path, int *fd, error *err);
// A whole file, "-" for stdin.  *text is terminated and for free().  -1 and why not: a file of more than `most` bytes,
// of which not many more are read.
int read_file(const char *path, size_t most, char **text, size_t *n, error *err);
// \n \r \t \\ \' \" \xHH become what they stand for, in place; anything else stays.  Returns the new length.
size_t unescape(char *text, size_t n);
void unescape_texts(struct texts *t);

// Positions 0..depth-1 of the KV cache, with tokens drawn at random. 0 or the exit status.
int fill_context(weft_model *m, int depth, progress *bar);
// The tokens of a prompt on stderr, one a line.
void show_tokens(const weft_vocab *v, const int32_t *ids, size_t n);
// For commands that run a model, before they close it (NULL is fine): writes the page of weft viz if VIZ asks for one.
// The exit status: the one given, or that of a failure to write the page.
int viz_if_asked(weft_model *m, int status);

// weft_options.progress, its context being a struct progress.
void show_progress(void *ctx, const char *what, double fraction);
#endif
