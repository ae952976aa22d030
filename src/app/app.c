// The weft command: a table of commands, and what they share (messages, Ctrl-C, reading files).  Start here, then read
// the file of a command.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/manual.h"
#include "app/pull.h"
#include "base/confine.h"
#include "base/env.h"
#include "base/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct { const char *name, *what; int (*run)(int argc, char **argv); } commands[] = {
#define C(name, what) {#name, what, name##_command},
  COMMANDS(C)
#undef C
};

// ---- messages -------------------------------------------------------------------------------------------------------

// One line whatever the text holds: file names may contain newlines.
static void print_message(const char *fmt, va_list ap) {
  str s = {0};
  str_vaddf(&s, fmt, ap);
  str_blank_controls(&s, false);
  fflush(stdout);
  fprintf(stderr, "weft: error: %s\n", str_c(&s));
  str_free(&s);
}

int failed(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print_message(fmt, ap);
  va_end(ap);
  return EXIT_FAILED;
}

int usage_error(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print_message(fmt, ap);
  va_end(ap);
  return EXIT_USAGE;
}

void show_progress(void *ctx, const char *what, double fraction) { progress_set(ctx, what, fraction); }

// ---- the process ----------------------------------------------------------------------------------------------------

static double start_time;                       // set once, in main
static volatile sig_atomic_t n_interrupts;      // the only way for a signal to say anything

double started_at(void) { return start_time; }
bool interrupted(void) { return n_interrupts > 0; }

static void on_interrupt_leave(int sig) { (void)sig; _exit(EXIT_INTERRUPTED); }
static void on_interrupt_note(int sig) { (void)sig; n_interrupts = 1; }

void interrupt_start(void) {
  struct sigaction leave = {.sa_handler = on_interrupt_leave};
  sigaction(SIGINT, &leave, NULL);
}

void interrupt_catch(void) {
  n_interrupts = 0;
  struct sigaction note = {.sa_handler = on_interrupt_note, .sa_flags = SA_RESETHAND};
  sigaction(SIGINT, &note, NULL);
}

void interrupt_note(void) {
  n_interrupts = 0;
  struct sigaction note = {.sa_handler = on_interrupt_note};
  sigaction(SIGINT, &note, NULL);
}

void show_tokens(const weft_vocab *v, const int32_t *ids, size_t n) {
  fprintf(stderr, "weft: %zu token%s of the prompt:\n", n, n == 1 ? "" : "s");
  for (size_t i = 0; i < n; i++) {
    size_t n_bytes, n_text;
    char *bytes = weft_piece(v, ids[i], true, &n_bytes), *text = weft_utf8(bytes, n_bytes, &n_text);
    str shown = {0};
    str_addn(&shown, text, n_text);
    str_blank_controls(&shown, false);
    fprintf(stderr, "%8d -> '%s'\n", ids[i], str_c(&shown));
    str_free(&shown);
    weft_free(text);
    weft_free(bytes);
  }
}

// ---- text that comes in ---------------------------------------------------------------------------------------------

enum { READ_STEP = 1 << 16, READ_MAX = 1 << 30 };

int read_file(const char *path, char **text, size_t *n, error *err) {
  bool is_stdin = !strcmp(path, "-");
  int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error_set(err, "%s: %s", path, strerror(errno));
  str s = {0};
  str_add(&s, "");
  char *piece = xmalloc(READ_STEP);
  ssize_t got;
  while ((got = read(fd, piece, READ_STEP)) != 0) {
    if (got < 0 && errno == EINTR && !interrupted()) continue;
    if (got < 0 || s.n + (size_t)got > READ_MAX) break;
    str_addn(&s, piece, (size_t)got);
  }
  int reason = errno;
  free(piece);
  if (!is_stdin) close(fd);
  if (got) {
    str_free(&s);
    return got < 0 ? error_set(err, "%s: %s", is_stdin ? "stdin" : path, strerror(reason))
                   : error_set(err, "%s: more than %d bytes of text", is_stdin ? "stdin" : path, READ_MAX);
  }
  *text = s.at;
  *n = s.n;
  return 0;
}

