// Exports a model as C: see include/weft/export.h. Input: a model file. Output: one C file that computes the plan of
// one token: its kernels (render/c.c), its steps as calls in order, and a main that reads and writes ids. The plan is
// made on the null device, for an unknown processor; weights are read from the GGUF file unchanged. Invariant: the text
// depends only on the model and the context. Names from the file appear only in comments, limited to letters, digits,
// dots, dashes and underscores.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "base/attempt.h"
#include "base/env.h"
#include "base/newfile.h"
#include "base/str.h"
#include "device/kernel_set.h"
#include "device/plan_impl.h"
#include "engine/fail.h"
#include "engine/plans.h"
#include "model/codebook.h"
#include "render/render.h"

typedef struct writer {
  engine *e;
  const plan *p;
  const schedule *s;
  str out;
  int64_t book[BOOK_COUNT];      // bytes of each code book that is used
  error *err;
  int status;
} writer;

// ---- text common to all models --------------------------------------------------------------------------------------

static const char beginning[] =
  "#if !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE)\n"
  "#define _POSIX_C_SOURCE 200809L\n"
  "#endif\n"
  "#include <math.h>\n"
  "#include <stdbool.h>\n"
  "#include <stdint.h>\n"
  "#include <stdio.h>\n"
  "#include <stdlib.h>\n"
  "#include <string.h>\n"
  "#if defined(__unix__) || defined(__APPLE__)\n"
  "#include <fcntl.h>\n"
  "#include <sys/mman.h>\n"
  "#include <sys/stat.h>\n"
  "#include <unistd.h>\n"
  "#define MAPS 1\n"
  "#endif\n"
  "#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__\n"
  "#error \"the weights are little-endian\"\n"
  "#endif\n"
  "\n"
  "// Results depend on it that a * b + c is rounded twice, and the memory of intermediates is used for several "
  "types.\n"
  "#if defined(__clang__)\n"
  "#pragma STDC FP_CONTRACT OFF\n"
  "#elif defined(__GNUC__)\n"
  "#pragma GCC optimize(\"fp-contract=off\", \"no-strict-aliasing\", \"no-math-errno\")\n"
  "#endif\n"
  "#if defined(__GNUC__) || defined(__clang__)\n"
  "#define MAY_BE_UNUSED __attribute__((unused))\n"
  "#define KERNEL static __attribute__((noinline))\n"
  "#else\n"
  "#define MAY_BE_UNUSED\n"
  "#define __attribute__(x)\n"
  "#define KERNEL static\n"
  "#define __builtin_memcpy memcpy\n"
  "#define __builtin_sqrtf sqrtf\n"
  "#define __builtin_sqrt sqrt\n"
  "#define __builtin_truncf truncf\n"
  "#define __builtin_trunc trunc\n"
  "#define __builtin_floorf floorf\n"
  "#define __builtin_floor floor\n"
  "#define __builtin_prefetch(at, write, locality) ((void)(at))\n"
  "#endif\n"
  "\n"
  "static inline MAY_BE_UNUSED int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }\n"
  "static inline MAY_BE_UNUSED int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }\n"
  "static inline MAY_BE_UNUSED int64_t floordiv(int64_t a, int64_t b) {\n"
  "  return a / b - (a % b && (a < 0) != (b < 0));\n"
  "}\n"
  "static inline MAY_BE_UNUSED int64_t floormod(int64_t a, int64_t b) { return a - b * floordiv(a, b); }\n"
  "\n"
  "// ---- kernels: what each buffer is, says the call; tiles lo .. hi - 1 are computed ------------------------\n"
  "\n";

static const char calls[] =
  "#define BUFS(...) (unsigned char *[]){__VA_ARGS__}\n"
  "#define VARS(...) (const int64_t[]){__VA_ARGS__}\n"
  "\n"
  "static unsigned char *weights;                 // the file\n"
  "static unsigned char *temps;                   // intermediates\n"
  "static unsigned char *state[STATES + 1];       // what earlier tokens have left: keys and values, sums\n"
  "static int32_t *ids, *turns, *pages, *slot;    // the token, its place for rotations; where its states lie\n"
  "static float *logits;\n"
  "\n"
  "// One token at position pos: its id is in ids[0], and logits come out.\n"
  "static void token(int64_t pos) {\n"
  "  (void)pos;\n";

