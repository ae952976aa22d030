// The weft command: a table of commands, and what they have in common (messages, Ctrl-C, reading files). Start here,
// then read the file of a command.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/commit.h"
#include "app/exported.h"
#include "app/manual.h"
#include "app/pull.h"
#include "base/attempt.h"
#include "base/confine.h"
#include "base/env.h"
#include "base/os.h"
#include "base/progress.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const struct { const char *name, *what; int (*run)(int argc, char **argv); } commands[] = {
#define C(name, what) {#name, what, name##_command},
  COMMANDS(C)
#undef C
};

// ---- messages -------------------------------------------------------------------------------------------------------

// Prints one line whatever the text contains: file names may have newlines.
static void print_line(const char *what, const char *fmt, va_list ap) {
  str s = {0};
  str_vadd_plain(&s, fmt, ap);
  fflush(stdout);
  fprintf(stderr, "weft: %s%s\n", what, str_c(&s));
  str_free(&s);
}

static void print_message(const char *fmt, va_list ap) { print_line("error: ", fmt, ap); }

void say(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print_line("", fmt, ap);
  va_end(ap);
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
static volatile sig_atomic_t n_interrupts;      // the only thing that the signal handler changes

double started_at(void) { return start_time; }
const char *program_version(void) { return WEFT_VERSION_STRING WEFT_COMMIT_SHOWN; }
const char *program_commit(void) { return WEFT_COMMIT; }
bool interrupted(void) { return n_interrupts > 0; }

static void (*leave_by)(void);
void interrupt_leave_by(void (*fn)(void)) { leave_by = fn; }

static void on_interrupt_leave(int sig) {
  (void)sig;
  if (leave_by) leave_by();
  _exit(EXIT_INTERRUPTED);
}

static void on_interrupt_note(int sig) { (void)sig; n_interrupts = 1; }

static void on_interrupt_kill(int sig) {
  if (leave_by) leave_by();
  signal(sig, SIG_DFL);
  raise(sig);
}

static void on_interrupt_first(int sig) {
  n_interrupts = 1;
  struct sigaction kill_next = {.sa_handler = on_interrupt_kill};
  sigaction(sig, &kill_next, NULL);
}

void interrupt_start(void) {
  struct sigaction leave = {.sa_handler = on_interrupt_leave};
  sigaction(SIGINT, &leave, NULL);
}

void interrupt_catch(void) {
  n_interrupts = 0;
  struct sigaction note = {.sa_handler = on_interrupt_first};
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

// ---- input files ----------------------------------------------------------------------------------------------------

enum { READ_STEP = 1 << 16 };

static const char *shown_path(const char *path) { return strcmp(path, "-") ? path : "stdin"; }

int open_text(const char *path, int *fd, error *err) {
  struct stat st, null;
  *fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : STDIN_FILENO;
  if (*fd < 0 || fstat(*fd, &st)) return error_set(err, "%s: %s", shown_path(path), strerror(errno));
  bool is_device = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode);
  if (!is_device || isatty(*fd) || (!stat("/dev/null", &null) && null.st_rdev == st.st_rdev)) return 0;
  if (*fd != STDIN_FILENO) close(*fd);
  return error_set(err, "%s: is a device, not a text", shown_path(path));
}

// The size of a regular file; 0 if it is not one.
static size_t regular_bytes(int fd) {
  struct stat st;
  return !fstat(fd, &st) && S_ISREG(st.st_mode) ? (size_t)st.st_size : 0;
}

static int beyond_limit(const char *path, size_t most, error *err) {
  return error_set(err, "%s: more than the %zu bytes that may be read of it", shown_path(path), most);
}

int read_file(const char *path, size_t most, char **text, size_t *n, error *err) {
  int fd, status = 0;
  if (open_text(path, &fd, err)) return -1;
  str s = {0};
  str_add(&s, "");
  if (regular_bytes(fd) > most) status = beyond_limit(path, most, err);
  char *piece = xmalloc(READ_STEP);
  for (ssize_t got; !status && (got = read(fd, piece, READ_STEP)) != 0;) {
    if (got < 0 && errno == EINTR && !interrupted()) continue;
    if (got < 0) status = error_set(err, "%s: %s", shown_path(path), strerror(errno));
    else if (s.n + (size_t)got > most) status = beyond_limit(path, most, err);
    else str_addn(&s, piece, (size_t)got);
  }
  free(piece);
  if (fd != STDIN_FILENO) close(fd);
  if (status) {
    str_free(&s);
    return status;
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
  fputs("\n'weft FILE.gguf' talks with a model, or continues what is typed if it has no chat template.\n"
        "'weft COMMAND --help' lists the options of a command, 'weft --version' prints the version.\n"
        "'weft help --as bash|zsh|fish' prints completion for a shell.\n"
        "'weft --no-sandbox COMMAND' leaves out the filter of system calls, which 'weft env' shows.\n"
        "\n  weft run model.gguf -p \"Once upon a time\" -n 64\n", to);
}

// Commands of ollama, llama.cpp and LM Studio that people type, and the equivalent here.
static const struct { const char *names, *what;
} elsewhere[] = {
  {"ps",
   "a running server lists its models in memory at GET /api/ps, and a model is in memory only while a command runs"},
  {"show info", "'weft inspect MODEL' shows what a model file holds, 'weft template MODEL' its prompt"},
  {"ls", "'weft list' shows the models that were fetched"},
  {"create",
   "there are no Modelfiles: SYSTEM is -sys, TEMPLATE is --chat-template, ADAPTER is --lora, and each PARAMETER "
   "is an option; to make a smaller model, 'weft quantize'"},
  {"cp copy mv", "models are files: 'weft list' shows where, and cp copies one"},
  {"push", "nothing is uploaded; a model is a file"},
  {"stop unload eject", "Ctrl-C ends 'weft serve'; it unloads idle models with --sleep-idle-seconds"},
  {"load", "'weft serve -m MODEL' loads a model at the start"},
  {"start daemon", "'weft serve' starts the server"},
  {"signin signout login logout whoami", "there are no accounts; HF_TOKEN is the token for Hugging Face"},
  {"launch", "'weft serve' starts a server, and other programs take its address"},
  {"download get fetch", "'weft pull NAME' fetches a model"},
  {"search", "nothing is searched; 'weft pull hf:USER/REPO' fetches a model of Hugging Face"},
  {"delete remove", "'weft rm NAME' removes a model"},
  {"import", "models are used where they are: give the path of the file"},
  {"convert_hf_to_gguf.py convert-hf-to-gguf", "'weft convert DIR OUT.gguf' makes a GGUF file of a folder"},
  {"server llama-server", "'weft serve' takes the arguments of llama-server"},
  {"cli main llama-cli llama", "'weft chat' takes the arguments of llama-cli"},
  {"completion complete generate llama-completion", "'weft run' takes the arguments of llama-completion"},
  {"embedding embeddings llama-embedding", "'weft embed' takes the arguments of llama-embedding"},
  {"llama-bench", "'weft bench' takes the arguments of llama-bench"},
  {"batched-bench llama-batched-bench", "'weft bench -npl 1,2,4' measures several sequences at once"},
  {"llama-quantize quantise", "'weft quantize' takes the arguments of llama-quantize"},
  {"llama-perplexity ppl", "'weft perplexity' takes the arguments of llama-perplexity"},
  {"llama-imatrix", "'weft imatrix' takes the arguments of llama-imatrix"},
  {"llama-tokenize tokenise", "'weft tokenize' takes the arguments of llama-tokenize"},
  {"gguf gguf-dump llama-gguf", "'weft inspect FILE' shows what a GGUF file holds"},
  {"gguf-split llama-gguf-split merge split",
   "split files are read as they are; 'weft quantize FIRST OUT COPY' joins them"},
  {"export-lora llama-export-lora", "--lora FILE applies an adapter when a model is loaded"},
  {"rpc-server llama-rpc-server", "a model runs in one process on one machine"},
  {"mtmd-cli llama-mtmd-cli llava", "'weft run' takes --mmproj, --image and --audio"},
  {"tts llama-tts", "models write text only: no audio"},
  {"rerank reranking", "'weft serve' answers it: POST /v1/rerank; 'weft embed --pooling rank' scores pairs"},
  {"api", "'weft serve' answers over HTTP"},
  {"update upgrade", "nothing updates itself"},
};

static const char *meant_elsewhere(const char *name) {
  size_t n = strlen(name);
  for (size_t i = 0; i < COUNT(elsewhere); i++)
    for (const char *at = elsewhere[i].names; *at; at += strcspn(at, " "), at += *at == ' ')
      if (strcspn(at, " ") == n && !memcmp(at, name, n)) return elsewhere[i].what;
  return NULL;
}

static int unknown_command(const char *name) {
  const char *what = meant_elsewhere(name);
  if (what) return usage_error("unknown command '%s'; %s", name, what);
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

// The sandbox is a filter of system calls. It is on unless --no-sandbox comes before the command, or the command needs
// to run another program.
static const char *sandbox = "off";
static bool sandbox_wanted, fetching, talking;
static int processes = 1;           // that compute together, started by MPI
static long partner;
const char *sandbox_state(void) { return sandbox; }
bool sandbox_is_wanted(void) { return sandbox_wanted; }

void enter_sandbox(enum confine_kind kind) {
  if (sandbox_wanted && !confine(kind, talking)) sandbox = "off: this system has no seccomp filters";
}

void sandbox_signals(long other, bool now) {
  partner = other;
  if (now && sandbox_wanted) confine_signals(other);
}

// Without the rule for a file, opening it would fail as "Permission denied".
static void end_without_descriptors(void) {
  struct rlimit r;
  int status = getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur > INT_MAX
                 ? failed("no descriptors are left to open files with")
                 : failed("no descriptors are left to open files with: this process may have %d (ulimit -n)",
                          (int)r.rlim_cur);
  fflush(stdout);
  _exit(status);
}

bool computes_together(void) { return processes > 1; }

// A list of files as bytes: of each file a letter for its rights, its path, and a NUL.
static void write_list(str *out, const confine_file *files, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const confine_file *f = &files[i];
    str_add(out, f->folders ? "f" : f->writes ? "w" : "r");
    str_addn(out, f->path, strlen(f->path) + 1);
  }
}

// The list of process 0, which has parsed the command line.
static void enter_files_of_first(void *ctx, const void *bytes, size_t n) {
  VEC(confine_file) files = {0};
  (void)ctx;
  for (const char *at = bytes, *end = at + n; at < end; at += strlen(at) + 1) {
    confine_file f = {at + 1, *at == 'w' || *at == 'f', *at == 'f'};
    vec_push(&files, f);
  }
  enter_files(files.at, files.n);
  vec_free(&files);
}

static void tell_list(const confine_file *files, size_t n) {
  str list = {0};
  write_list(&list, files, n);
  weft_ranks_tell(list.at, list.n);
  str_free(&list);
}

void enter_files(const confine_file *files, size_t n) {
  if (!sandbox_wanted) return;
  if (processes > 1) tell_list(files, n);
  if (confine_to(files, n) == CONFINE_NO_DESCRIPTORS) end_without_descriptors();
  if (talking) confine_signals(partner);
  talking = false;
}

void sandbox_fetched(void) {
  if (fetching) enter_sandbox(CONFINE_FILES);
  fetching = false;
}

static bool is_command(const char *word) {
  for (size_t i = 0; i < COUNT(commands); i++) if (!strcmp(commands[i].name, word)) return true;
  return false;
}

static bool command_is(const char *command, const char *name) { return command && !strcmp(command, name); }

// The kind of filter that a command starts with. A server replaces it by a tighter one once its socket listens; a
// download before that needs connections. A chat starts a process that reads the keyboard (typed.h); each of the two
// stops the other.
static enum confine_kind confinement_of(const char *command, bool fetches) {
  if (command_is(command, "serve")) return CONFINE_OPENING;
  if (fetches) return CONFINE_FETCHING;
  return command_is(command, "profile") ? CONFINE_COUNTING : CONFINE_FILES;
}

// Returns why a driver cannot run in the sandbox; NULL if the device has none.
static const char *driver_reason(void) {
  static const struct { const char *device, *why; } drivers[] = {
    {"CL", "off: DEV=CL, as drivers run compilers, linkers and services"},
    {"CUDA", "off: DEV=CUDA, as the driver opens devices, runs programs and makes code"},
    {"METAL", "off: DEV=METAL, as the system's compiler of kernels is a service of its own"},
    {"NV", "off: DEV=NV, as it opens devices and runs ptxas"},
    {"VK", "off: DEV=VK, as drivers open devices and make code"}};
  for (size_t i = 0; i < COUNT(drivers); i++)
    if (env_device_is(drivers[i].device)) return drivers[i].why;
  return NULL;
}

// Decides whether there is one, and says so for people.
static void decide_sandbox(bool wanted) {
#ifdef WEFT_SANITIZE
  wanted = false;           // the sanitizers run other programs
#endif
  bool compiler = !strcmp(env_str(ENV_RENDER), "c");
  const char *driver = driver_reason();
  sandbox_wanted = wanted && !compiler && !driver;
  if (!wanted) sandbox = "off: --no-sandbox";
  else if (compiler) sandbox = "off: RENDER=c runs a C compiler";
  else if (driver) sandbox = driver;
  else if (confine_knows_files())
    sandbox = "on: system calls from a list: no other programs, no connections, no signals to other processes, no "
              "memory that is writable and executable at once; no files but those of the command; another process has "
              "the kernel cache";
  else
    sandbox = "on: system calls from a list: no other programs, no connections, no signals to other processes, no "
              "memory that is writable and executable at once; all files, the kernel cache too, since this kernel has "
              "no Landlock";
}

static void start_sandbox(const char *command, bool fetches) {
  fetching = fetches && !command_is(command, "serve");
  talking = !command || command_is(command, "chat") || !is_command(command);
  enter_sandbox(confinement_of(command, fetches));
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
  VEC(char *) all = {0};                // typed text is continued without a template
  for (int i = 0; i < argc; i++) vec_push(&all, argv[i]);
  vec_push(&all, option);
  vec_push(&all, name);
  vec_push(&all, NULL);
  int status = chat_command(argc + 2, all.at);
  vec_free(&all);
  return status;
}

// Returns whether the first word is a model instead of a command.
static bool names_a_model(const char *word) {
  const char *dot = strrchr(word, '.');
  return (dot && !strcmp(dot, ".gguf")) || !access(word, F_OK) || pull_is_name(word);
}

// A command line that begins with an option starts a chat; it is an error if a command follows.
static int talk_or_point(int argc, char **argv) {
  const char *word = settings_model(&chat_options, &run_options, argc, argv);
  if (!word || !is_command(word) || !access(word, F_OK)) return talk_command(argc, argv);
  return usage_error("options stand after the command: weft %s %s ...", word, argv[1]);
}

static int dispatch(int argc, char **argv) {
  error err = {0};
  if (argc < 2) { print_help(stderr); return EXIT_USAGE; }
  const char *first = argv[1];
  if (!strcmp(first, "--version") || !strcmp(first, "version")) {
    printf("weft %s\n", program_version());
    return EXIT_OK;
  }
  if (!strcmp(first, "-h") || !strcmp(first, "--help")) { print_help(stdout); return EXIT_OK; }
  if (!strcmp(first, "help")) return help_command(argc - 1, argv + 1);
  if (strcmp(first, "env") && strcmp(first, "doctor") && env_check(&err)) return usage_error("%s", err.text);
  die_inject(env_str(ENV_WEFT_DIE));
  if (is_command(first)) return run_named(first, argc - 1, argv + 1);
  if (first[0] == '-') return talk_or_point(argc, argv);
  return names_a_model(first) ? talk_command(argc, argv) : unknown_command(first);
}

// If the caller has closed standard descriptors, the next opened files would get their numbers and receive the output.
// /dev/null takes their place, opened in the wrong direction, so that reads and writes fail as on a closed descriptor.
static void hold_standard_descriptors(void) {
  for (int fd = 0; fd >= 0 && fd <= 2;) {
    fd = 0;
    while (fd <= 2 && fcntl(fd, F_GETFD) >= 0) fd++;
    if (fd <= 2) fd = open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_NOCTTY);
  }
}

// Looks for -v, with which the sandbox also reports refused calls. The filter is installed before options are parsed.
static bool asks_for_words(int argc, char **argv) {
  static const char *const names[] = {"-v", "--verbose", "--log-verbose"};
  for (int i = 1; i < argc; i++)
    for (size_t k = 0; k < COUNT(names); k++) if (!strcmp(argv[i], names[k])) return true;
  return false;
}

// Whether the launcher says that all processes are on this machine: mpirun of Open MPI and of MPICH, or srun.
static bool on_one_machine(void) {
  static const struct { const char *all, *local; } counts[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}, {"PMI_SIZE", "MPI_LOCALNRANKS"}};
  for (size_t i = 0; i < COUNT(counts); i++) {
    const char *n = env_of_option(counts[i].all), *local = env_of_option(counts[i].local);
    if (n && local) return !strcmp(n, local);
  }
  const char *machines = env_of_option("SLURM_STEP_NUM_NODES");
  return machines && !strcmp(machines, "1");
}