size_t unescape(char *text, size_t n) {
  static const char from[] = "nrt\\'\"", to[] = "\n\r\t\\'\"";
  size_t put = 0;
  for (size_t i = 0; i < n; i++) {
    const char *found = text[i] == '\\' && i + 1 < n ? memchr(from, text[i + 1], sizeof from - 1) : NULL;
    if (found) {
      text[put++] = to[found - from];
      i++;
    } else if (text[i] == '\\' && i + 3 < n && text[i + 1] == 'x' && hex_value(text[i + 2]) >= 0 &&
               hex_value(text[i + 3]) >= 0) {
      text[put++] = (char)(hex_value(text[i + 2]) * 16 + hex_value(text[i + 3]));
      i += 3;
    } else {
      text[put++] = text[i];
    }
  }
  text[put] = 0;
  return put;
}

void unescape_texts(struct texts *t) {
  for (size_t i = 0; i < t->n; i++) unescape(t->at[i], strlen(t->at[i]));
}

// ---- main -----------------------------------------------------------------------------------------------------------

static void print_help(FILE *to) {
  fputs("weft COMMAND [options]\n\nRuns large language models from GGUF files.\n\nCommands\n", to);
  for (size_t i = 0; i < COUNT(commands); i++) fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].what);
  fputs("\n'weft FILE.gguf' talks with a model, or continues what is typed where it has no chat template.\n"
        "'weft COMMAND --help' lists the options of a command, 'weft --version' prints the version.\n"
        "'weft help --as bash|zsh|fish' prints completion for a shell.\n"
        "'weft --no-sandbox COMMAND' leaves out the filter of system calls, which 'weft env' shows.\n"
        "\n  weft run model.gguf -p \"Once upon a time\" -n 64\n", to);
}

static int unknown_command(const char *name) {
  const char *names[COUNT(commands) + 1];
  for (size_t i = 0; i < COUNT(commands); i++) names[i] = commands[i].name;
  names[COUNT(commands)] = "help";
  const char *near = args_nearest(name, names, COUNT(names));
  if (near) return usage_error("unknown command '%s'; did you mean '%s'?", name, near);
  return usage_error("unknown command '%s'; 'weft --help' lists them", name);
}

static int run_named(const char *name, int argc, char **argv) {
  for (size_t i = 0; i < COUNT(commands); i++)
    if (!strcmp(commands[i].name, name)) return commands[i].run(argc, argv);
  return unknown_command(name);
}

static int help_command(int argc, char **argv) {
  if (argc == 1) { print_help(stdout); return EXIT_OK; }
  if (argc >= 3 && argc <= 4 && !strcmp(argv[1], "--as")) return manual_print(argv[2], argc == 4 ? argv[3] : NULL);
  if (argc > 2) return usage_error("unexpected argument '%s'; 'weft help COMMAND' takes one", argv[2]);
  char flag[] = "--help";
  if (!strcmp(argv[1], "help")) { print_help(stdout); return EXIT_OK; }
  return run_named(argv[1], 2, (char *[]){argv[1], flag, NULL});
}

// A filter of system calls, on unless --no-sandbox comes before the command, or what was asked for needs another
// program.
static const char *sandbox = "off";
static bool sandbox_wanted, fetching;
const char *sandbox_state(void) { return sandbox; }

void enter_sandbox(bool (*confine)(void)) {
  if (sandbox_wanted && !confine()) sandbox = "off: this kernel has no seccomp filters";
}

void enter_files(const confine_file *files, size_t n) {
  if (sandbox_wanted) confine_to(files, n);
}

void sandbox_fetched(void) {
  if (fetching) enter_sandbox(confine_to_files);
  fetching = false;
}

