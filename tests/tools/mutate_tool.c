// Changes a model file at random, again and again, and does with each what opening does: reads it, describes the model,
// makes its graph, its tokenizer and its template, and uses them. Nothing is compiled.
//
//     mutate_tool FILE FIRST COUNT
//     mutate_tool FILE shapes
//     mutate_tool FILE structure FIRST COUNT [RUN_ONE_IN]
//     mutate_tool FILE write NUMBER OUT         writes the file of a number of "structure"
//
// Numbers from FIRST on each stand for a change of bytes; or each tensor gets other shapes, most of them of as many
// elements, each of which is refused with both shapes, or is a line if it is accepted; or numbers stand for changes of
// keys and tensors (../fuzz/model_change.h), and one of RUN_ONE_IN files that are accepted runs on the reference
// device, with two sequences. The work is done in a child, which goes on behind a number that ended it by a signal or
// took ten seconds of processor time; each such number is a line. The last line says how many there were, how many of
// the changed files were accepted as models, how many had a tokenizer, and how many ran. Exit status 1 if any ended the
// child.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../fuzz/model_change.h"
#include "../fuzz/model_use.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 10, RUN_SECONDS = 120 };  // of processor time; the reference device is slow
typedef struct progress {
  uint64_t now, models, tokenizers, runs, changed;
} progress;
typedef struct bytes_of {
  unsigned char *at;
  size_t n, header;
} bytes_of;

static uint64_t random_state;
static uint64_t draw(uint64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (random_state >> 33) % below;
}

// ---- the change -----------------------------------------------------------------------------------------------------

static uint64_t extreme(void) {
  static const uint64_t odd[] = {0,          1,         2,          3,          127,        128,        255,
                                 256,        65535,     1u << 20,   INT32_MAX,  1ull << 31, UINT32_MAX, 1ull << 32,
                                 1ull << 62, INT64_MAX, 1ull << 63, UINT64_MAX, 0x7FC00000, 0x7F800000, 0xFF800000};
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
  default:
    if (draw(8)) f->at[at] = (unsigned char)number;
    else f->n = at + 1;
    break;
  }
}

// ---- its use --------------------------------------------------------------------------------------------------------

static void use(const bytes_of *f, progress *p) {
  gguf *file;
  error err = {0};
  if (gguf_open_memory(f->at, f->n, "changed.gguf", &file, &err)) return;
  p->models += use_model(file);
  p->tokenizers += use_tokenizer(file);
  use_template(file);
  gguf_close(file);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

enum { SHAPES = 14 };

static void swap_axes(int64_t *ne, int a, int b) {
  int64_t n = ne[a];
  ne[a] = ne[b], ne[b] = n;
}

static void resize(int64_t *ne, int how) {
  if (how == 0) ne[0] *= 2;
  else if (how < 4) ne[how]++;
  else ne[1] = max_i64(ne[1] / 2, 1);
}

// As the file's reader leaves it: without ones at the end.
static void reshape(gguf_tensor *t, int how) {
  int64_t *ne = t->ne, all = ne[0] * ne[1] * ne[2] * ne[3];
  if (how < 3) swap_axes(ne, how, how + 1);
  else if (how < 6 && ne[3] == 1)
    memmove(ne + (how - 2), ne + (how - 3), (size_t)(6 - how) * sizeof *ne), ne[how - 3] = 1;
  else if (how == 6 && ne[3] == 1 && ne[0] % 2 == 0) memmove(ne + 2, ne + 1, 2 * sizeof *ne), ne[0] /= 2, ne[1] = 2;
  else if (how == 7) ne[0] *= ne[1], ne[1] = 1;
  else if (how == 8) ne[0] = all, ne[1] = ne[2] = ne[3] = 1;
  else if (how > 8) resize(ne, how - 9);
  for (t->n_dims = 4; t->n_dims > 1 && ne[t->n_dims - 1] == 1;) t->n_dims--;
}

// Of a tensor whose shape is another one than the file's. A file in which a tensor says its own size may find the
// fault in another tensor. The error is asked for once a tensor, since it takes long to find the keys behind a shape.
static void use_other_shape(const gguf *file, const gguf_tensor *t, progress *p) {
  model *m;
  error err = {0};
  bool asks = p->now % SHAPES == 9;
  p->changed++;
  if (model_open(file, (model_kv){0}, &m, asks ? &err : NULL)) {
    bool both = strstr(err.text, " has shape {") && strstr(err.text, ", expected {");
    if (asks && (strncmp(err.text, "shapes.gguf: ", 13) || !strstr(err.text, "tensor '") ||
                 (!both && !strstr(err.text, t->name))))
      die("%s: %s", t->name, err.text);
    return;
  }
  p->models++;
  use_graphs(m);
  model_close(m);
  printf("accepted: %s {%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "}\n", t->name, t->ne[0], t->ne[1], t->ne[2],
         t->ne[3]);
}

