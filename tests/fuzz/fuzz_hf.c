// Fuzzes folders of Hugging Face's: the input is the files of one (FILE below), of safetensors the heads, behind which
// lies as much data as they ask for.  A folder is refused with an error that names it, or it becomes a file that is
// read as any model file is: description, graphs, tokenizer, template.  Changes know what JSON is, and what the head of
// a safetensors file is; seeds are folders of each class and of each kind of packed weights (tools/fuzz_seeds.py).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "json_change.h"
#include "model/hf.h"
#include "model_use.h"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

// FILE: a byte, the length of the name; the name; four bytes, the length of the content, lowest first; the content.
enum { FILES_MOST = 12, INPUT_MOST = 1 << 17, DATA_MOST = 4 << 20, NAME_MOST = 64 };
typedef struct part { const uint8_t *name, *at; size_t n_name, n; } part;
typedef struct folder { part files[FILES_MOST]; size_t n; } folder;

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool folder_read(folder *f, const uint8_t *at, size_t n) {
  f->n = 0;
  while (n && f->n < FILES_MOST) {
    size_t k = at[0], size;
    if (!k || k >= NAME_MOST || n < k + 5) return false;
    size = at[k + 1] | (size_t)at[k + 2] << 8 | (size_t)at[k + 3] << 16 | (size_t)at[k + 4] << 24;
    if (size > n - k - 5) return false;
    f->files[f->n++] = (part){at + 1, at + k + 5, k, size};
    at += k + 5 + size;
    n -= k + 5 + size;
  }
  return !n && f->n;
}

static size_t folder_write(const folder *f, uint8_t *out, size_t max) {
  size_t at = 0;
  for (size_t i = 0; i < f->n; i++) {
    const part *p = &f->files[i];
    if (max - at < p->n_name + p->n + 5) return 0;
    out[at++] = (uint8_t)p->n_name;
    memcpy(out + at, p->name, p->n_name);
    at += p->n_name;
    for (int k = 0; k < 4; k++) out[at++] = (uint8_t)(p->n >> 8 * k);
    if (p->n) memcpy(out + at, p->at, p->n);
    at += p->n;
  }
  return at;
}

static bool name_ends(const part *p, const char *end) {
  size_t n = strlen(end);
  return p->n_name >= n && !memcmp(p->name + p->n_name - n, end, n);
}

// ---- changes --------------------------------------------------------------------------------------------------------

static const char *const words[] = {
  "LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
  "Qwen3MoeForCausalLM", "Gemma3ForCausalLM", "Phi3ForCausalLM", "Glm4ForCausalLM", "GraniteForCausalLM",
  "GptOssForCausalLM", "BertModel", "quantization_config", "quantization", "quant_method", "gptq", "awq", "fp8",
  "mxfp4", "mlx", "bits", "w_bit", "group_size", "q_group_size", "checkpoint_format", "gptq_v2", "version", "gemm",
  "mode", "affine", "weight_block_size", "rope_scaling", "rope_parameters", "rope_type", "type", "yarn", "linear",
  "longrope", "llama3", "dynamic", "factor", "long_factor", "short_factor", "original_max_position_embeddings",
  "head_dim", "num_key_value_heads", "num_local_experts", "tie_word_embeddings", "text_config", "F32", "F16", "BF16",
  "I32", "U32", "U8", "F8_E4M3", "F8_E8M0", "I64", "BOOL", "model", "vocab", "merges", "added_tokens", "content",
  "BPE", "WordPiece", "Unigram", "ByteLevel", "Split", "Sequence", "Digits", "NFC", "Regex", "weight",
  "lm_head.weight", "<s>", "\xC3\xA9", "model.embed_tokens.weight", "model.norm.weight",
  "model.layers.0.mlp.up_proj.weight", "shape", "dtype", "model.layers.0.self_attn.q_proj.weight_scale_inv",
  "model.layers.0.self_attn.q_proj.g_idx", "__metadata__", "../x", "model.layers.4294967296.mlp.up_proj.weight",
  "data_offsets", "model-00001-of-00002.safetensors", "weight_map"};

static size_t dtype_bytes(const char *name) {
  if (!name) return 1;
  const char *digit = strpbrk(name, "12368");
  int bits = digit ? atoi(digit) : 8;
  return bits == 64 ? 8 : bits == 32 ? 4 : bits == 16 ? 2 : 1;
}