// A server enters its own, once its socket listens; what is fetched first needs connections until then.
static void choose_sandbox(bool wanted, const char *command, bool fetches) {
#ifdef WEFT_SANITIZE
  wanted = false;           // the sanitizers run other programs
#endif
  bool compiler = !strcmp(env_str(ENV_RENDER), "c"), cuda = !strcmp(env_str(ENV_DEV), "CUDA"),
       nv = !strcmp(env_str(ENV_DEV), "NV"), metal = !strcmp(env_str(ENV_DEV), "METAL"),
       driver = cuda || nv || metal || !strcmp(env_str(ENV_DEV), "CL");
  sandbox_wanted = wanted && !compiler && !driver;
  if (!wanted) sandbox = "off: --no-sandbox";
  else if (compiler) sandbox = "off: RENDER=c runs a C compiler";
  else if (driver)
    sandbox = cuda    ? "off: DEV=CUDA, as the driver opens devices, runs programs and makes code"
              : nv    ? "off: DEV=NV, as it opens devices and runs ptxas"
              : metal ? "off: DEV=METAL, as the system's compiler of kernels is a service of its own"
                      : "off: DEV=CL, as drivers run compilers, linkers and services";
  else if (confine_knows_files())
    sandbox = "on: no other programs, no connections, no writable code, no files but those of the command";
  else
    sandbox =
      "on: no other programs, no connections, no writable code; this kernel has no Landlock, which keeps to files";
  if (command && !strcmp(command, "serve")) return;
  fetching = fetches;
  enter_sandbox(fetches ? confine_to_fetching : confine_to_files);
}

int talk_command(int argc, char **argv) {
  const char *path = settings_model(&chat_options, &run_options, argc, argv);
  weft_file *f = NULL;
  bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO),
       plain = path && !weft_file_open(path, &f, NULL) && !model_has_template(f);
  weft_file_close(f);
  if (settings_are_for(&run_options, &chat_options, argc, argv) || (plain && !terminal)) return run_command(argc, argv);
  if (!plain || settings_are_for(&chat_options, &run_options, argc, argv)) return chat_command(argc, argv);
  char option[] = "--chat-template", name[] = "none";
  VEC(char *) all = {0};                // what is typed is continued as it is
  for (int i = 0; i < argc; i++) vec_push(&all, argv[i]);
  vec_push(&all, option);
  vec_push(&all, name);
  vec_push(&all, NULL);
  int status = chat_command(argc + 2, all.at);
  vec_free(&all);
  return status;
}

// Whether the first word is no command but a model.
static bool names_a_model(const char *word) {
  const char *dot = strrchr(word, '.');
  return (dot && !strcmp(dot, ".gguf")) || !access(word, F_OK) || pull_is_name(word);
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) { print_help(stderr); return EXIT_USAGE; }
  const char *first = argv[1];
  if (!strcmp(first, "--version") || !strcmp(first, "version")) { printf("weft %s\n", weft_version()); return EXIT_OK; }
  if (!strcmp(first, "-h") || !strcmp(first, "--help")) { print_help(stdout); return EXIT_OK; }
  if (!strcmp(first, "help")) return help_command(argc - 1, argv + 1);
  for (size_t i = 0; i < COUNT(commands); i++)
    if (!strcmp(commands[i].name, first)) return commands[i].run(argc - 1, argv + 1);
  return first[0] == '-' || names_a_model(first) ? talk_command(argc, argv) : unknown_command(first);
}

// Where the caller has closed standard descriptors, the next files to be opened would get their numbers, and what is
// printed would end up in them.  In the wrong direction, so that using them fails as it would have.
static void hold_standard_descriptors(void) {
  for (int fd = 0; fd >= 0 && fd <= 2;) {
    fd = 0;
    while (fd <= 2 && fcntl(fd, F_GETFD) >= 0) fd++;
    if (fd <= 2) fd = open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_NOCTTY);
  }
}

int main(int argc, char **argv) {
  start_time = now_s();
  hold_standard_descriptors();
  json_set_alloc_funcs(xmalloc, free);   // no JSON is ever cut for want of memory
  signal(SIGPIPE, SIG_IGN);   // a closed pipe shows as EPIPE, which out.c treats as the end
  signal(SIGXFSZ, SIG_IGN);   // a limit on the size of files shows as EFBIG: no cache, or a message
  interrupt_start();
  bool open = argc > 1 && !strcmp(argv[1], "--no-sandbox");
  argc -= open;
  argv += open;
  const char *name = argc > 1 ? argv[1] : NULL;
  choose_sandbox(!open, name, pull_asked(argc, argv) || (name && (!strcmp(name, "pull") || !strcmp(name, "loadtest"))));
  int status = dispatch(argc, argv);
  if (fflush(stdout) && errno != EPIPE) return failed("stdout could not be written: %s", strerror(errno));
  return status;
}
