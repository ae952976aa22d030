// Control vectors: directions that are added to the output of layers, in the files of llama.cpp's cvector-generator and
// repeng: a GGUF file of architecture "controlvector" with tensors direction.N {n_embd} in F32, N from 1 on.
// direction.N is added after the layer of index N, so the first layer has none. Several files are added up, each times
// its scale.
//
// Output: model.control, {n_layer, n_embd}, and the list of layers that have one. Invariant: a layer without a
// direction has the same graph as without control vectors. Look next: model_graph.c (through).
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/model_impl.h"
#include "model/stored.h"

static const float MOST = 1e18f;             // largest added value: its square is still finite

// "direction.12": 12; -1: not such a name
static int direction_of(const char *name) {
  static const char prefix[] = "direction.";
  size_t k = sizeof prefix - 1, n = strlen(name);
  if (n <= k || n > k + 4 || strncmp(name, prefix, k) || name[k] == '0') return -1;
  if (strspn(name + k, "0123456789") != n - k) return -1;
  return atoi(name + k);
}

// " (it is for 'qwen2')", for messages. The file does not say enough to refuse another model.
static const char *made_for(const gguf *f, char out[96]) {
  const gguf_value *v = gguf_find(f, "controlvector.model_hint");
  char name[64];
  *out = 0;
  if (v && v->type == GGUF_STRING)
    snprintf(out, 96, "; the file is for '%s'", gguf_quote(name, sizeof name, v->s.at, v->s.n));
  return out;
}

static int check_direction(const model *m, const gguf *f, const gguf_tensor *t, error *err) {
  char hint[96];
  int at = direction_of(t->name);
  if (at < 0)
    return gguf_fail(f, NULL, err, "tensor '%s' is no direction of a layer: names are direction.N, N from 1 on",
                     t->name);
  if (t->format->id != FORMAT_F32)
    return gguf_fail(f, NULL, err, "tensor '%s' has type %s, expected F32", t->name, t->format->name);
  if (t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != 1 || t->ne[0] != m->n_embd)
    return gguf_fail(f, NULL, err, "tensor '%s' has %lld x %lld numbers, expected %d x 1, as the model's layers%s",
                     t->name, (long long)t->ne[0], (long long)(t->ne[1] * t->ne[2] * t->ne[3]), m->n_embd,
                     made_for(f, hint));
  if (at >= m->n_layer)
    return gguf_fail(f, NULL, err, "tensor '%s': the model's layers with a direction are 1 to %d%s", t->name,
                     m->n_layer - 1, made_for(f, hint));
  return 0;
}

// Adds one direction, times the file's scale, in 32 bits as llama.cpp does.
static int add_direction(model *m, const gguf *f, const gguf_tensor *t, double scale, error *err) {
  float *to = m->control + (size_t)direction_of(t->name) * (size_t)m->n_embd;
  for (int i = 0; i < m->n_embd; i++) {
    float v;
    memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
    to[i] += v * (float)scale;
    if (!(fabsf(to[i]) <= MOST))             // a norm squares it
      return gguf_fail(f, NULL, err, "tensor '%s' times %g is %g at %d: not a number up to %g", t->name, scale,
                       (double)to[i], i, (double)MOST);
  }
  m->controlled[direction_of(t->name)] = true;
  return 0;
}

static int add_directions(model *m, const gguf *f, const control_file *c, error *err) {
  gguf_string s;
  char text[64];
  uint32_t count;
  size_t n = gguf_n_tensors(f);
  if (gguf_str(f, "general.architecture", &s, err) ||
      gguf_u32_opt(f, "controlvector.layer_count", (uint32_t)n, &count, err))
    return -1;
  if (!equals_text(s, "controlvector"))
    return gguf_fail(f, "general.architecture", err, "'%s', expected 'controlvector'",
                     gguf_quote(text, sizeof text, s.at, s.n));
  if (!n) return gguf_fail(f, NULL, err, "a control vector without directions");
  if (count != n)
    return gguf_fail(f, "controlvector.layer_count", err, "is %u, but there are %zu directions", count, n);
  for (size_t i = 0; i < n; i++) {
    const gguf_tensor *t = gguf_tensor_at(f, i);
    if (check_direction(m, f, t, err)) return -1;
    int at = direction_of(t->name);
    if (at >= c->from && (!c->to || at <= c->to) && add_direction(m, f, t, c->scale, err)) return -1;
  }
  return gguf_check_size(f, err);
}

int model_control(model *m, const control_file *c, error *err) {
  gguf *f;
  if (m->n_encoder)
    return error_set(err, "%s: a model with an encoder and a decoder takes no control vectors yet", c->path);
  if (c->from > (c->to ? min_i64(c->to, m->n_layer - 1) : m->n_layer - 1))
    return error_set(err, "%s: layers %d to %d have no direction: the model's are 1 to %d", c->path, c->from,
                     c->to ? c->to : m->n_layer, m->n_layer - 1);
  if (gguf_open(c->path, &f, err)) return -1;
  size_t n = (size_t)m->n_layer * (size_t)m->n_embd;
  if (!m->control) {
    m->control = xcalloc(n + 64, sizeof *m->control);
    m->controlled = xcalloc((size_t)m->n_layer, sizeof *m->controlled);
  }
  int status = add_directions(m, f, c, err);
  gguf_close(f);
  return status;
}

float *model_control_data(const model *m, int64_t at) { return m->control + at * m->n_embd; }

void model_digest_control(const model *m, sha256 *s) {
  for (int i = 0; m->control && i < m->n_layer; i++) {
    if (!m->controlled[i]) continue;
    sha256_add(s, "direction", sizeof "direction");
    sha256_add(s, &i, sizeof i);
    sha256_add(s, model_control_data(m, i), (size_t)m->n_embd * sizeof *m->control);
  }
}

void control_free(model *m) {
  free(m->control);
  free(m->controlled);
}

// If the stream has several rows, the vector is added to each.
tensor *controlled(const build *b, const layer *y, tensor *x) {
  const model *m = b->m;
  if (!m->control || y->index >= m->n_layer || !m->controlled[y->index]) return x;
  tensor *direction = t_buffer(b->g, model_buffer_id(m->file, BUF_CONTROL + y->index), DT_F32, m->n_embd);
  return flows_on(b->g, t_add(b->g, x, direction));
}