static const char ending[] =
  "}\n"
  "\n"
  "// ---- the program ------------------------------\n"
  "\n"
  "static void fail(const char *what, const char *name) {\n"
  "  fprintf(stderr, \"%s: %s\\n\", name, what);\n"
  "  exit(1);\n"
  "}\n"
  "\n"
  "static void *zeros(uint64_t n) {\n"
  "  void *at = n < SIZE_MAX ? calloc((size_t)n + 64, 1) : NULL;\n"
  "  if (!at) fail(\"not enough memory\", \"model\");\n"
  "  return at;\n"
  "}\n"
  "\n"
  "static void read_weights(const char *name) {\n"
  "#ifdef MAPS\n"
  "  struct stat st;\n"
  "  int fd = open(name, O_RDONLY);\n"
  "  if (fd < 0 || fstat(fd, &st)) fail(\"cannot be opened\", name);\n"
  "  if ((uint64_t)st.st_size != FILE_BYTES) fail(\"is not the file that this program was made of: its size\", name);\n"
  "  void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);\n"
  "  if (at == MAP_FAILED) fail(\"cannot be mapped\", name);\n"
  "  close(fd);\n"
  "  weights = at;\n"
  "#else\n"
  "  FILE *f = fopen(name, \"rb\");\n"
  "  if (!f) fail(\"cannot be opened\", name);\n"
  "  weights = zeros(FILE_BYTES);\n"
  "  if (fread(weights, 1, (size_t)FILE_BYTES, f) != FILE_BYTES || fgetc(f) != EOF)\n"
  "    fail(\"is not the file that this program was made of: its size\", name);\n"
  "  fclose(f);\n"
  "#endif\n"
  "  uint64_t hash = UINT64_C(14695981039346656037);            // FNV-1a, of what stands before the weights\n"
  "  for (size_t i = 0; i < HEAD_BYTES; i++) hash = (hash ^ weights[i]) * UINT64_C(1099511628211);\n"
  "  if (hash != HEAD_HASH) fail(\"is not the file that this program was made of: its metadata\", name);\n"
  "}\n"
  "\n"
  "// Positions that there is memory for.\n"
  "static void begin(int64_t positions) {\n"
  "  int64_t n = (positions + PAGE - 1) / PAGE;\n"
  "  temps = zeros(TEMP_BYTES);\n"
  "  for (int i = 0; i < STATES; i++) state[i] = zeros(state_bytes[i] * (uint64_t)(state_paged[i] ? n : 1));\n"
  "  ids = zeros(sizeof *ids);\n"
  "  turns = zeros(3 * sizeof *turns);\n"
  "  slot = zeros(sizeof *slot);\n"
  "  pages = zeros((uint64_t)(GROUPS * TABLE) * sizeof *pages);\n"
  "  for (int g = 0; g < GROUPS; g++) for (int64_t i = 0; i < n; i++) pages[g * TABLE + i] = (int32_t)i;\n"
  "  logits = zeros(VOCAB * sizeof *logits);\n"
  "}\n"
  "\n"
  "static void step(int32_t id, int64_t pos) {\n"
  "  ids[0] = id;\n"
  "  turns[0] = turns[1] = turns[2] = (int32_t)pos;\n"
  "  token(pos);\n"
  "}\n"
  "\n"
  "static int32_t likeliest(void) {\n"
  "  int32_t best = 0;\n"
  "  for (int32_t i = 1; i < VOCAB; i++) if (logits[i] > logits[best]) best = i;\n"
  "  return best;\n"
  "}\n"
  "\n"
  "static bool ends(int32_t id) {\n"
  "  for (size_t i = 1; i < sizeof end_ids / sizeof *end_ids; i++) if (id == end_ids[i]) return true;\n"
  "  return false;\n"
  "}\n"
  "\n"
  "static int64_t number(const char *text, int64_t least, int64_t most) {\n"
  "  char *end;\n"
  "  long long n = strtoll(text, &end, 10);\n"
  "  if (!*text || *end || n < least || n > most) fail(\"is not a number that is possible here\", text);\n"
  "  return n;\n"
  "}\n"
  "\n"
  "int main(int argc, char **argv) {\n"
  "  int at = 1;\n"
  "  int64_t most = 32;\n"
  "  if (argc > 2 && !strcmp(argv[1], \"-n\")) { most = number(argv[2], 0, CONTEXT); at = 3; }\n"
  "  int64_t n = argc - at - 1;\n"
  "  if (n < 1) {\n"
  "    fprintf(stderr, \"usage: %s [-n COUNT] MODEL.gguf ID...\\n\", argv[0]);\n"
  "    return 2;\n"
  "  }\n"
  "  if (n > CONTEXT) fail(\"more tokens than the context has\", argv[at]);\n"
  "  read_weights(argv[at]);\n"
  "  most = min64(most, CONTEXT - n + 1);                       // the last one is written, and goes nowhere\n"
  "  begin(n + most);\n"
  "  for (int64_t i = 0; i < n; i++) step((int32_t)number(argv[at + 1 + i], 0, VOCAB - 1), i);\n"
  "  for (int64_t i = 0; i < most; i++) {\n"
  "    int32_t id = likeliest();\n"
  "    if (ends(id)) break;\n"
  "    printf(\"%d\\n\", (int)id);\n"
  "    fflush(stdout);\n"
  "    if (i + 1 < most) step(id, n + i);\n"
  "  }\n"
  "  return 0;\n"
  "}\n";