static void use_shape(const bytes_of *f, progress *p) {
  gguf *file;
  error err = {0};
  if (gguf_open_memory(f->at, f->n, "shapes.gguf", &file, &err)) die("%s", err.text);
  gguf_tensor *t = (gguf_tensor *)(uintptr_t)gguf_tensor_at(file, (size_t)(p->now / SHAPES));
  gguf_tensor was = *t;
  reshape(t, (int)(p->now % SHAPES));
  if (t->ne[0] % t->format->block == 0 && memcmp(was.ne, t->ne, sizeof was.ne)) use_other_shape(file, t, p);
  gguf_close(file);
}

// ---- structure ------------------------------------------------------------------------------------------------------

// A file of these two parts runs.
static bool run_file(const unsigned char *head_at, size_t n_head, const unsigned char *data, size_t n_data) {
  int fd = memfd_create("model", MFD_CLOEXEC);
  char path[64];
  bool ran = false;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (fd < 0 || write(fd, head_at, n_head) != (ssize_t)n_head || write(fd, data, n_data) != (ssize_t)n_data)
    die("no file in memory");
  ran = use_run(path);
  close(fd);
  return ran;
}

static int write_file(const bytes_of *original, uint64_t number, const char *path) {
  size_t most = (original->header + HEAD_SCRATCH) / 4096 * 4096;
  unsigned char *out = xmalloc(most);
  head *h = xmalloc(sizeof *h);
  if (!head_read(h, original->at, original->header)) die("a head with too many parts");
  head_change(h, number);
  size_t n = head_write(h, out, most), n_data = original->n - original->header;
  FILE *f = fopen(path, "wb");
  bool done = f && fwrite(out, 1, n, f) == n && fwrite(original->at + original->header, 1, n_data, f) == n_data;
  if (f && fclose(f)) done = false;
  free(h);
  free(out);
  return done ? 0 : 1;
}

// The data lies at the end of a block of memory, so that each new head ends where it begins.
static void try_structure(const bytes_of *original, progress *p, uint64_t end, uint64_t run_one_in) {
  const struct itimerval limit = {.it_value.tv_sec = SECONDS}, run_limit = {.it_value.tv_sec = RUN_SECONDS};
  size_t most = (original->header + HEAD_SCRATCH) / 4096 * 4096, n_data = original->n - original->header;
  unsigned char *memory = xmalloc(most + n_data), *out = xmalloc(most);
  head *h = xmalloc(sizeof *h);
  memcpy(memory + most, original->at + original->header, n_data);
  for (; p->now < end; p->now++) {
    gguf *file;
    if (!head_read(h, original->at, original->header)) die("a head with too many parts");
    head_change(h, p->now);
    size_t n = head_write(h, out, most);
    unsigned char *at = memory + most - n;
    if (!n) continue;
    memcpy(at, out, n);
    setitimer(ITIMER_PROF, &limit, NULL);
    if (gguf_open_memory(at, n + n_data, "changed.gguf", &file, NULL)) continue;
    bool accepted = use_model(file);
    p->models += accepted;
    p->tokenizers += use_tokenizer(file);
    use_template(file);
    gguf_close(file);
    if (!accepted || !run_one_in || p->models % run_one_in) continue;
    setitimer(ITIMER_PROF, &run_limit, NULL);
    p->runs += run_file(at, n, memory + most, n_data);
  }
  free(h);
  free(out);
  free(memory);
}

static void try_shapes(const bytes_of *original, progress *p, uint64_t end) {
  for (; p->now < end; p->now++) use_shape(original, p);
}

