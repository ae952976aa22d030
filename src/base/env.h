// The environment table: every variable that Weft reads, in one place. `weft env` prints it. Values are read once, at
// the first use of any of them; env_set overrides one (tests and command-line flags).
#ifndef WEFT_ENV_H
#define WEFT_ENV_H
#include "base/base.h"
#include "base/str.h"

//     name, default, values ("a|b": these words; "0..7": a number, whole unless a bound has a point; "URL"; "": any,
//     or checked where it is used), what it does
#define ENV_TABLE(E) \
  E(DEBUG, "0", "0..7", "1 schedule, 2 kernels with time and GB/s, 3 OptOps, 4 source, 5 IR, 6 rewrites, 7 assembly " \
  "(each " \
  "includes the ones before)") \
  E(SPEC, "0", "0|1", "1 checks the IR between all passes") \
  E(BEAM, "0", "0..64", "N: a search for better kernels when run loads a model, which keeps the best N in each round " \
  "(0: no search)") \
  E(BEAM_SKIP_MS, "0", "0..1000000.0", "milliseconds: kernels this fast are not searched") \
  E(WEFT_TUNE, "off", "off|background|always|now", "background: searches for better kernels while a model runs and " \
  "processors are idle; " \
  "always: even if they are busy; now: when a model is loaded, as BEAM=4; off") \
  E(NOOPT, "0", "0|1", "1: no loop is changed after scheduling: slow, simple code") \
  E(MV_THREADS_PER_ROW, "32", "1..1024", "matvec: work-items that share one row (if there is LOCAL)") \
  E(MV_BLOCKSIZE, "4", "1..1024", "matvec: rows of a work-group (if there is LOCAL)") \
  E(MV_ROWS_PER_THREAD, "4", "1..1024", "matvec: rows that one thread computes at once") \
  E(PREFETCH, "", "", "how far ahead weights are prefetched: KiB[,t0|t1|t2|nta], 0: not at all (default: as measured " \
  "on this machine)") \
  E(DEV, "CPU", "", "device: CPU, CL (OpenCL; CL:NAME or CL:NUMBER: one of several, as weft env lists them), CUDA " \
  "(NVIDIA's GPUs), NV (NVIDIA's GPUs by the kernel driver " \
  "alone), METAL (Apple's GPUs, on a Mac), VK (Vulkan; VK:NAME as with CL), REF (f64 interpreter), NULL (compiles " \
  "and counts only)") \
  E(CL_WORK, "", "groups|tiles", "how DEV=CL shares out work: groups (work-items that share memory) or tiles (a " \
  "work-item is a core)" \
  "; default: what suits the device") \
  E(VK_VALIDATE, "0", "0|1", "1: Vulkan devices run with the validation layer, whose messages go to standard error") \
  E(RENDER, "llvm", "", "how CPU kernels are made: llvm, or c (by the system's C compiler); with DEV=NULL also " \
  "opencl, " \
  "nvptx, metal, spirv: source of kernels for devices of other machines (DEBUG=4 shows it)") \
  E(WEFT_LLVM, "", "", "the file of LLVM's library, version 19 or newer (default: the newest that the system has)") \
  E(WEFT_PTXAS, "", "", "the program that compiles PTX for DEV=NV (default: ptxas in the PATH)") \
  E(ISOLATE, "1", "0|1", "0: LLVM compiles inside this process, not in a sandboxed child") \
  E(WEFT_CPU, "native", "", "instructions that kernels may use: native, x86-64-v2, x86-64-v3, x86-64-v4 (AArch64: " \
  "armv8-a, armv8.2-a, armv8.6-a)") \
  E(WEFT_LINK, "", "", "on several processes: the link that -sm auto assumes, as 'weft plan --link', or measured " \
  "(default: measured between machines; processes of one machine are split by rows)") \
  E(WEFT_RANK_BYTES, "65536", "1..1000000000", "on several processes: products of weights of at least N bytes are " \
  "split, and other sums of at least 16 N steps") \
  E(WEFT_WEIGHT_MEMORY, "0", "0..1000000000.0", "MiB of memory for the weights of a model: the rest is read " \
  "from the file when it is needed (0, the default: what is free)") \
  E(WEFT_DIE, "", "", "for tests: make the check at FILE:LINE fail, as FILE:LINE[:N]; N: at its N-th time") \
  E(VIZ, "0", "", "1: write weft-viz.html, as weft viz does; or the name of a page to write") \
  E(WEFT_CACHE, "", "", "folder for compiled kernels (default $XDG_CACHE_HOME/weft), or off") \
  E(XDG_CACHE_HOME, "", "", "folder of caches (default $HOME/.cache)") \
  E(XDG_STATE_HOME, "", "", "folder of the history of weft chat (default $HOME/.local/state)") \
  E(HOME, "", "", "home folder, for the defaults of XDG_CACHE_HOME and XDG_STATE_HOME") \
  E(LLAMA_CACHE, "", "", "folder for models that are fetched (default: llama.cpp's if it exists, else models " \
  "in " \
  "the cache)") \
  E(HF_ENDPOINT, "https://huggingface.co", "URL", "where Hugging Face's models come from") \
  E(MODEL_ENDPOINT, "", "URL", "llama.cpp's name of HF_ENDPOINT; preferred if both are set") \
  E(HF_TOKEN, "", "", "token for models of Hugging Face that need one; it goes there and nowhere else") \
  E(OLLAMA_REGISTRY, "https://registry.ollama.ai", "URL", "where ollama's models come from") \
  E(SSL_CERT_FILE, "", "", "a file of certificate authorities for https, in place of the system's") \
  E(SSL_CERT_DIR, "", "", "a folder of certificate authorities, under the names that 'openssl rehash' makes") \
  E(NO_COLOR, "", "", "if set, no colours") \
  E(TERM, "", "", "the kind of terminal: without it, and with dumb, no colours, no bars and no editing of lines") \
  E(LISTEN_FDS, "", "", "from systemd: number of sockets that it passes; serve takes one") \
  E(LISTEN_PID, "", "", "from systemd: the process that gets the sockets") \
  E(NOTIFY_SOCKET, "", "", "from systemd: the socket to which serve reports its state") \
  E(WATCHDOG_USEC, "", "", "from systemd: microseconds within which serve has to report that it is well") \
  E(WATCHDOG_PID, "", "", "from systemd: the process that has to report")

enum env_var {
#define E(name, def, values, help) ENV_##name,
  ENV_TABLE(E)
#undef E
  ENV_COUNT
};

const char *env_name(enum env_var v);
const char *env_help(enum env_var v);
const char *env_default(enum env_var v);
const char *env_str(enum env_var v);             // the value in use; never NULL
bool env_device_is(const char *kind);            // DEV names a device of this kind: CL for CL and CL:1
int env_int(enum env_var v);                     // the value as a number; 0 if it is not one
// Whether each variable has a value that the table allows. -1: one does not, and what it may be.
int env_check(error *err);
void env_set(enum env_var v, const char *value); // overrides; the text is copied. NULL: back to the environment
// The value of the variable of a command-line option (LLAMA_ARG_..., app/options.c); NULL: not set, or empty.
const char *env_of_option(const char *name);
// A folder of the user by the XDG rules: in the folder that `xdg` names (relative ones are ignored), else in `below` of
// the home folder. False: neither is known.
bool env_folder(enum env_var xdg, const char *below, const char *name, str *out);
// further folders where the system's loader searches, separated by colons
const char *env_library_path(void);
static inline int debug_level(void) { return env_int(ENV_DEBUG); }
#endif