// ---- the plan -------------------------------------------------------------------------------------------------------

// Writes a name into a comment without characters that could end it.
static void c_comment(str *out, const char *name) {
  for (; *name; name++) {
    bool plain = (*name >= '0' && *name <= '9') || (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z');
    str_addc(out, plain || strchr(".-", *name) ? *name : '_');
  }
}

static void c_integer(str *out, const uop *u) {
  static const char *const named[OP_COUNT] = {[OP_MAX] = "max64", [OP_MIN] = "min64", [OP_IDIV] = "floordiv",
                                              [OP_MOD] = "floormod"};
  static const char *const signs[OP_COUNT] = {[OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_CDIV] = "/",
                                              [OP_CMOD] = "%", [OP_SHL] = "<<", [OP_SHR] = ">>", [OP_AND] = "&"};
  if (u->op == OP_CONST) { str_addf(out, "%lld", (long long)u->a); return; }
  if (u->op == OP_VAR) { str_addn(out, u->s, u->s_len); return; }
  if (u->op == OP_CAST) { c_integer(out, u->src[0]); return; }
  die_if(u->nsrc != 2 || !(named[u->op] || signs[u->op]), "a number of tiles by %s", op_name((enum op)u->op));
  str_addf(out, "%s(", named[u->op] ? named[u->op] : "");
  c_integer(out, u->src[0]);
  str_addf(out, named[u->op] ? ", " : " %s ", signs[u->op]);
  c_integer(out, u->src[1]);
  str_addc(out, ')');
}

static const sched_temp *temp_of(const schedule *s, int64_t id) {
  int i = 0;
  while (i < s->n_temps && s->temps[i].id != id) i++;
  die_if(i == s->n_temps, "an intermediate without a place");
  return &s->temps[i];
}

static int64_t shared_bytes(const schedule *s) { return (int64_t)round_up((size_t)s->arena_bytes, CACHE_LINE); }

// A buffer argument other than a weight.
static void c_own_buffer(writer *w, int64_t own) {
  static const char *const names[] = {[BUF_IDS] = "ids", [BUF_PAGES] = "pages", [BUF_SLOT] = "slot",
                                      [BUF_LOGITS] = "logits", [BUF_TURNS] = "turns"};
  bool named = own < (int64_t)COUNT(names) && names[own], state = own >= BUF_STATE && own < BUF_SUMS;
  die_if(!named && !state, "buffer %lld in a plan of one token", (long long)own);
  if (named) str_addf(&w->out, "(unsigned char *)%s", names[own]);
  else str_addf(&w->out, "state[%lld]", (long long)(own - BUF_STATE));
}

static void c_buffer(writer *w, int64_t id, int64_t size) {
  const gguf *file = w->e->file;
  int64_t own = id - model_buffer_id(file, 0);
  if (id >= TEMP_IDS) {
    const sched_temp *t = temp_of(w->s, id);
    str_addf(&w->out, "temps + %lld", (long long)(t->offset + (t->each ? shared_bytes(w->s) : 0)));
  } else if (codebook_is(id)) {
    int64_t b = id - CODEBOOK_IDS;
    if (w->book[b] < size) w->book[b] = size;
    str_addf(&w->out, "(unsigned char *)book%lld", (long long)b);
  } else if (own >= 0) c_own_buffer(w, own);
  else {
    const gguf_tensor *t = gguf_tensor_at(file, (size_t)id);
    str_addf(&w->out, "weights + %llu /* ", (unsigned long long)t->offset);
    c_comment(&w->out, t->name);
    str_add(&w->out, " */");
  }
}

static void c_call(writer *w, int i) {
  const step *t = &w->p->steps[i];
  const program *q = t->k->p;
  plan_argument *args = xcalloc((size_t)t->n_bufs + 1, sizeof *args);
  plan_arguments(&w->s->kernels[i], args);
  str_addf(&w->out, "  k%d_%s(BUFS(", t->unique, q->name);
  for (int b = 0; b < t->n_bufs; b++) {
    if (b) str_add(&w->out, ", ");
    c_buffer(w, w->s->kernels[i].bufs[b], (int64_t)args[b].size);
  }
  str_add(&w->out, q->n_vars ? "), VARS(" : "), NULL");
  for (int v = 0; v < q->n_vars; v++) str_addf(&w->out, "%s%s", v ? ", " : "", q->vars[v]->s);
  str_add(&w->out, q->n_vars ? "), 0, " : ", 0, ");
  c_integer(&w->out, q->tiles);
  str_add(&w->out, ");   // ");
  c_comment(&w->out, t->role);
  str_addc(&w->out, '\n');
  free(args);
}

// ---- the file -------------------------------------------------------------------------------------------------------

static uint64_t head_hash(const gguf_shard *f) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < f->data_offset; i++) hash = (hash ^ f->map[i]) * 1099511628211u;
  return hash;
}