// Settings that MPI's libraries read when they are loaded or started. The sandbox lets no process read another one's
// memory, so messages go through memory that they share; the names are those of Open MPI 4 and 5, MPICH, and UCX, whose
// log has an error for each device that it asks for at the end. On one machine they use no TCP, for which they would
// listen on all addresses, without keys.
static void set_up_mpi(void) {
  static const struct { const char *name, *value; bool always; } all[] = {
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none", true},
    {"OMPI_MCA_smsc", "^cma,xpmem,knem", true},
    {"MPIR_CVAR_CH4_CMA_ENABLE", "0", true},
    {"UCX_LOG_LEVEL", "fatal", false}};
  if (!sandbox_wanted) return;
  for (size_t i = 0; i < COUNT(all); i++) os_set_env(all[i].name, all[i].value, all[i].always);
  bool one = on_one_machine();
  os_set_env("UCX_TLS", one ? "^cma,tcp" : "^cma", false);
  if (one) os_set_env("OMPI_MCA_btl", "^tcp", false);
}

// Open MPI reserves 4 MiB of shared memory and ends by SIGSEGV if they are not there and TCP is not allowed. (Measured:
// 4,200 KiB free are too few, 4,400 are enough, for two processes and for four.)
static int check_shared_memory(weft_error *err) {
  enum { LEAST_KIB = 4300 };
  static const char folder[] = "/dev/shm";
  const char *links = env_of_option("OMPI_MCA_btl"), *n = env_of_option("OMPI_COMM_WORLD_LOCAL_SIZE");
  struct statvfs fs;
  if (!links || strcmp(links, "^tcp") || !n || !strcmp(n, "1")) return 0;
  int fd = open(folder, O_RDONLY);
  bool told = fd >= 0 && !fstatvfs(fd, &fs);
  if (fd >= 0) close(fd);
  if (!told) return 0;
  uint64_t free_kib = (uint64_t)fs.f_bavail * fs.f_frsize >> 10;
  if (free_kib >= LEAST_KIB) return 0;
  snprintf(err->text, sizeof err->text,
           "Open MPI needs %d KiB of shared memory, and %s has %llu KiB free: give it more (docker run --shm-size, "
           "mount -o remount,size=64m %s), or use TCP: OMPI_MCA_btl=tcp,self",
           LEAST_KIB, folder, (unsigned long long)free_kib, folder);
  return -1;
}

