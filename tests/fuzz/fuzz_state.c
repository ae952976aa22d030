// Fuzzes what sequences leave in files: a state (weft_sequence_from_memory), a file of one, and a page of a folder
// (weft_store).  The input is records without what layers hold and without their sums, which are made here, as an
// attacker would.  A state is refused with a word, or it is a sequence that can be saved, forked and cut, whose state
// reads back as the same tokens; some go on by a token.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "base/env.h"
#include "base/str.h"
#include "engine/content.h"
#include "engine/sequence_file.h"
#include "memory_file.h"
#include "model/format.h"
#include "model/gguf_write.h"
#include "weft.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// As sequence_file.c has it; a state of no tokens (open_kind) says so.
enum { VERSION = 8, CONTEXT = 4 * CACHE_PAGE, RECORDS_MOST = 6, PIECE_MOST = 1 << 20, RUN_ONE_IN = 256, N_VOCAB = 64 };
typedef struct record_head {
  char magic[8];
  uint32_t version, page;
  char model[CONTENT_NAME - 1];
  uint64_t page_bytes[MODEL_GROUPS], fixed_bytes;
  uint32_t number, n, groups, fixed, left, none;
  page_name before;
} record_head;

// FLAW: of the sums of a record, one is wrong; END: the last part of the record is half there; OTHER: what the head
// says of model and sizes is the input's.
enum { FLAW = 1, END = 2, OTHER = 4 };
typedef struct record {
  uint8_t flags;
  record_head head;
  int32_t ids[CACHE_PAGE], shift[CACHE_PAGE];
} record;
typedef struct input { uint8_t kind; uint8_t n; uint8_t how; uint8_t none; record of[RECORDS_MOST]; } input;

// ---- models ---------------------------------------------------------------------------------------------------------

// One with pages of all positions, one with two kinds of them, and one with fixed states.
typedef struct kind { weft_model *m; record_head head; } kind;
static kind kinds[3];

static void put_tensor(gguf_head *h, const char *name, int64_t rows, int64_t columns) {
  uint64_t bytes;
  error err = {0};
  const int64_t ne[4] = {rows, columns ? columns : 1, 1, 1};
  if (gguf_head_tensor(h, name, columns ? 2 : 1, ne, format_by_id(FORMAT_F32), &bytes, &err)) die("%s", err.text);
}

