// Changes a model file at random, again and again, and does with each what opening does: reads it, describes the model,
// makes its graph, its tokenizer and its template, and uses them. Nothing is compiled.
//
//     mutate_tool FILE FIRST COUNT
//
// Numbers from FIRST on each stand for a change. The work is done in a child, which goes on behind a number that ended
// it by a signal or took ten seconds of processor time; each such number is a line. The last line says how many there
// were, how many of the changed files were accepted as models, and how many had a tokenizer. Exit status 1 if any ended
// the child.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "chat/chat.h"
#include "chat/jinja.h"
#include "model/gguf.h"
#include "model/model.h"
#include "text/text.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 10 };
typedef struct progress { uint64_t now, models, tokenizers; } progress;
typedef struct bytes_of { unsigned char *at; size_t n, header; } bytes_of;

static uint64_t state;
static uint64_t draw(uint64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % below;
}

// ---- the change -----------------------------------------------------------------------------------------------------

static uint64_t extreme(void) {
  static const uint64_t odd[] = {0,          1,           2,           3,          127,        128,       255,
                                 256,        65535,       1u << 20,    INT32_MAX,  1ull << 31, UINT32_MAX, 1ull << 32,
                                 1ull << 62, INT64_MAX,   1ull << 63,  UINT64_MAX, 0x7FC00000, 0x7F800000, 0xFF800000};
  return draw(3) ? odd[draw(sizeof odd / sizeof *odd)] : draw(64);
}

static void change(bytes_of *f) {
  size_t at = draw(f->header), from = draw(f->header), n = 1 + draw(16), left = f->header - (at > from ? at : from);
  uint64_t number = extreme();
  switch (draw(7)) {
  case 0: f->at[at] ^= (unsigned char)(1u << draw(8)); break;
  case 1: f->at[at] = (unsigned char)draw(256); break;
  case 2: memcpy(f->at + at, &number, left < 4 ? left : 4); break;
  case 3: memcpy(f->at + at, &number, left < 8 ? left : 8); break;
  case 4: memmove(f->at + at, f->at + from, n < left ? n : left); break;
  case 5: memset(f->at + at, draw(2) ? 0 : 255, n < left ? n : left); break;
  default: if (draw(8)) f->at[at] = (unsigned char)number; else f->n = at + 1; break;
  }
}

// ---- its use --------------------------------------------------------------------------------------------------------

static void make_graph(const model *m) {
  enum { POSITIONS = 32, CHUNK = 4 };
  graph *g = graph_new(NULL);
  model_graph(m, g, &(model_shape){.page = POSITIONS, .tile = 8, .pages = 1, .slots = 1, .ctx = POSITIONS,
                                   .n_ctx = POSITIONS, .chunk = CHUNK,
                                   .logits = model_is_encoder(m) ? LOGITS_HIDDEN : LOGITS_LAST});
  graph_free(g);
}

static bool use_tokenizer(const gguf *file) {
  static const char text[] = "def f(x): return x + 1 <s> \xC3\xA9\xF0\x9F\x98\x80 \xFF";
  tokenizer *t;
  error err = {0};
  if (tokenizer_from_gguf(file, &t, &err)) return false;
  int32_t *ids = NULL;
  size_t n;
  str back = {0};
  if (!tokenizer_encode(t, text, sizeof text - 1, true, true, &ids, &n, &err)) {
    tokenizer_decode(t, ids, n, true, &back);
    free(ids);
  }
  str_free(&back);
  tokenizer_free(t);
  return true;
}

static void use_template(const gguf *file) {
  text_view source;
  error err = {0};
  jinja *t;
  if (chat_template_from_gguf(file, false, &source, &err) || jinja_parse(source.at, source.n, &t, &err)) return;
  jinja_free(t);
}

static void use(const bytes_of *f, progress *p) {
  gguf *file;
  error err = {0};
  model *m;
  if (gguf_open_memory(f->at, f->n, "changed.gguf", &file, &err)) return;
  if (!model_open(file, (model_kv){0}, &m, &err)) {
    p->models++;
    make_graph(m);
    model_close(m);
  }
  p->tokenizers += use_tokenizer(file);
  use_template(file);
  gguf_close(file);
}

static void work(const bytes_of *original, progress *p, uint64_t end) {
  const struct itimerval limit = {.it_value.tv_sec = SECONDS};
  bytes_of copy = {malloc(original->n), original->n, original->header};
  if (!copy.at) abort();
  memcpy(copy.at, original->at, copy.n);
  for (; p->now < end; p->now++) {
    bytes_of f = copy;                          // which has only its header changed
    memcpy(f.at, original->at, f.header);
    state = (p->now + 1) * 0x9E3779B97F4A7C15u;
    for (uint64_t i = 1 + draw(4); i; i--) change(&f);
    setitimer(ITIMER_PROF, &limit, NULL);
    use(&f, p);
  }
  free(copy.at);
}

int main(int argc, char **argv) {
  FILE *f = argc == 4 ? fopen(argv[1], "rb") : NULL;
  if (!f || fseek(f, 0, SEEK_END)) { fprintf(stderr, "usage: mutate_tool FILE FIRST COUNT\n"); return 2; }
  bytes_of original = {.n = (size_t)ftell(f)};
  original.at = malloc(original.n);
  rewind(f);
  if (!original.at || fread(original.at, 1, original.n, f) != original.n) return 2;
  fclose(f);
  gguf *file;
  error err = {0};
  if (gguf_open_memory(original.at, original.n, argv[1], &file, &err)) { fprintf(stderr, "%s\n", err.text); return 2; }
  original.header = original.n;
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    size_t at = (size_t)((const unsigned char *)gguf_tensor_at(file, i)->data - original.at);
    if (at < original.header) original.header = at;
  }
  gguf_close(file);
  progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 2;
  uint64_t first = strtoull(argv[2], NULL, 10), end = first + strtoull(argv[3], NULL, 10), ended = 0;
  for (p->now = first; p->now < end;) {
    pid_t child = fork();
    int status;
    if (!child) { work(&original, p, end); _exit(0); }
    if (child < 0 || waitpid(child, &status, 0) < 0) return 2;
    if (status) {
      printf("%s %" PRIu64 ": %s %d\n", argv[1], p->now, WIFSIGNALED(status) ? "signal" : "exit status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      ended++;
      p->now++;
    }
  }
  printf("%" PRIu64 " changes, %" PRIu64 " models, %" PRIu64 " tokenizers, %" PRIu64 " ended\n", end - first, p->models,
         p->tokenizers, ended);
  return ended != 0;
}