// All processes are connected, and the sandbox lets MPI accept no other connections. It would try again and again.
static void close_ports_of_mpi(void) {
  if (processes > 1 && sandbox_wanted && !confine_listeners())
    fprintf(stderr, "weft: warning: ports of MPI stay open: connections to them can stop this program\n");
}

// Returns whether processes started by MPI run this command together. Each process runs other commands alone.
static bool opens_a_model(const char *command) {
  static const char *const names[] = {"run",        "chat",    "serve",   "bench", "embed",
                                      "perplexity", "imatrix", "profile", "tune"};
  static const char *const others[] = {"--version", "version", "-h", "--help", "help"};
  bool opens = command && !is_command(command);
  for (size_t i = 0; i < COUNT(names); i++) opens |= command_is(command, names[i]);
  for (size_t i = 0; i < COUNT(others); i++) opens &= !command_is(command, others[i]);
  return opens;
}

// Runs a process of MPI other than the first: it computes what the first one asks for and prints nothing.
static int follow_first(int rank, int argc, char **argv) {
  weft_error err;
  if (weft_ranks_agree((const char *const *)argv, argc, &err)) return failed("process %d: %s", rank, err.text);
  enter_sandbox(CONFINE_FILES);
  keep_cache_apart(0);
  int quiet = open("/dev/null", O_RDWR);
  if (quiet >= 0) { dup2(quiet, STDIN_FILENO); dup2(quiet, STDOUT_FILENO); close(quiet); }
  int status = weft_ranks_follow(enter_files_of_first, NULL, &err) ? failed("process %d: %s", rank, err.text) : EXIT_OK;
  weft_cache_end();
  if (!status) weft_ranks_leave();
  return status;
}