static void work(const bytes_of *original, progress *p, uint64_t end) {
  const struct itimerval limit = {.it_value.tv_sec = SECONDS};
  bytes_of copy = {malloc(original->n), original->n, original->header};
  if (!copy.at) abort();
  memcpy(copy.at, original->at, copy.n);
  for (; p->now < end; p->now++) {
    bytes_of f = copy;  // which has only its header changed
    memcpy(f.at, original->at, f.header);
    random_state = (p->now + 1) * 0x9E3779B97F4A7C15u;
    for (uint64_t i = 1 + draw(4); i; i--) change(&f);
    setitimer(ITIMER_PROF, &limit, NULL);
    use(&f, p);
  }
  free(copy.at);
}

// What the command line asks for.
struct task {
  enum { BYTES, SHAPE, STRUCTURE } kind;
  uint64_t first, end, run_one_in;
};

static void do_task(const bytes_of *original, progress *p, const struct task *t) {
  if (t->kind == SHAPE) try_shapes(original, p, t->end);
  else if (t->kind == STRUCTURE) try_structure(original, p, t->end, t->run_one_in);
  else work(original, p, t->end);
}

// Behind each number that ends the child another one goes on.
static uint64_t in_children(const char *name, const bytes_of *original, progress *p, const struct task *t) {
  uint64_t ended = 0;
  for (p->now = t->first; p->now < t->end;) {
    pid_t child = fork();
    int status;
    if (!child) {
      do_task(original, p, t);
      fflush(stdout);
      _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) exit(2);
    if (!status) continue;
    printf("%s %" PRIu64 ": %s %d\n", name, p->now, WIFSIGNALED(status) ? "signal" : "exit status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    ended++;
    p->now++;
  }
  return ended;
}

static bool read_original(const char *path, bytes_of *original) {
  FILE *f = fopen(path, "rb");
  if (!f || fseek(f, 0, SEEK_END)) return false;
  original->n = (size_t)ftell(f);
  original->at = xmalloc(original->n);
  rewind(f);
  bool whole = fread(original->at, 1, original->n, f) == original->n;
  fclose(f);
  return whole;
}

int main(int argc, char **argv) {
  bool shapes = argc == 3 && !strcmp(argv[2], "shapes"),
       structure = argc >= 5 && argc <= 6 && !strcmp(argv[2], "structure"),
       writes = argc == 5 && !strcmp(argv[2], "write");
  bytes_of original = {0};
  if ((!shapes && !structure && !writes && argc != 4) || !read_original(argv[1], &original)) {
    fprintf(stderr, "usage: mutate_tool FILE FIRST COUNT | FILE shapes | FILE structure FIRST COUNT [RUN_ONE_IN] |"
                    " FILE write NUMBER OUT\n");
    return 2;
  }
  gguf *file;
  error err = {0};
  if (gguf_open_memory(original.at, original.n, argv[1], &file, &err)) {
    fprintf(stderr, "%s\n", err.text);
    return 2;
  }
  original.header = original.n;
  for (size_t i = 0; i < gguf_n_tensors(file); i++) {
    size_t at = (size_t)((const unsigned char *)gguf_tensor_at(file, i)->data - original.at);
    if (at < original.header) original.header = at;
  }
  struct task t = {shapes ? SHAPE : structure ? STRUCTURE : BYTES, 0, SHAPES * gguf_n_tensors(file), 0};
  gguf_close(file);
  if (writes) return write_file(&original, strtoull(argv[3], NULL, 10), argv[4]);
  if (!shapes) {
    t.first = strtoull(argv[2 + structure], NULL, 10);
    t.end = t.first + strtoull(argv[3 + structure], NULL, 10);
    t.run_one_in = argc == 6 ? strtoull(argv[5], NULL, 10) : 0;
  }
  progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 2;
  uint64_t ended = in_children(argv[1], &original, p, &t);
  printf("%" PRIu64 " changes, %" PRIu64 " models, %" PRIu64 " tokenizers, %" PRIu64 " runs, %" PRIu64 " ended\n",
         shapes ? p->changed : t.end - t.first, p->models, p->tokenizers, p->runs, ended);
  free(original.at);
  return ended != 0;
}