// A model of one layer of Mamba, of numbers that are small.
static void write_mamba(const memory_file *f) {
  enum { EMBD = 32, INNER = 64, STATE = 16, RANK = 8, TAPS = 4 };
  static const struct { const char *key; uint32_t value; } keys[] = {
    {"block_count", 1}, {"context_length", CONTEXT}, {"embedding_length", EMBD}, {"feed_forward_length", 0},
    {"attention.head_count", 0}, {"vocab_size", N_VOCAB}, {"ssm.conv_kernel", TAPS}, {"ssm.inner_size", INNER},
    {"ssm.state_size", STATE}, {"ssm.time_step_rank", RANK}};
  static const struct { const char *name; int64_t rows, columns; } tensors[] = {
    {"token_embd.weight", EMBD, N_VOCAB}, {"output_norm.weight", EMBD, 0}, {"blk.0.attn_norm.weight", EMBD, 0},
    {"blk.0.ssm_in.weight", EMBD, 2 * INNER}, {"blk.0.ssm_conv1d.weight", TAPS, INNER},
    {"blk.0.ssm_conv1d.bias", INNER, 0}, {"blk.0.ssm_x.weight", INNER, RANK + 2 * STATE},
    {"blk.0.ssm_dt.weight", RANK, INNER}, {"blk.0.ssm_dt.bias", INNER, 0}, {"blk.0.ssm_a", STATE, INNER},
    {"blk.0.ssm_d", INNER, 0}, {"blk.0.ssm_out.weight", INNER, EMBD}};
  gguf_head *h = gguf_head_new(32);
  str head = {0};
  char name[64];
  gguf_head_str(h, "general.architecture", "mamba", 5);
  for (size_t i = 0; i < COUNT(keys); i++) {
    snprintf(name, sizeof name, "mamba.%s", keys[i].key);
    gguf_head_u32(h, name, keys[i].value);
  }
  gguf_head_f32(h, "mamba.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf_head_str(h, "tokenizer.ggml.model", "none", 4);
  for (size_t i = 0; i < COUNT(tensors); i++) put_tensor(h, tensors[i].name, tensors[i].rows, tensors[i].columns);
  gguf_head_bytes(h, &head);
  memory_file_begin(f, head.at, head.n);
  str_free(&head);
  gguf_head_free(h);
}

static void open_kind(kind *k, const char *path, const char *setting) {
  const weft_options o = {.size = sizeof o, .context = CONTEXT, .threads = 1, .chunk = 8, .settings = &setting,
                          .n_settings = setting != NULL};
  weft_error err = {0};
  weft_sequence *q;
  void *state;
  size_t n;
  if (weft_model_open(path, &o, &k->m, &err) || weft_sequence_new(k->m, &q, &err) ||
      weft_sequence_to_memory(q, NULL, &state, &n, &err))
    die("%s: %s", path, err.text);
  if (n < sizeof k->head) die("a state of no tokens has %zu bytes", n);
  memcpy(&k->head, state, sizeof k->head);
  if (k->head.version != VERSION || k->head.page != CACHE_PAGE || k->head.left || k->head.none)
    die("the head of a record is another one than this program knows");
  weft_free(state);
  weft_sequence_free(q);
}

static char folder[] = "/tmp/weft-fuzz-state-XXXXXX";
static void remove_folder(void) {
  for (size_t i = 0; i < COUNT(kinds); i++) weft_model_close(kinds[i].m);
  rmdir(folder);
}

static void open_kinds(void) {
  static memory_file mamba;
  env_set(ENV_DEV, "REF"), env_set(ENV_WEFT_CACHE, "off"), env_set(ENV_WEFT_TUNE, "off");
  memory_file_make(&mamba, 1 << 20);
  write_mamba(&mamba);
  open_kind(&kinds[0], WEFT_SOURCE_DIR "/models/tinypy.gguf", NULL);
  open_kind(&kinds[1], WEFT_SOURCE_DIR "/models/tinypy.gguf", "{arch}.attention.sliding_window=int:40");
  open_kind(&kinds[2], mamba.path, NULL);
  if (!mkdtemp(folder)) die("no folder in /tmp");
  atexit(remove_folder);
}

// ---- changes --------------------------------------------------------------------------------------------------------

static uint64_t draw(uint64_t *random, uint64_t below) {
  *random = *random * 6364136223846793005u + 1442695040888963407u;
  return (*random >> 33) % below;
}

static uint32_t number(uint64_t *r, uint32_t near) {
  static const uint32_t odd[] = {0, 1, 2, 3, 7, CACHE_PAGE - 1, CACHE_PAGE, CACHE_PAGE + 1, CONTEXT, 1u << 24, 1u << 25,
                                 1u << 29, INT32_MAX, 1u << 31, UINT32_MAX};
  return draw(r, 2) ? odd[draw(r, COUNT(odd))] : near + (uint32_t)draw(r, 5) - 2;
}

// A sound state of so many pages, the last one of n tokens.
static void make_sound(input *in, uint64_t *r) {
  *in = (input){.kind = (uint8_t)draw(r, COUNT(kinds)), .n = (uint8_t)(1 + draw(r, 3)), .how = (uint8_t)draw(r, 4)};
  for (uint32_t i = 0; i < in->n; i++) {
    record *x = &in->of[i];
    bool last = i + 1u == in->n;
    x->head = (record_head){.number = i, .n = last ? 1 + (uint32_t)draw(r, CACHE_PAGE) : CACHE_PAGE,
                            .groups = in->kind == 2 ? 0 : in->kind == 1 ? 3 : 1, .fixed = in->kind == 2 && last,
                            .left = in->n - 1u - i};
    for (uint32_t k = 0; k < CACHE_PAGE; k++) x->ids[k] = (int32_t)draw(r, N_VOCAB);
  }
}

static void change_record(input *in, record *x, uint64_t *r) {
  uint32_t *const fields[] = {&x->head.number, &x->head.n, &x->head.groups, &x->head.fixed, &x->head.left,
                              &x->head.none, &x->head.version, &x->head.page};
  uint64_t *const sizes[] = {&x->head.page_bytes[0], &x->head.page_bytes[1], &x->head.page_bytes[2],
                             &x->head.fixed_bytes};
  size_t k = draw(r, 12);
  if (k < 6) {
    uint32_t *at = fields[draw(r, 6)];
    *at = number(r, *at);
  } else if (k < 8) x->ids[draw(r, CACHE_PAGE)] = (int32_t)number(r, N_VOCAB);
  else if (k < 10) x->shift[draw(r, CACHE_PAGE)] = (int32_t)number(r, 0);
  else if (k == 10) x->flags ^= (uint8_t)(1u << draw(r, 3));
  else {
    uint32_t *at = fields[6 + draw(r, 2)];
    if (draw(r, 2)) *at = number(r, *at);
    else *sizes[draw(r, COUNT(sizes))] = number(r, 0);
    in->of[0].flags |= OTHER;
  }
}

static void change(input *in, uint64_t *r) {
  record *x = &in->of[draw(r, in->n)], *y = &in->of[draw(r, in->n)];
  switch (draw(r, 8)) {
  case 0: *x = *y; break;
  case 1:
    if (in->n < RECORDS_MOST) in->of[in->n++] = *x;
    break;
  case 2: in->n -= in->n > 1; break;
  case 3: in->how = (uint8_t)draw(r, 256); break;
  default: change_record(in, x, r);
  }
}

static size_t input_bytes(const input *in) { return offsetof(input, of) + in->n * sizeof(record); }

static bool input_read(input *in, const uint8_t *data, size_t size) {
  if (size < offsetof(input, of) || size > sizeof *in) return false;
  *in = (input){0};
  memcpy(in, data, size);
  return in->kind < COUNT(kinds) && in->n && in->n <= RECORDS_MOST && size == input_bytes(in);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed) {
  static input in;
  uint64_t r = (seed + 1) * 0x9E3779B97F4A7C15u;
  if (!input_read(&in, data, size) || seed % 64 == 0) make_sound(&in, &r);
  else for (uint64_t i = 1 + draw(&r, 3); i; i--) change(&in, &r);
  if (input_bytes(&in) > max) in.n = 1;
  if (input_bytes(&in) > max) return size;
  memcpy(data, &in, input_bytes(&in));
  return input_bytes(&in);
}

// ---- a state --------------------------------------------------------------------------------------------------------

static void add_part(str *out, const void *at, size_t n, bool flaw) {
  uint64_t sum = hash_bytes(at, n, VERSION) + flaw;
  str_addn(out, at, n);
  str_addn(out, &sum, sizeof sum);
}

static void add_record(str *out, const kind *k, const record *x) {
  static const unsigned char zeros[PIECE_MOST];
  record_head h = x->head;
  bool flaw = x->flags & FLAW;
  size_t n = h.n > CACHE_PAGE ? CACHE_PAGE : h.n;
  memcpy(h.magic, k->head.magic, sizeof h.magic);
  memcpy(h.model, k->head.model, sizeof h.model);
  if (!(x->flags & OTHER)) {
    h.version = VERSION, h.page = CACHE_PAGE, h.fixed_bytes = k->head.fixed_bytes;
    memcpy(h.page_bytes, k->head.page_bytes, sizeof h.page_bytes);
  }
  add_part(out, &h, sizeof h, flaw && h.number % 4 == 1);
  add_part(out, x->ids, n * sizeof *x->ids, flaw && h.number % 4 == 2);
  add_part(out, x->shift, n * sizeof *x->shift, flaw && h.number % 4 == 3);
  for (int g = 0; g < MODEL_GROUPS; g++)
    if (h.groups & 1u << g && h.page_bytes[g] <= PIECE_MOST) add_part(out, zeros, h.page_bytes[g], flaw);
  if (h.fixed && h.fixed_bytes <= PIECE_MOST) add_part(out, zeros, h.fixed_bytes, flaw);
  if (x->flags & END) out->n -= out->n / 8 % 40;
}

static void use_sequence(const kind *k, weft_sequence *q, const int32_t *ids, size_t n, bool runs) {
  weft_error err = {0};
  weft_sequence *other;
  void *state;
  int32_t *again;
  size_t bytes, n_again;
  int length = weft_sequence_length(q);
  if (length < 0 || (size_t)length > n || length > CONTEXT) die("a sequence of %d of %zu tokens", length, n);
  if (weft_sequence_whole(q, length) == length && !weft_sequence_to_memory(q, ids, &state, &bytes, &err)) {
    if (weft_sequence_from_memory(k->m, state, bytes, &other, &again, &n_again, &err))
      die("what was saved is refused: %s", err.text);
    if ((int)n_again != length || (length && memcmp(again, ids, n_again * sizeof *ids)))
      die("what was saved has other tokens");
    weft_free(state);
    weft_free(again);
    weft_sequence_free(other);
  }
  if (runs) {
    int32_t id = 5;
    weft_tokens t = {.sequence = q, .ids = &id, .n = 1};
    weft_step(k->m, &t, 1, NULL, NULL, &err);
  }
  if (!weft_sequence_fork(q, length / 2, &other, &err)) weft_sequence_free(other);
  weft_sequence_cut(q, length / 2);
}

static void use_bytes(const kind *k, const str *state, bool runs) {
  weft_error err = {0};
  weft_sequence *q;
  int32_t *ids;
  size_t n;
  int status = weft_sequence_from_memory(k->m, state->at, state->n, &q, &ids, &n, &err);
  if (status) {
    if (!err.text[0]) die("a state is refused without a word");
    return;
  }
  use_sequence(k, q, ids, n, runs);
  weft_sequence_free(q);
  weft_free(ids);
}

static void write_file(const char *path, const str *state) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || (state->n && write(fd, state->at, state->n) != (ssize_t)state->n)) die("%s is not written", path);
  close(fd);
}

