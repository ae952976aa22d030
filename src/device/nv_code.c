// Loads kernels onto an NVIDIA GPU: see nv_code.h.
//
// The beginning of constant bank 0 holds what code reads implicitly: numbers of work-items and work-groups, the
// addresses of the two memory windows, and the start of a work-item's stack. The cubin gives the offset of the
// arguments after that. These offsets are what ptxas' code reads (nvdisasm shows it); the hardware does not prescribe
// them below 64 KiB.
#include "device/nv_code.h"
#include <stdlib.h>
#include <string.h>

enum {
  AT_ITEMS = 0x00,                 // three words; then three for work-groups
  AT_GROUPS = 0x0c,
  AT_SHARED_WINDOW = 0x18,
  AT_LOCAL_WINDOW = 0x20,
  AT_STACK = 0x28,
  WINDOW_BYTES = 16 << 20,
  ABOVE_STACK = 0x240,             // bytes of local memory above a work-item's stack
  KEPT_SHARED = 1 << 10,           // work-group memory that the hardware reserves; cubins from sm_90 on include it
  PREFETCHED = 4096,               // bytes after the code that may be prefetched
  MOST_CONSTANTS = 4096,
  ALIGNED_SHARED = 256
};

// Writes whole words: the memory may be write-combined.
static void put_words(uint64_t to, const void *from, size_t n) {
  volatile uint32_t *out = (volatile uint32_t *)(uintptr_t)to;
  for (size_t i = 0; i < n / 4; i++) {
    uint32_t word;
    memcpy(&word, (const unsigned char *)from + 4 * i, 4);
    out[i] = word;
  }
}

static uint64_t bytes_of_constants(const nv_code *k) { return round_up(k->facts.constants[0].bytes, NV_QMD_ALIGNED); }

uint64_t nv_call_bytes(const nv_code *k) {
  return bytes_of_constants(k) + round_up(nv_qmd_bytes(k->g->classes.qmd), NV_QMD_ALIGNED);
}

void nv_call_make(nv_call *c, const nv_code *k, uint64_t at, const uint64_t *bufs) {
  unsigned char constants[MOST_CONSTANTS] = {0};
  const uint64_t windows[] = {NV_SHARED_WINDOW_AT, NV_LOCAL_WINDOW_AT, WINDOW_BYTES - ABOVE_STACK};
  nv_launch_facts facts = k->facts;
  *c = (nv_call){.k = k, .at = at, .descriptor = at + bytes_of_constants(k)};
  memcpy(constants + AT_SHARED_WINDOW, windows, sizeof windows);
  memcpy(constants + k->params_at, bufs, (size_t)k->base.n_bufs * sizeof *bufs);
  put_words(at, constants, round_up(facts.constants[0].bytes, 16));
  facts.constants[0].at = at;
  nv_qmd_make(&c->qmd, k->g->classes.qmd, &facts);
  put_words(c->descriptor, c->qmd.at, nv_qmd_bytes(k->g->classes.qmd));
}

void nv_call_set(nv_call *c, const unsigned grid[3], const unsigned block[3], const int64_t *vars) {
  const nv_code *k = c->k;
  int version = k->g->classes.qmd;
  unsigned words[NV_SIZE_WORDS];
  put_words(c->at + AT_ITEMS, block, 12);
  put_words(c->at + AT_GROUPS, grid, 12);
  put_words(c->at + k->params_at + 8 * (uint64_t)k->base.n_bufs, vars, (size_t)k->n_vars * sizeof *vars);
  nv_qmd_set_size(&c->qmd, version, grid, block);
  for (int n = nv_qmd_size_words(version, words), i = 0; i < n; i++)
    put_words(c->descriptor + 4 * words[i], &c->qmd.at[words[i]], 4);
}

static int take_facts(nv_code *k, const program *p, const nv_cubin *c, error *err) {
  const nv_gpu *g = k->g;
  unsigned kept = g->gpu.capability < 90 ? KEPT_SHARED : 0;
  k->params_at = c->params_at;
  k->facts = (nv_launch_facts){
    .code_bytes = c->code_bytes,
    .constants[0].bytes = c->params_at + c->params_bytes,
    .registers = c->registers,
    .barriers = c->barriers ? c->barriers : 1,
    .sass = (unsigned)(g->gpu.capability / 10 << 4 | g->gpu.capability % 10),
    .shared_bytes = (unsigned)round_up((c->shared_bytes > KEPT_SHARED || kept ? c->shared_bytes : KEPT_SHARED) + kept,
                                       ALIGNED_SHARED),
    .local_bytes = c->stack_bytes ? (unsigned)round_up(c->stack_bytes + ABOVE_STACK, 32) : 0};
  if (c->params_bytes != 8u * (unsigned)(k->base.n_bufs + k->n_vars) || k->facts.constants[0].bytes > MOST_CONSTANTS)
    return error_set(err, "NV: %s has %u bytes of arguments at %u, which are not %d of 8 bytes", p->name,
                     c->params_bytes, c->params_at, k->base.n_bufs + k->n_vars);
  if (k->facts.shared_bytes > (unsigned)g->gpu.shared_bytes + KEPT_SHARED)
    return error_set(err, "NV: %s needs %u bytes of a work-group's memory", p->name, k->facts.shared_bytes);
  return 0;
}

// The offset of a bank after the code; for NV_BANKS: the end of the last one.
static uint64_t bank_offset(const nv_cubin *c, int bank) {
  uint64_t at = round_up(c->code_bytes + PREFETCHED, NV_QMD_ALIGNED);
  for (int i = 1; i < bank; i++) at += round_up(c->banks[i].n, NV_QMD_ALIGNED);
  return at;
}

static int bring_code(nv_code *k, const nv_cubin *c, error *err) {
  nv_gpu *g = k->g;
  if (!(k->at = nv_rm_alloc(&g->rm, bank_offset(c, NV_BANKS), NV_VRAM, false, err))) return -1;
  k->facts.code = k->at;
  for (int i = 1; i < NV_BANKS; i++) {
    if (!c->banks[i].n) continue;
    k->facts.constants[i].at = k->at + bank_offset(c, i);
    k->facts.constants[i].bytes = (unsigned)c->banks[i].n;
    if (nv_gpu_write(g, k->facts.constants[i].at, c->banks[i].at, c->banks[i].n, err)) return -1;
  }
  return nv_gpu_write(g, k->at, c->code, c->code_bytes, err);
}

static void unload_cubin(remote_code *k) {
  turn_lock *of = &((nv_code *)k)->g->memory.turn;
  turn_take(of);
  nv_code_free((nv_code *)k);
  turn_give(of);
}

nv_code *nv_code_load(nv_gpu *g, const program *p, int n_bufs, const bytes *cubin, error *err) {
  nv_cubin c;
  if (nv_cubin_read(&c, cubin->at, cubin->n, p->name, err)) return NULL;
  nv_code *k = xcalloc(1, sizeof *k);
  *k = (nv_code){.base = {unload_cubin, n_bufs}, .g = g, .n_vars = p->n_vars};
  if (!take_facts(k, p, &c, err) && (!k->facts.local_bytes || !nv_gpu_local(g, k->facts.local_bytes, err)) &&
      !bring_code(k, &c, err))
    return k;
  nv_code_free(k);
  return NULL;
}

void nv_code_free(nv_code *k) {
  if (!k) return;
  if (k->at) nv_rm_free(&k->g->rm, k->at);
  free(k);
}