static void c_beginning(writer *w) {
  const engine *e = w->e;
  const gguf_shard *f = gguf_shard_at(e->file, 0);
  const char *name = strrchr(f->path, '/');
  str_add(&w->out, "// ");
  c_comment(&w->out, name ? name + 1 : f->path);
  str_addf(&w->out,
           " as C, written by weft %s: %d steps for a token, of %d kernels. Ids of tokens go in and come out,\n"
           "// the likeliest one each time.  It needs nothing but that file, which it maps:\n//\n"
           "//     cc -O2 model.c -o model -lm && ./model [-n COUNT] MODEL.gguf ID...\n\n",
           weft_version(), w->s->n_kernels, w->p->stats.unique);
  str_add(&w->out, beginning);
}

static void c_constants(writer *w) {
  const engine *e = w->e;
  const gguf_shard *f = gguf_shard_at(e->file, 0);
  int states = model_n_states(e->m);
  str_addf(
    &w->out,
    "\n// ---- sizes ------------------------------\n\n"
    "#define FILE_BYTES UINT64_C(%zu)\n#define HEAD_BYTES %lluu\n#define HEAD_HASH UINT64_C(%llu)\n"
    "#define TEMP_BYTES UINT64_C(%lld)\n"
    "enum { CONTEXT = %d, VOCAB = %d, STATES = %d, PAGE = %d, GROUPS = %d, TABLE = %lld };\n",
    f->size, (unsigned long long)f->data_offset, (unsigned long long)head_hash(f),
    (long long)(shared_bytes(w->s) + w->s->each_bytes), e->n_ctx, model_n_vocab(e->m), states, CACHE_PAGE,
    (int)max_i64(model_n_groups(e->m), 1), (long long)page_table(e));
  str_add(&w->out,
          "// of PAGE positions, or (not paged) of a sequence\nstatic const uint64_t state_bytes[STATES + 1] = {");
  for (int i = 0; i < states; i++) str_addf(&w->out, "%llu, ", (unsigned long long)caches_piece(&e->caches, i));
  str_add(&w->out, "0};\nstatic const bool state_paged[STATES + 1] = {");
  for (int i = 0; i < states; i++) str_addf(&w->out, "%d, ", model_state_is_paged(e->m, i));
  str_add(&w->out, "0};\nstatic const int32_t end_ids[] = {-1");
  for (int32_t id = 0; id < model_n_vocab(e->m); id++)
    if (tokenizer_is_eog(e->tok, id)) str_addf(&w->out, ", %d", (int)id);
  str_add(&w->out, "};\n");
}