static void use_path(const kind *k, const str *state) {
  char path[sizeof folder + 16];
  weft_error err = {0};
  weft_sequence *q;
  int32_t *ids;
  size_t n;
  snprintf(path, sizeof path, "%s/state", folder);
  write_file(path, state);
  if (!weft_sequence_tokens(k->m, path, &ids, &n, &err)) {
    if (!weft_sequence_load(k->m, ids, n, path, &q, &err)) {
      use_sequence(k, q, ids, n, false);
      weft_sequence_free(q);
    }
    weft_free(ids);
  } else if (!strstr(err.text, path)) die("'%s' does not name the file", err.text);
  unlink(path);
}

// Each record is a file of the folder, and says itself which one it follows, or (how & 4) the one before it here.
static void use_store(const kind *k, input *in) {
  char paths[RECORDS_MOST][sizeof folder + 80];
  static int32_t ids[RECORDS_MOST * CACHE_PAGE];
  weft_store *s;
  weft_sequence *q;
  weft_error err = {0};
  size_t n = 0;
  page_name before = page_name_first(k->head.model);
  for (size_t i = 0; i < in->n; i++) {
    record *x = &in->of[i];
    str state = {0};
    size_t of = x->head.n > CACHE_PAGE ? CACHE_PAGE : x->head.n;
    if (!(in->how & 4)) x->head.before = before, x->head.left = 0;
    add_record(&state, k, x);
    before = page_name_next(&x->head.before, x->ids, of);
    for (size_t j = 0; j < of; j++)            // a prompt has only ids that there are
      ids[n++] = x->ids[j] < 0 || x->ids[j] >= N_VOCAB ? 0 : x->ids[j];
    snprintf(paths[i], sizeof paths[i], "%s/%.8s-%06u-%.32s.page", folder, k->head.model, x->head.number % 1000000,
             before.at);
    write_file(paths[i], &state);
    str_free(&state);
  }
  if (!weft_store_open(k->m, folder, 64 << 20, &s, &err)) {
    size_t found = weft_store_find(s, ids, n);
    if (found > n) die("%zu of %zu tokens are found", found, n);
    if (found && !weft_store_load(s, ids, found, &q, &err)) {
      use_sequence(k, q, ids, found, false);
      weft_sequence_free(q);
    }
    weft_store_close(s);
  }
  for (size_t i = 0; i < in->n; i++) unlink(paths[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static input in;
  if (!kinds[0].m) open_kinds();
  uint64_t random = hash_bytes(data, size, 2);
  if (!input_read(&in, data, size)) make_sound(&in, &random);
  const kind *k = &kinds[in.kind];
  str state = {0};
  for (size_t i = 0; i < in.n; i++) add_record(&state, k, &in.of[i]);
  if (in.how % 4 == 0) use_path(k, &state);
  else if (in.how % 4 == 1) use_store(k, &in);
  else use_bytes(k, &state, hash_bytes(data, size, 1) % RUN_ONE_IN == 0);
  str_free(&state);
  return 0;
}
