// render: converts a linear program (codegen/program.h) to source text for a compiler.
//
// A renderer is one file and one row of the table in render.c: a name, its capabilities (struct target; codegen makes
// only programs that respect them) and a function from program to text. To add one: write the file, declare its
// function here, add the row (a C-like language is a dialect of cstyle.h). Invariant: the text depends on the program
// and the options only, so equal programs give equal text, and either can be a cache key.
#ifndef WEFT_RENDER_H
#define WEFT_RENDER_H
#include "codegen/descriptor.h"
#include "codegen/program.h"

// The properties of the machine on which the text depends. NULL and 0 mean unknown; the text then states nothing.
typedef struct render_options {
  const char *cpu, *features, *tune;     // LLVM's names: "x86-64-v4", "+avx512f,+fma", "znver5"
  int vector_bits;                       // preferred vector width: 512 makes LLVM use the full registers
  descriptor_set descriptors;            // dot-product instructions that may be used
  unsigned spirv;                        // Vulkan device: bits of enum spirv_can
  bool lacks_doubles;                    // OpenCL: F64 is emulated with integers (soft_doubles.h)
  // LLVM: programs only move F16 (target.has_f16 is false), as integers: LLVM 19 would call functions for vectors of
  // F16
  bool lacks_halves;
} render_options;

// Capabilities of a Vulkan device. For F32 and F64 in kernels: infinities, NaNs and the sign of zero are kept;
// subnormal numbers are kept; results are rounded to nearest. Dot products of four signed by four unsigned bytes.
// Conversions of halves by one instruction that keeps subnormals and rounds to nearest (otherwise with integers).
// SPIRV_SPREADS: too many work-groups for the first dimension spread over the second (render_spreads).
enum spirv_can {
  SPIRV_F64 = 1,
  SPIRV_KEEPS_NAN = 2,
  SPIRV_KEEPS_DENORMALS = 4,
  SPIRV_ROUNDS = 8,
  SPIRV_KEEPS_NAN_64 = 16,
  SPIRV_KEEPS_DENORMALS_64 = 32,
  SPIRV_ROUNDS_64 = 64,
  SPIRV_DOTS = 128,
  SPIRV_F16 = 256,
  SPIRV_KEEPS_DENORMALS_16 = 512,
  SPIRV_ROUNDS_16 = 1024,
  SPIRV_SPREADS = 2048
};

// A function attribute in LLVM IR text: the compiler must keep instructions in the order of the text.
#define RENDER_IN_ORDER "\"in-order\""

typedef int render_fn(const program *p, const render_options *opt, str *out, error *err);

typedef struct renderer {
  const char *name;                      // value of RENDER=
  const char *suffix;                    // suffix of a file with its text: ".ll", ".c", ".cl", ".metal", ".spv"
  // What programs may contain. vector_bytes, has_fma and has_f16 are the minimum of all machines; a device raises them.
  target target;
  // Appends the text of one kernel (a complete source file) to out. Returns -1 and sets err, which names the uop, if
  // the renderer does not support the program; out may then contain a partial text.
  render_fn *render;
  bool is_binary;                        // output is 32-bit words, not text
} renderer;

const renderer *render_find(const char *name);         // NULL if there is no renderer of that name
const renderer *render_at(size_t i);                   // the table, in order; NULL past its end
// Calls fn; a broken invariant becomes an error as well (attempt.h). -1: out is unchanged.
int render_text(render_fn *fn, const program *p, const render_options *opt, str *out, error *err);

int render_llvm(const program *p, const render_options *opt, str *out, error *err);
// LLVM IR for its NVPTX target
int render_nvptx(const program *p, const render_options *opt, str *out, error *err);
int render_c(const program *p, const render_options *opt, str *out, error *err);
// The kernels of n programs as functions of one file: number i is `KERNEL void k<i>_<name>`. The including file defines
// KERNEL and includes stdbool.h and stdint.h first.
int render_c_unit(const program *const *p, size_t n, str *out, error *err);
int render_opencl(const program *p, const render_options *opt, str *out, error *err);
int render_metal(const program *p, const render_options *opt, str *out, error *err);
// a SPIR-V module: 32-bit words in this machine's byte order
int render_spirv(const program *p, const render_options *opt, str *out, error *err);

// Are the work-groups of p spread over two dimensions? Group (x, y) of (w, h) then has the id y * w + x and ends at
// once unless that is below the number of groups, a word after the other arguments (spirv.c).
static inline bool render_spreads(const program *p, unsigned can) {
  return can & SPIRV_SPREADS && p->global[0] && !p->global[1] && !p->global[2];
}

// Prints a SPIR-V module for reading: its words, one instruction per line.
void render_words(str *out, const str *module);

// ---- helpers for renderers ------------------------------------------------------------------------------------------

// For each position of a linear program: the position at which its loop or IF closes (and back); SIZE_MAX for others.
// The arena owns the array. Returns -1 and sets err if they do not match.
int render_match(const program *p, arena *mem, size_t **match, error *err);
bool render_is_written(const program *p, const uop *memory);             // is there a STORE to this PARAM or LOCAL?
// the number of a VAR among the arguments, by name; -1 if absent
int render_var(const program *p, const uop *var);
const uop *render_memory(const uop *index);                              // the PARAM or LOCAL below an INDEX
// Must this BARRIER be kept? Not if another one precedes it with no use of work-group memory between them; a BARRIER
// for PARAMs is always kept.
bool render_needs_barrier(const program *p, size_t at);
int shuffle_lane(const uop *shuffle, int i);                             // the source lane of result lane i
// number of trailing zero bits that the value always has; memo: earlier answers
int render_zeros(const uop *integer, map *memo);

// Estimated accesses of a GPU kernel to global memory (access.c), and its work. groups, items: of the launch. loads:
// load instructions of a work-item; loaded: bytes. sectors: 32-byte sectors that they touch per subgroup of 32, counted
// for each instruction. useful: distinct bytes in these that are needed. shared: words of work-group memory that a
// work-item loads or stores. burst: useful bytes of the loop iterations issued together, for the loop with most. ahead:
// bytes that a work-item loads in all of these iterations but the first. nodes: operations of a work-item in the
// program; instructions: these per lane. macs: byte products of 32 work-items on tensor cores.
//
// vars: values in the order of p->vars; NULL: the maxima. Returns false if there are no such loads or sizes are not
// constant.
typedef struct kernel_access {
  double groups, items, bytes, nodes, instructions, macs, loads, loaded, sectors, useful, shared, burst, ahead;
} kernel_access;
bool render_access(const program *p, const int64_t *vars, kernel_access *out);
void render_access_line(str *out, const program *p);                     // as a line of text
static inline bool is_pow2(int64_t n) { return n > 0 && !(n & (n - 1)); }
#endif
