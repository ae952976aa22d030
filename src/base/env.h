// The environment table: every variable that Weft reads, in one place.  `weft env` prints it.  Values are read once, at
// the first use of any of them; env_set overrides one (tests and command-line flags).
#ifndef WEFT_ENV_H
#define WEFT_ENV_H
#include "base/base.h"

//     name, default, what it does
#define ENV_TABLE(E) \
  E(DEBUG, "0", "1 schedule, 2 kernels with time and GB/s, 3 OptOps, 4 source, 5 IR, 6 rewrites, 7 assembly (each " \
  "includes the ones before)") \
  E(SPEC, "0", "1 checks the IR between all passes") \
  E(BEAM, "0", "N: run searches for better kernels when it loads a model, N at a time going on (0: no search)") \
  E(BEAM_SKIP_MS, "0", "milliseconds: a kernel that takes no longer is not searched") \
  E(WEFT_TUNE, "off", "background: looks for better kernels while a model runs, when the machine has time to spare; " \
  "always: even if it is busy; now: when a model is loaded, as BEAM=4; off") \
  E(NOOPT, "0", "1 leaves every loop as it is scheduled: slow, simple code") \
  E(MV_THREADS_PER_ROW, "32", "matvec: work-items that share one row (where there is LOCAL)") \
  E(MV_BLOCKSIZE, "4", "matvec: rows of a work-group (where there is LOCAL)") \
  E(MV_ROWS_PER_THREAD, "4", "matvec: rows that one thread computes at once") \
  E(PREFETCH, "", "how far ahead streams of weights are asked for: KiB[,t0|t1|t2|nta], 0: not at all (default: what " \
  "this machine likes)") \
  E(DEV, "CPU", "device: CPU, CL (OpenCL), CUDA (NVIDIA's GPUs), NV (the same by their kernel driver " \
  "alone), METAL (Apple's GPUs, on a Mac), REF (f64 interpreter), NULL (compiles and counts only)") \
  E(CL_WORK, "", "how DEV=CL shares out work: groups (work-items that share memory) or tiles (a work-item is a core)" \
  "; default: what suits the device") \
  E(RENDER, "llvm", "how CPU kernels are made: llvm, or c (by the system's C compiler); with DEV=NULL also opencl, " \
  "nvptx, metal: texts of kernels for a device that is not here (DEBUG=4 shows them)") \
  E(WEFT_PTXAS, "", "the program that makes code of PTX for DEV=NV (default: ptxas in the PATH)") \
  E(ISOLATE, "1", "0: LLVM compiles inside this process, not in a child of it that can do nothing else") \
  E(WEFT_CPU, "native", "instructions that kernels may use: native, x86-64-v2, x86-64-v3, x86-64-v4 (AArch64: " \
  "armv8-a, armv8.2-a, armv8.6-a)") \
  E(VIZ, "0", "1 leaves weft-viz.html behind, as weft viz writes it; or the name of a page") \
  E(WEFT_CACHE, "", "folder for compiled kernels (default $XDG_CACHE_HOME/weft), or off") \
  E(XDG_CACHE_HOME, "", "where caches live (default $HOME/.cache)") \
  E(XDG_STATE_HOME, "", "where the history of weft chat lives (default $HOME/.local/state)") \
  E(HOME, "", "home folder, for the defaults of these two") \
  E(LLAMA_CACHE, "", "folder for models that are fetched (default: llama.cpp's where that is there, else models in " \
  "the cache)") \
  E(HF_ENDPOINT, "https://huggingface.co", "where Hugging Face's models come from") \
  E(MODEL_ENDPOINT, "", "the same, and before it: llama.cpp's name for it") \
  E(HF_TOKEN, "", "token for models of Hugging Face that need one; it goes there and nowhere else") \
  E(OLLAMA_REGISTRY, "https://registry.ollama.ai", "where ollama's models come from") \
  E(NO_COLOR, "", "if set, no colours") \
  E(LISTEN_FDS, "", "from systemd: how many sockets it hands over; serve takes one") \
  E(LISTEN_PID, "", "from systemd: the process that they are for") \
  E(NOTIFY_SOCKET, "", "from systemd: where serve says how it is") \
  E(WATCHDOG_USEC, "", "from systemd: microseconds within which serve says that all is well") \
  E(WATCHDOG_PID, "", "from systemd: the process that has to")

enum env_var {
#define E(name, def, help) ENV_##name,
  ENV_TABLE(E)
#undef E
  ENV_COUNT
};

const char *env_name(enum env_var v);
const char *env_help(enum env_var v);
const char *env_default(enum env_var v);
const char *env_str(enum env_var v);             // the value in force; never NULL
int env_int(enum env_var v);                     // the same as a number; 0 where it is none
void env_set(enum env_var v, const char *value); // overrides; the text is copied.  NULL: back to the environment
// where the system's loader looks besides, folders with colons between
const char *env_library_path(void);
// where OpenSSL looks for certificates, a file and folders with colons between; "": at its usual places
const char *env_certificate_file(void);
const char *env_certificate_folders(void);
static inline int debug_level(void) { return env_int(ENV_DEBUG); }
#endif