static void c_books(writer *w) {
  for (int b = 0; b < BOOK_COUNT; b++) {
    if (!w->book[b]) continue;
    const int8_t *at = codebook_data(CODEBOOK_IDS + b);
    str_addf(&w->out, "static const int8_t book%d[%lld] = {", b, (long long)w->book[b]);
    for (int64_t i = 0; i < w->book[b]; i++) str_addf(&w->out, "%s%d,", i % 32 ? "" : "\n  ", at[i]);
    str_add(&w->out, "\n};\n");
  }
}

static void write_model(void *ctx) {
  writer *w = ctx;
  const program **programs = xcalloc((size_t)w->p->stats.unique + 1, sizeof *programs);
  for (int i = 0; i < w->p->stats.unique; i++) programs[i] = w->p->kernels[i].p;
  c_beginning(w);
  w->status = render_c_unit(programs, (size_t)w->p->stats.unique, &w->out, w->err);
  free(programs);
  if (w->status) return;
  c_constants(w);
  str body = w->out;  // code books come before the calls, which determine the part of them that is used
  w->out = (str){0};
  for (int i = 0; i < w->s->n_kernels; i++) c_call(w, i);
  str steps = w->out;
  w->out = body;
  c_books(w);
  str_addf(&w->out, "\n// ---- the plan of one token ------------------------------\n\n%s",
           calls);
  str_addn(&w->out, steps.at, steps.n);
  str_add(&w->out, ending);
  str_free(&steps);
}

static int check_model(const engine *e, error *err) {
  const char *path = gguf_path(e->file);
  if (model_is_encoder(e->m))
    return error_set(err, "%s: %s, and a program in C writes one token after another", path,
                     model_denoises(e->m) ? "denoises texts as a whole" : "makes embeddings only");
  if (model_has_source(e->m))
    return error_set(err, "%s: has an encoder and a decoder, and a program in C has one plan for all tokens", path);
  if (gguf_n_shards(e->file) > 1 || gguf_shard_at(e->file, 0)->size <= gguf_shard_at(e->file, 0)->data_offset)
    return error_set(err, "%s: is not one GGUF file: a program in C maps one", path);
  return 0;
}

int weft_export_c(const char *path, int context, const char *out, weft_error *err) {
  error e = {0};
  struct engine_options o = {.n_ctx = context, .n_threads = 1, .no_repack = true, .device = "NULL"};
  writer w = {.err = &e};
  newfile *f = NULL;
  kernel_set_collect();                    // nothing comes from this machine's cache
  env_set(ENV_RENDER, "c");
  int status = engine_open(path, &o, &w.e, &e) || check_model(w.e, &e) ? -1 : 0;
  if (!status) {
    const plan_spec one = spec_one();
    const stage *st = &plans_of(w.e, &one)->at[0];
    w.p = st->p;
    w.s = &st->s;
    status = attempt(ATTEMPT_LEAVES, write_model, &w, &e) || w.status ? -1 : 0;
  }
  if (!status) status = newfile_open_regular(out, &f, &e);
  if (!status) status = newfile_add(f, w.out.at, w.out.n, &e);
  if (f && !status) status = newfile_commit(f, &e);
  else newfile_discard(f);
  str_free(&w.out);
  engine_close(w.e);
  return status ? fail(err, &e) : 0;
}
