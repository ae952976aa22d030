// Names the roles of kernels: see roles.h.
#include "engine/roles.h"
#include "model/codebook.h"
#include "model/model.h"
#include <string.h>

const gguf_tensor *roles_weight(const gguf *file, const sched_kernel *k) {
  const gguf_tensor *best = NULL;
  for (int i = 0; i < k->n_bufs; i++) {
    if (codebook_is(k->bufs[i]) || k->bufs[i] >= model_buffer_id(file, 0)) continue;
    const gguf_tensor *t = gguf_tensor_at(file, (size_t)k->bufs[i]);
    if (!best || t->nbytes > best->nbytes) best = t;
  }
  return best;
}

// Does the kernel use one of the model's own buffers from this one up to `to`?
static bool has_own_buffer(const gguf *file, const sched_kernel *k, int64_t from, int64_t to) {
  for (int i = 0; i < k->n_bufs; i++) {
    int64_t own = k->bufs[i] - model_buffer_id(file, 0);
    if (!codebook_is(k->bufs[i]) && k->bufs[i] < TEMP_IDS && own >= from && own < to) return true;
  }
  return false;
}

// Quantising kernels compute the largest magnitude of a group, max(x, -x).
static bool quantises(uop *ast) {
  arena *a = arena_new();
  uop_list l = uop_toposort(a, &ast, 1);
  bool found = false;
  for (size_t i = 0; i < l.n; i++)
    found |= l.at[i]->op == OP_REDUCE && l.at[i]->a == OP_MAX && l.at[i]->src[0]->op == OP_MAX;
  arena_free(a);
  return found;
}

// The kernel that wrote this one's input, the last of several; -1: none.
static int maker(const schedule *s, int kernel) {
  const sched_kernel *k = &s->kernels[kernel];
  for (int j = kernel - 1; j >= 0; j--)
    for (int b = 0; b < s->kernels[j].n_bufs; b++) {
      if (!s->kernels[j].written[b]) continue;
      for (int i = 0; i < k->n_bufs; i++)
        if (!k->written[i] && k->bufs[i] >= TEMP_IDS && k->bufs[i] == s->kernels[j].bufs[b]) return j;
    }
  return -1;
}

// Names kernels without a weight. State between tokens belongs to attention, or to a recurrent layer (ssm_...,
// time_mix...).
static void name_other(const gguf *file, const schedule *s, int kernel, char *out, size_t cap) {
  const sched_kernel *k = &s->kernels[kernel];
  int from = maker(s, kernel);
  bool kept = has_own_buffer(file, k, BUF_STATE, BUF_SUMS);
  if (from >= 0 && !kept && quantises(k->ast)) snprintf(out, cap, "quantise activations");
  else if (from >= 0) roles_name(file, s, from, out, cap);
  else snprintf(out, cap, "positions");
  if (kept) snprintf(out, cap, "%s", strstr(out, ".ssm_") || strstr(out, "_mix") ? "state" : "attention");
}

// "v.blk.*.attn_q" for v.blk.3.attn_q.weight, equal in all layers.
static void name_weight(const char *name, char *out, size_t cap) {
  const char *block = strncmp(name, "blk.", 4) ? strstr(name, ".blk.") : name, *rest = NULL, *dot = strrchr(name, '.');
  if (block && block != name) block++;
  if (block) rest = strchr(block + 4, '.');
  bool ends = dot && (!strcmp(dot, ".weight") || !strcmp(dot, ".bias"));
  int n = (int)((ends ? dot : name + strlen(name)) - (rest ? rest : name));
  if (rest && n > 0) snprintf(out, cap, "%.*s*%.*s", (int)(block + 4 - name), name, n, rest);
  else snprintf(out, cap, "%.*s", n > 0 ? n : (int)strlen(name), name);
}

void roles_name(const gguf *file, const schedule *s, int kernel, char *out, size_t cap) {
  const gguf_tensor *weight = roles_weight(file, &s->kernels[kernel]);
  if (!weight) { name_other(file, s, kernel, out, cap); return; }
  // one matrix for embedding and output
  bool tied =
    !strcmp(weight->name, "token_embd.weight") && !has_own_buffer(file, &s->kernels[kernel], BUF_IDS, BUF_IDS + 1);
  name_weight(tied ? "output" : weight->name, out, cap);
}