// Offsets that fit shapes, one tensor behind the other, in the order of the head.
static void lay_out(json_t *head) {
  const char *name;
  json_t *t;
  uint64_t at = 0;
  json_object_foreach(head, name, t) {
    json_t *shape = json_object_get(t, "shape"), *offsets;
    if (!json_is_array(shape)) continue;
    uint64_t n = dtype_bytes(json_string_value(json_object_get(t, "dtype")));
    for (size_t i = 0; i < json_array_size(shape); i++) n *= (uint64_t)json_integer_value(json_array_get(shape, i));
    offsets = json_pack("[I, I]", (json_int_t)at, (json_int_t)(at + n));
    json_object_set_new(t, "data_offsets", offsets);
    at += n;
  }
}

// A size that a shape has, in every shape.
static void change_size(json_change *c, json_t *head) {
  json_place t, d;
  const char *name;
  json_t *each;
  if (!json_size(head) || !json_children(head, json_draw(c, json_size(head)), &t)) return;
  json_t *shape = json_object_get(t.value, "shape");
  if (!json_size(shape) || !json_children(shape, json_draw(c, json_size(shape)), &d)) return;
  json_int_t from = json_integer_value(d.value);
  json_t *to = json_near(c, from);
  json_object_foreach(head, name, each) {
    json_t *of = json_object_get(each, "shape");
    for (size_t i = 0; i < json_size(of); i++)
      if (json_integer_value(json_array_get(of, i)) == from) json_array_set(of, i, to);
  }
  json_decref(to);
}

static char *change_json(json_change *c, const part *p) {
  json_t *root = json_loadb((const char *)p->at, p->n, JSON_DECODE_ANY, NULL);
  bool head = name_ends(p, ".safetensors");
  if (!root) return NULL;
  for (uint64_t i = 1 + json_draw(c, 3); i; i--) {
    if (head && !json_draw(c, 4)) change_size(c, root);
    else json_change_one(c, root);
  }
  if (head && json_draw(c, 8)) lay_out(root);
  char *text = json_dumps(root, JSON_COMPACT | JSON_ENCODE_ANY);
  json_decref(root);
  return text;
}

// Whole files: one goes, comes twice under another's name, or changes places.
static void change_files(json_change *c, folder *f) {
  size_t i = json_draw(c, f->n), k = json_draw(c, f->n);
  static const char *const more[] = {"added_tokens.json",
                                     "generation_config.json",
                                     "tokenizer.model",
                                     "model.safetensors.index.json",
                                     "model-00001-of-00002.safetensors",
                                     "modules.json"};
  const char *name = more[json_draw(c, COUNT(more))];
  if (json_draw(c, 3) == 0 && f->n > 1) f->files[i] = f->files[--f->n];
  else if (json_draw(c, 2) && f->n < FILES_MOST) {
    f->files[f->n] = f->files[i];
    f->files[f->n].name = (const uint8_t *)name;
    f->files[f->n++].n_name = strlen(name);
  } else {
    part p = f->files[i];
    f->files[i].at = f->files[k].at, f->files[i].n = f->files[k].n;
    f->files[k].at = p.at, f->files[k].n = p.n;
  }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned int seed) {
  static uint8_t out[INPUT_MOST];
  folder f;
  json_change c = {.random = (seed + 1) * 0x9E3779B97F4A7C15u, .words = words, .n_words = COUNT(words)};
  if (seed % 16 == 0 || !folder_read(&f, data, size)) return LLVMFuzzerMutate(data, size, max);
  char *text = NULL;
  static uint8_t bytes[INPUT_MOST];
  if (json_draw(&c, 16) == 0) change_files(&c, &f);
  else {
    // the small files, on which everything depends, as often as the large ones
    part *p = &f.files[json_draw(&c, f.n)];
    text = change_json(&c, p);
    if (text) p->at = (const uint8_t *)text, p->n = strlen(text);
    else if (p->n < sizeof bytes / 2) {
      if (p->n) memcpy(bytes, p->at, p->n);
      p->n = LLVMFuzzerMutate(bytes, p->n, sizeof bytes / 2);
      p->at = bytes;
    }
  }
  size_t n = folder_write(&f, out, max < sizeof out ? max : sizeof out);
  free(text);
  if (!n) return LLVMFuzzerMutate(data, size, max);
  memcpy(data, out, n);
  return n;
}

// ---- a folder -------------------------------------------------------------------------------------------------------

// Its files are links to files in memory, which stay.
static char dir[] = "/tmp/weft-fuzz-hf-XXXXXX", made[FILES_MOST][sizeof dir + NAME_MOST];
static int fds[FILES_MOST];

static const char *const pooling = "1_Pooling";   // the one folder in it
static char pooling_dir[sizeof dir + NAME_MOST];

static void remove_dir(void) {
  rmdir(pooling_dir);
  rmdir(dir);
}

