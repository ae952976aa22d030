// render: from a linear program (codegen/program.h) to source text that a compiler takes.
//
// A renderer is one file and one row of the table in render.c: a name, what it can do (struct target: codegen makes
// only programs that keep to it) and a function from program to text.  To add one: write the file, declare its function
// here, add the row (a C-like language is a dialect of cstyle.h).  Invariant: the text depends on the program and the
// options alone, so equal programs give equal text, and caches may be keyed by either.
#ifndef WEFT_RENDER_H
#define WEFT_RENDER_H
#include "codegen/descriptor.h"
#include "codegen/program.h"

// What the machine is like, as far as the text depends on it.  NULL and 0 mean: nothing known, nothing said.
typedef struct render_options {
  const char *cpu, *features, *tune;     // LLVM's names: "x86-64-v4", "+avx512f,+fma", "znver5"
  int vector_bits;                       // preferred vector width: 512 asks LLVM to use the full registers
  descriptor_set descriptors;            // instructions for dot products that may be used
  unsigned spirv;                        // of a device of Vulkan: bits of enum spirv_can
  bool lacks_doubles;                    // OpenCL: F64 is computed by its bits (soft_doubles.h)
  // LLVM: programs only move F16 (target.has_f16 is false), as integers: LLVM 19 would call functions for vectors of
  // them
  bool lacks_halves;
} render_options;

// What SPIR-V may ask of a device: doubles; of the kernels' F32 and F64: that infinities, NaNs and the sign of zero are
// kept, that denormal numbers are, and that results are rounded to the nearest; dot products of four signed bytes by
// four unsigned ones; conversions of halves by one instruction, which keeps denormals and rounds so (without it: by
// integers). SPIRV_SPREADS: work-groups may be too many for the first dimension, and be spread over the second
// (render_spreads).
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

// A mark in a text of LLVM IR (a function attribute): the compiler is to leave instructions in the order of the text.
#define RENDER_IN_ORDER "\"in-order\""

typedef int render_fn(const program *p, const render_options *opt, str *out, error *err);

typedef struct renderer {
  const char *name;                      // as RENDER= names it
  const char *suffix;                    // of a file with its text: ".ll", ".c", ".cl", ".metal", ".spv"
  // What programs may contain.  vector_bytes, has_fma and has_f16 are the least that any machine has: a device raises
  // them.
  target target;
  // Appends the text of one kernel (a complete source file) to out.  -1 and err, which names the uop, where the program
  // holds something that this renderer does not do; then out may have been appended to.
  render_fn *render;
  bool is_binary;                        // words of 32 bits and no text
} renderer;

const renderer *render_find(const char *name);         // NULL if there is none of that name
const renderer *render_at(size_t i);                   // the table, in order; NULL past its end
// As fn does it; a broken invariant is an error, too (attempt.h).  -1: out is as it was.
int render_text(render_fn *fn, const program *p, const render_options *opt, str *out, error *err);

int render_llvm(const program *p, const render_options *opt, str *out, error *err);
// LLVM IR for its NVPTX target
int render_nvptx(const program *p, const render_options *opt, str *out, error *err);
int render_c(const program *p, const render_options *opt, str *out, error *err);
// The kernels of n programs as functions of one file: number i is `KERNEL void k<i>_<name>`, for a file that defines
// KERNEL, and includes stdbool.h and stdint.h, before.
int render_c_unit(const program *const *p, size_t n, str *out, error *err);
int render_opencl(const program *p, const render_options *opt, str *out, error *err);
int render_metal(const program *p, const render_options *opt, str *out, error *err);
// 32-bit words and no text: a module of SPIR-V, in this machine's order of bytes
int render_spirv(const program *p, const render_options *opt, str *out, error *err);

// Whether the work-groups of p are numbered over two dimensions: its group (x, y) of (w, h) has the number y * w + x,
// and ends at once if that is not below the number of them, a word behind its other arguments (spirv.c).
static inline bool render_spreads(const program *p, unsigned can) {
  return can & SPIRV_SPREADS && p->global[0] && !p->global[1] && !p->global[2];
}

// A module of SPIR-V for people: its words, an instruction a line.
void render_words(str *out, const str *module);

// ---- helpers for renderers ------------------------------------------------------------------------------------------

// For each position of a linear program: where the loop or IF that opens there is closed (and back); elsewhere
// SIZE_MAX. The array is the arena's.  -1 and err where they do not match up.
int render_match(const program *p, arena *mem, size_t **match, error *err);
bool render_is_written(const program *p, const uop *memory);             // is there a STORE to this PARAM or LOCAL?
// the number of a VAR among the arguments, by name; -1: none
int render_var(const program *p, const uop *var);
const uop *render_memory(const uop *index);                              // the PARAM or LOCAL below an INDEX
// Whether a BARRIER has something to part from what follows: not where another one stands before, and nothing uses the
// work-group's memory in between; always, where it is for PARAMs as well.
bool render_needs_barrier(const program *p, size_t at);
int shuffle_lane(const uop *shuffle, int i);                             // the source lane of result lane i
// so many bits at its end are 0, whatever it is; memo: of earlier answers
int render_zeros(const uop *integer, map *memo);

// What a kernel of work-groups asks of memory that is not the group's (access.c), and of its processors. loads:
// instructions of an item; sectors: of 32 bytes, that they touch for 32 items in step, counted anew for each
// instruction; useful: different bytes of these that are asked for; shared: words of the work-group's memory that an
// item loads or stores; burst: those of the turns of a loop that are made
// at once, of the loop that asks for most; ahead: bytes that an item loads in all but the first of these turns. nodes:
// operations of an item, as the program has them; instructions: these by lane; macs: products of bytes that 32 items
// make on tensor cores. vars: values, in the order of p->vars; NULL: the largest. False: it has no such loads, or sizes
// are not constant.
typedef struct kernel_access {
  double groups, items, bytes, nodes, instructions, macs, loads, loaded, sectors, useful, shared, burst, ahead;
} kernel_access;
bool render_access(const program *p, const int64_t *vars, kernel_access *out);
void render_access_line(str *out, const program *p);                     // the same, for people and tools
static inline bool is_pow2(int64_t n) { return n > 0 && !(n & (n - 1)); }
#endif
