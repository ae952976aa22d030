// Plans on Vulkan (DEV=VK): memory, kernels and plans. See vulkan.h and remote.h.
//
// A plan is one command buffer, recorded once: a dispatch for each kernel, and barriers between commands. Kernels
// access memory by address and find the addresses in a block of arguments each. A run with other variables therefore
// writes words into these blocks; a kernel whose number of work-groups depends on variables reads that from its block
// too. If the device's memory is not the host's, transferred data goes through staging memory that both see.
#define _GNU_SOURCE
#include "device/vulkan.h"

#ifndef WEFT_VULKAN
int vk_start(struct device *d, error *err) {
  vk *none;
  (void)d;
  return vk_open(NULL, &none, err);
}
#else
#include <stdlib.h>
#include <string.h>
#include "base/env.h"
#include "device/cache.h"
#include "device/code_version.h"
#include "device/remote.h"
#include "device/vulkan_impl.h"

enum { STAGING_BYTES = 4 << 20, BLOCK_ALIGNED = 64 };

typedef struct vk_device { vk *d; vk_memory staging; VkCommandPool pool; remote memory; } vk_device;

// ---- memory ---------------------------------------------------------------------------------------------------------

static const vk_memory *vk_piece(const void *memory) { return memory; }

static unsigned char *vk_mapped(const void *memory) { return vk_piece(memory)->mapped; }

static void vk_drop_piece(void *state, void *memory) {
  vk_drop(((vk_device *)state)->d, memory);
  free(memory);
}

static int zero_piece(vk *d, const vk_memory *m, error *err) {
  VkCommandBuffer c;
  if (vk_begin(d, &c, err)) return -1;
  d->CmdFillBuffer(c, m->buffer, 0, VK_WHOLE_SIZE, 0);
  return vk_end(d, c, err);
}

static void *vk_make_piece(void *state, uint64_t size, enum remote_use use, error *err) {
  vk_device *s = state;
  vk_memory *m = xcalloc(1, sizeof *m);
  if (!vk_make(s->d, round_up(size, 4), use == REMOTE_GUEST, m, err) && !zero_piece(s->d, m, err)) return m;
  vk_drop_piece(s, m);
  return NULL;
}

static int copy_between(vk *d, const vk_memory *to, uint64_t to_at, const vk_memory *from, uint64_t from_at, uint64_t n,
                      error *err) {
  VkCommandBuffer c;
  if (vk_begin(d, &c, err)) return -1;
  d->CmdCopyBuffer(c, from->buffer, to->buffer, 1, &(VkBufferCopy){from_at, to_at, n});
  return vk_end(d, c, err);
}

static int have_staging(vk_device *s, error *err) {
  return s->staging.buffer ? 0 : vk_make(s->d, STAGING_BYTES, true, &s->staging, err);
}

static int vk_put(void *state, void *to, uint64_t at, const void *from, uint64_t n, error *err) {
  vk_device *s = state;
  const vk_memory *m = to;
  if (m->mapped) { memcpy(m->mapped + at, from, n); return 0; }
  if (have_staging(s, err)) return -1;
  for (uint64_t done = 0, length; done < n; done += length) {
    length = n - done < STAGING_BYTES ? n - done : STAGING_BYTES;
    memcpy(s->staging.mapped, (const unsigned char *)from + done, length);
    if (copy_between(s->d, m, at + done, &s->staging, 0, length, err)) return -1;
  }
  return 0;
}

static int vk_get(void *state, void *to, void *from, uint64_t at, uint64_t n, error *err) {
  vk_device *s = state;
  const vk_memory *m = from;
  if (m->mapped) { memcpy(to, m->mapped + at, n); return 0; }
  if (have_staging(s, err)) return -1;
  for (uint64_t done = 0, length; done < n; done += length) {
    length = n - done < STAGING_BYTES ? n - done : STAGING_BYTES;
    if (copy_between(s->d, &s->staging, 0, m, at + done, length, err)) return -1;
    memcpy((unsigned char *)to + done, s->staging.mapped, length);
  }
  return 0;
}