static void make_dir(void) {
  if (!mkdtemp(dir)) die("no folder in /tmp");
  snprintf(pooling_dir, sizeof pooling_dir, "%s/%s", dir, pooling);
  if (mkdir(pooling_dir, 0700)) die("no folder in %s", dir);
  atexit(remove_dir);
  for (size_t i = 0; i < FILES_MOST; i++) if ((fds[i] = memfd_create("part", MFD_CLOEXEC)) < 0) die("no memory file");
}

// The bytes behind a head that it asks for, as far as they are few.
static size_t data_of(const part *p) {
  json_t *head = json_loadb((const char *)p->at, p->n, 0, NULL), *t;
  const char *name;
  json_int_t end = 0;
  json_object_foreach(head, name, t) {
    json_int_t to = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));
    if (to > end && to <= DATA_MOST) end = to;
  }
  json_decref(head);
  return (size_t)end;
}

// Zeros, or numbers that are small as floats of any width.
static void put_data(int fd, size_t from, size_t n, bool zeros) {
  static unsigned char numbers[DATA_MOST];
  if (!numbers[1])
    for (size_t i = 0; i < sizeof numbers; i++)
      numbers[i] = i % 2 ? (unsigned char)(0x30 + i / 2 % 11) : (unsigned char)(i * 37 + i / 4096);
  if (ftruncate(fd, (off_t)(from + n))) die("no memory for a file");
  if (!zeros && n && pwrite(fd, numbers, n, (off_t)from) != (ssize_t)n) die("a file is not written");
}

static void put_file(size_t i, const part *p, bool zeros) {
  char of[32];
  uint64_t n = p->n;
  size_t before = name_ends(p, ".safetensors") ? sizeof n : 0;
  if (ftruncate(fds[i], 0)) die("a file is not cut");
  if (before && pwrite(fds[i], &n, before, 0) != (ssize_t)before) die("a file is not written");
  if (p->n && pwrite(fds[i], p->at, p->n, (off_t)before) != (ssize_t)p->n) die("a file is not written");
  if (before) put_data(fds[i], before + p->n, data_of(p), zeros);
  snprintf(made[i], sizeof made[i], "%s/%.*s", dir, (int)p->n_name, (const char *)p->name);
  snprintf(of, sizeof of, "/proc/self/fd/%d", fds[i]);
  if (symlink(of, made[i])) *made[i] = 0;
}

// One that leads nowhere else.
static bool is_name(const part *p) {
  size_t k = strlen(pooling), n = p->n_name;
  size_t first = n > k + 1 && !memcmp(p->name, pooling, k) && p->name[k] == '/' ? k + 1 : 0;
  for (size_t i = first; i < n; i++) if (p->name[i] == '/' || !p->name[i]) return false;
  return p->name[first] != '.';
}

static void use_image(unsigned char *image, size_t n) {
  gguf *file;
  error err = {0};
  if (gguf_open_memory(image, n, "fuzz.gguf", &file, &err)) die("a folder becomes a file that is none: %s", err.text);
  use_model(file);
  use_tokenizer(file);
  use_template(file);
  gguf_close(file);
}

static void use_rows(const hf *h) {
  error err = {0};
  for (size_t i = 0; i < hf_n_tensors(h); i++) {
    const hf_tensor *t = hf_tensor_at(h, i);
    unsigned char *out = malloc(t->nbytes);
    if (hf_rows(h, i, 0, t->ne[1] * t->ne[2] * t->ne[3], out, &err) && !err.text[0]) die("rows fail without a word");
    free(out);
  }
}

static void use_folder(uint64_t how) {
  unsigned char *image;
  char *names;
  size_t n;
  stamp of;
  error err = {0};
  hf *h;
  if (how % 2) {
    if (!hf_image(dir, &image, &n, &of, &names, &err)) {
      use_image(image, n);
      free(names);
      hf_image_free(image, n);
    } else if (!strstr(err.text, dir)) die("the error '%s' does not name the folder", err.text);
  } else if (!hf_open(dir, (enum hf_type)(how / 2 % 6), &h, &err)) {
    use_rows(h);
    hf_close(h);
  } else if (!strstr(err.text, dir)) die("the error '%s' does not name the folder", err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  folder f;
  if (!fds[0]) make_dir();
  if (size > INPUT_MOST || !folder_read(&f, data, size)) return 0;
  uint64_t how = hash_bytes(data, size, 1);
  for (size_t i = 0; i < f.n; i++) {
    *made[i] = 0;
    if (is_name(&f.files[i])) put_file(i, &f.files[i], how >> 8 & 1);
  }
  use_folder(how >> 16);
  for (size_t i = 0; i < f.n; i++) if (*made[i]) unlink(made[i]);
  return 0;
}