// With a smaller stack a command ends by a signal, in a library that it uses. Writing to stderr takes 8 KiB of stack by
// itself, so the message goes past it.
enum { LEAST_STACK_KIB = 128 };

static int check_stack(void) {
  struct rlimit r;
  char text[128];
  if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur >= (rlim_t)LEAST_STACK_KIB << 10) return EXIT_OK;
  int n = snprintf(text, sizeof text, "weft: error: the limit of a stack is %d KiB, and at least %d KiB are needed "
                   "(ulimit -s 8192)\n", (int)(r.rlim_cur >> 10), LEAST_STACK_KIB);
  ssize_t done = write(STDERR_FILENO, text, (size_t)n);
  (void)done;
  return EXIT_FAILED;
}

int main(int argc, char **argv) {
  start_time = now_s();
  if (check_stack()) return EXIT_FAILED;
  hold_standard_descriptors();
  json_set_alloc_funcs(xmalloc, free);   // out of memory ends the program instead of truncating JSON
  signal(SIGPIPE, SIG_IGN);   // a closed pipe shows as EPIPE, which out.c treats as the end
  signal(SIGXFSZ, SIG_IGN);   // a file size limit shows as EFBIG: no cache, or a message
  interrupt_start();
  bool open = argc > 1 && !strcmp(argv[1], "--no-sandbox");
  argc -= open;
  argv += open;
  weft_error err;
  if (exported_begin(&argc, &argv, &err)) return failed("%s", err.text);
  const char *name = argc > 1 ? argv[1] : NULL;
  int rank = 0;
  decide_sandbox(!open);
  set_up_mpi();
  if (opens_a_model(name) && (check_shared_memory(&err) || weft_ranks_join(&rank, &processes, &err)))
    return failed("%s", err.text);
  close_ports_of_mpi();
  if (!open && asks_for_words(argc, argv)) confine_explain();
  if (rank) return follow_first(rank, argc - 1, argv + 1);
  if (processes > 1) weft_ranks_agree((const char *const *)argv + 1, argc - 1, &err);      // rank 0 takes part as well
  start_sandbox(name, pull_asked(argc, argv) || (name && (!strcmp(name, "pull") || !strcmp(name, "loadtest"))));
  int status = dispatch(argc, argv);
  if (fflush(stdout) && errno != EPIPE) status = failed("stdout could not be written: %s", strerror(errno));
  weft_cache_end();
  weft_ranks_leave();
  return status;
}