static int vk_copy(void *state, void *to, uint64_t to_at, void *from, uint64_t from_at, uint64_t n, error *err) {
  return copy_between(((vk_device *)state)->d, to, to_at, from, from_at, n, err);
}

// The command fills whole words; the remaining bytes at both ends are copied.
static int vk_fill(void *state, void *memory, uint64_t at, unsigned char value, uint64_t n, error *err) {
  vk_device *s = state;
  const vk_memory *m = memory;
  unsigned char few[4] = {value, value, value, value};
  VkCommandBuffer c;
  if (m->mapped) { memset(m->mapped + at, value, n); return 0; }
  uint64_t before = min_i64((int64_t)n, (int64_t)(-at & 3)), words = (n - before) & ~(uint64_t)3;
  if (before && vk_put(s, memory, at, few, before, err)) return -1;
  if (words) {
    if (vk_begin(s->d, &c, err)) return -1;
    s->d->CmdFillBuffer(c, m->buffer, at + before, words, 0x01010101u * value);
    if (vk_end(s->d, c, err)) return -1;
  }
  uint64_t behind = n - before - words;
  return behind ? vk_put(s, memory, at + before + words, few, behind, err) : 0;
}

// Vulkan does not report free memory here: returns all of the device's memory, if it is not the host's.
static uint64_t vk_room(void *state) {
  const vk *d = ((const vk_device *)state)->d;
  return d->unified || !d->bytes ? UINT64_MAX : d->bytes;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

static int vk_load(void *state, device_kernel *k, int n_bufs, error *err) {
  vk *d = ((vk_device *)state)->d;
  size_t n = k->packed.n / sizeof(uint32_t);
  vk_code *code = vk_compile(d, k->p, n_bufs, (const uint32_t *)(const void *)k->packed.at, n, err);
  k->remote = code ? &code->base : NULL;
  return code ? 0 : -1;
}

static int render_kernel_words(const device *dev, const program *p, str *words, error *err) {
  const render_options o = vk_render_options(((const vk_device *)dev->state)->d);
  return render_text(render_spirv, p, &o, words, err);
}

static int vk_show(device *dev, const program *p, str *source, str *assembly, error *err) {
  str words = {0};
  (void)assembly;
  int r = render_kernel_words(dev, p, &words, err);
  if (!r) render_words(source, &words);
  str_free(&words);
  return r;
}

// The cache stores the words: drivers cache compiled code themselves.
static int vk_compile_kernel(device *dev, device_kernel *k, error *err) {
  str words = {0};
  int r = render_kernel_words(dev, k->p, &words, err);
  if (!r && debug_level() >= 4) {
    str text = {0};
    render_words(&text, &words);
    fprintf(stderr, "--- source of %s\n%s\n", k->p->name, str_c(&text));
    str_free(&text);
  }
  if (!r) {
    k->packed = (bytes){xmalloc(words.n), words.n};
    memcpy(k->packed.at, words.at, words.n);
    r = vk_load(dev->state, k, k->p->n_bufs, err);
  }
  str_free(&words);
  return r;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

// The place of a command's arguments: its block begins with the numbers of work-groups (three words and a spare one).
enum { GROUPS_BYTES = 16 };
typedef struct vk_recording { VkCommandBuffer commands; vk_memory blocks; uint64_t *at; } vk_recording;

static const vk_code *code_behind(const remote_command *c) { return (const vk_code *)c->s->k->remote; }

static int make_blocks(const vk *d, remote_plan *r, vk_recording *own, error *err) {
  uint64_t size = 0;
  own->at = ARENA_ARRAY(r->mem, uint64_t, r->steps.n + 1);
  for (int i = 0; i < r->steps.n; i++) {
    const remote_command *c = &r->steps.at[i];
    own->at[i] = size;
    size +=
      round_up(GROUPS_BYTES + 8 * (uint64_t)(c->n_ranges + c->s->k->p->n_vars + VK_MORE_ARGUMENTS), BLOCK_ALIGNED);
  }
  if (vk_make(d, size + BLOCK_ALIGNED, true, &own->blocks, err)) return -1;
  memset(own->blocks.mapped, 0, size);
  for (int i = 0; i < r->steps.n; i++) {
    const remote_command *c = &r->steps.at[i];
    for (int j = 0; j < c->n_ranges; j++) {
      uint64_t address = vk_piece(c->ranges[j].memory)->address + c->ranges[j].from;
      memcpy(own->blocks.mapped + own->at[i] + GROUPS_BYTES + 8 * j, &address, sizeof address);
    }
  }
  return 0;
}

static void put_dispatch(const vk *d, VkCommandBuffer to, const remote_command *c, const vk_recording *own, int i) {
  VkDeviceAddress arguments = own->blocks.address + own->at[i] + GROUPS_BYTES;
  d->CmdBindPipeline(to, VK_PIPELINE_BIND_POINT_COMPUTE, code_behind(c)->pipeline);
  d->CmdPushConstants(to, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof arguments, &arguments);
  d->CmdDispatchIndirect(to, own->blocks.buffer, own->at[i]);
}

static VkResult begin_commands(const vk_device *s, VkCommandBuffer *out) {
  const vk *d = s->d;
  VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                      .commandPool = s->pool,
                                      .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                      .commandBufferCount = 1};
  VkCommandBufferBeginInfo often = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  VkResult status = d->AllocateCommandBuffers(d->device, &info, out);
  if (status) *out = NULL;
  return status ? status : d->BeginCommandBuffer(*out, &often);
}

static int vk_record(void *state, remote_plan *r, error *err) {
  vk_device *s = state;
  vk *d = s->d;
  vk_recording *own = r->own = ARENA_ARRAY(r->mem, vk_recording, 1);
  memset(own, 0, sizeof *own);
  if (make_blocks(d, r, own, err)) return -1;
  remote_steps_fix(&r->steps);
  pthread_mutex_lock(&d->lock);
  VkResult status = begin_commands(s, &own->commands);
  for (int i = 0; i < r->steps.n && !status; i++) {
    if (r->steps.at[i].barrier) vk_barrier(d, own->commands);
    put_dispatch(d, own->commands, &r->steps.at[i], own, i);
  }
  if (!status) vk_barrier(d, own->commands);
  if (!status) status = d->EndCommandBuffer(own->commands);
  pthread_mutex_unlock(&d->lock);
  return status ? vk_failed(d, err, "recording a plan", status) : 0;
}

static void vk_forget(void *state, remote_plan *r) {
  const vk_device *s = state;
  vk *d = s->d;
  vk_recording *own = r->own;
  if (!own) return;
  pthread_mutex_lock(&d->lock);
  if (own->commands) d->FreeCommandBuffers(d->device, s->pool, 1, &own->commands);
  pthread_mutex_unlock(&d->lock);
  vk_drop(d, &own->blocks);
}

// Writes what has changed since the last run.
static int patch_blocks(const vk *d, remote_plan *r, const vk_recording *own, error *err) {
  for (int i = 0; i < r->steps.n; i++) {
    remote_command *c = &r->steps.at[i];
    unsigned char *block = own->blocks.mapped + own->at[i];
    if (!c->changed) continue;
    const int64_t n[] = {c->groups[0], c->groups[1], c->groups[2]};
    uint32_t groups[3];
    if (vk_shape(d, c->s->k->p, n, groups, err)) return -1;
    memcpy(block, groups, sizeof groups);
    size_t vars = 8 * (size_t)c->s->k->p->n_vars;
    memcpy(block + GROUPS_BYTES + 8 * c->n_ranges, c->vars, vars);
    memcpy(block + GROUPS_BYTES + 8 * c->n_ranges + vars + 8, &c->tiles, sizeof c->tiles);
    memcpy(block + GROUPS_BYTES + 8 * c->n_ranges + vars + 16, &n[0], sizeof n[0]);
    c->changed = c->stale = false;
  }
  return 0;
}

// Submits and waits.
static int submit_commands(vk *d, VkCommandBuffer commands, error *err) {
  pthread_mutex_lock(&d->lock);
  VkResult status = vk_run_and_wait(d, commands);
  pthread_mutex_unlock(&d->lock);
  return status ? vk_failed(d, err, "running a plan", status) : 0;
}

// One kernel at a time, with device time stamps before and after each.
static int record_times(vk *d, const remote_plan *r, VkQueryPool times, error *err) {
  const vk_recording *own = r->own;
  VkCommandBuffer c;
  if (vk_begin(d, &c, err)) return -1;
  d->CmdResetQueryPool(c, times, 0, (uint32_t)r->steps.n + 1);
  d->CmdWriteTimestamp(c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, times, 0);
  for (int i = 0; i < r->steps.n; i++) {
    put_dispatch(d, c, &r->steps.at[i], own, i);
    vk_barrier(d, c);
    d->CmdWriteTimestamp(c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, times, (uint32_t)i + 1);
  }
  return vk_end(d, c, err);
}

static int run_with_queries(vk *d, const remote_plan *r, double (*spans)[2], error *err) {
  uint32_t n = (uint32_t)r->steps.n + 1;
  VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                .queryCount = n};
  VkQueryPool times = VK_NULL_HANDLE;
  if (!(d->tick > 0)) return error_set(err, "Vulkan: %s takes no times of kernels", d->name);
  VkResult status = d->CreateQueryPool(d->device, &info, NULL, &times);
  if (status) return vk_failed(d, err, "making time stamps", status);
  uint64_t *ticks = xcalloc(n, sizeof *ticks);
  int bad = record_times(d, r, times, err);
  if (!bad) {
    status = d->GetQueryPoolResults(d->device, times, 0, n, n * sizeof *ticks, ticks, sizeof *ticks,
                                    VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    bad = status ? vk_failed(d, err, "reading time stamps", status) : 0;
  }
  for (uint32_t i = 0; i + 1 < n && !bad; i++)
    for (int j = 0; j < 2; j++) spans[i][j] = (double)(ticks[i + (uint32_t)j] - ticks[0]) * d->tick;
  d->DestroyQueryPool(d->device, times, NULL);
  free(ticks);
  return bad;
}

static int vk_run(void *state, remote_plan *r, double (*spans)[2], error *err) {
  vk *d = ((vk_device *)state)->d;
  const vk_recording *own = r->own;
  if (patch_blocks(d, r, own, err)) return -1;
  return spans ? run_with_queries(d, r, spans, err) : submit_commands(d, own->commands, err);
}

static const remote_driver vk_driver = {.name = "Vulkan",
                                        .aligned = 16,       // render/spirv.c
                                        .make = vk_make_piece,
                                        .drop = vk_drop_piece,
                                        .address = vk_mapped,
                                        .put = vk_put,
                                        .get = vk_get,
                                        .copy = vk_copy,
                                        .fill = vk_fill,
                                        .room = vk_room,
                                        .load = vk_load,
                                        .record = vk_record,
                                        .forget = vk_forget,
                                        .run = vk_run};

// ---- the device -----------------------------------------------------------------------------------------------------

static void vk_stop(device *dev) {
  vk_device *s = dev->state;
  if (s->d) {
    vk_drop(s->d, &s->staging);
    if (s->pool) s->d->DestroyCommandPool(s->d->device, s->pool, NULL);
  }
  remote_free(&s->memory);
  vk_close(s->d);
  free(s);
}

int vk_start(device *dev, error *err) {
  vk_device *s = xcalloc(1, sizeof *s);
  dev->state = s;
  dev->stop = vk_stop;
  if (vk_open(dev->which, &s->d, err)) return -1;
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .queueFamilyIndex = s->d->family};
  VkResult status = s->d->CreateCommandPool(s->d->device, &pool, NULL, &s->pool);
  if (status) return vk_failed(s->d, err, "preparing the device", status);
  vk_target(s->d, &dev->target);
  remote_start(dev, &s->memory, &vk_driver, s);
  dev->compile = vk_compile_kernel;
  dev->show = vk_show;
  snprintf(dev->key, sizeof dev->key, "vulkan %.300s %x %d,%d", s->d->driver, s->d->can, dev->target.max_group,
           dev->target.max_local_bytes);
  dev->cache = cache_open(NULL, CODE_VERSION);
  return 0;
}
#endif
