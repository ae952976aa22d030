// Finds a GPU and gives it a channel: see nv_gpu.h. Waiting and copies are in nv_run.c.
#include "device/nv_gpu.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "device/compiler.h"
#include "device/nv_ptxas.h"
#include "device/nv_run.h"

// ---- what it is -----------------------------------------------------------------------------------------------------

// The first class of a column that the GPU has; 0 if it has none.
static uint32_t first_of(const uint32_t *has, uint32_t n, const uint32_t *wanted) {
  for (; *wanted; wanted++)
    for (uint32_t i = 0; i < n; i++) if (has[i] == *wanted) return *wanted;
  return 0;
}

static int choose_classes(nv_gpu *g, error *err) {
  static const uint32_t compute[] = {NV_HOPPER_COMPUTE, NV_ADA_COMPUTE, NV_AMPERE_B_COMPUTE, NV_AMPERE_A_COMPUTE, 0},
                        copy[] = {NV_HOPPER_COPY, NV_AMPERE_B_COPY, NV_AMPERE_A_COPY, 0},
                        ring[] = {NV_HOPPER_RING, NV_AMPERE_RING, 0},
                        doorbell[] = {NV_HOPPER_DOORBELL, NV_TURING_DOORBELL, 0};
  enum { MOST_CLASSES = 4096 };
  nv_get_classes get = {0};
  if (nv_rm_control(&g->rm, g->rm.device, NV_GET_CLASSES, &get, sizeof get, "asking for classes", err)) return -1;
  if (!get.n || get.n > MOST_CLASSES) return error_set(err, "NV: the driver speaks of %u classes", get.n);
  uint32_t *has = xcalloc(get.n, sizeof *has), room = get.n;
  get.at = (uint64_t)(uintptr_t)has;
  int r = nv_rm_control(&g->rm, g->rm.device, NV_GET_CLASSES, &get, sizeof get, "asking for classes", err);
  uint32_t n = get.n < room ? get.n : room;
  g->classes = (nv_classes){first_of(has, n, compute), first_of(has, n, copy), first_of(has, n, ring),
                            first_of(has, n, doorbell), 3};
  free(has);
  if (r) return -1;
  if (g->classes.compute == NV_HOPPER_COMPUTE) g->classes.qmd = 4;
  return g->classes.compute && g->classes.copy && g->classes.ring && g->classes.doorbell
           ? 0
           : error_set(err, "NV: %s is of none of the kinds that are known (Ampere, Ada, Hopper): DEV=CUDA runs on any",
                       g->name);
}

static int ask_gr(nv_gpu *g, error *err) {
  nv_fact facts[] = {{NV_GR_SM_VERSION, 0}, {NV_GR_GPCS, 0}, {NV_GR_TPCS, 0}, {NV_GR_SMS, 0}, {NV_GR_WARPS, 0}};
  nv_get_gr get = {.n = COUNT(facts), .at = (uint64_t)(uintptr_t)facts};
  if (nv_rm_control(&g->rm, g->rm.subdevice, NV_GET_GR, &get, sizeof get, "asking what it is like", err)) return -1;
  unsigned version = facts[0].value, minor = version & 0xff;
  g->gpu.capability = (int)(10 * (version >> 8 & 0xff) + (minor > 0xf ? minor >> 4 : minor));
  g->gpcs = facts[1].value;
  g->tpcs = facts[2].value;
  g->sms = facts[3].value;
  g->warps = facts[4].value;
  uint64_t all = (uint64_t)g->gpcs * g->tpcs * g->sms * g->warps;
  return all && g->gpcs < 256 && g->tpcs < 256 && g->sms < 256 && g->warps < 256
           ? 0
           : error_set(err, "NV: the driver says that the GPU has %u x %u x %u x %u warps", g->gpcs, g->tpcs, g->sms,
                       g->warps);
}

static int ask_memory(const nv_gpu *g, uint32_t index, uint32_t *out, error *err) {
  nv_fact fact = {index, 0};
  nv_get_fb get = {.n = 1, .at = (uint64_t)(uintptr_t)&fact};
  int r = nv_rm_control(&g->rm, g->rm.subdevice, NV_GET_FB, &get, sizeof get, "asking for its memory", err);
  *out = fact.value;
  return r;
}

static int ask_name(nv_gpu *g, error *err) {
  struct { uint32_t flags; char text[128]; } name = {0};
  if (nv_rm_control(&g->rm, g->rm.subdevice, NV_GET_NAME, &name, g->rm.facts->name_bytes, "asking for its name", err))
    return -1;
  name.text[sizeof name.text - 1] = 0;
  snprintf(g->name, sizeof g->name, "%.64s", name.text);
  return 0;
}

int nv_gpu_find(nv_gpu *g, error *err) {
  uint32_t kib = 0, l2 = 0;
  *g = (nv_gpu){0};
  if (nv_rm_open(&g->rm, err) || ask_name(g, err) || choose_classes(g, err) || ask_gr(g, err) ||
      ask_memory(g, NV_FB_TOTAL, &kib, err) || ask_memory(g, NV_FB_L2, &l2, err))
    return -1;
  g->bytes = (uint64_t)kib << 10;
  g->gpu.cache_bytes = (int)min_i64(l2, INT32_MAX);
  g->gpu.max_items = 1024;
  g->gpu.shared_bytes = 48 << 10;                  // more must be requested, which no kernel does
  return nvidia_choose(&g->gpu, "NV", g->name, err) || nv_ptxas_find(&g->ptxas, &g->ptxas_version, err) ? -1 : 0;
}

int nv_gpu_room(const nv_gpu *g, uint64_t *left) {
  uint32_t kib;
  int r = ask_memory(g, NV_FB_FREE, &kib, NULL);
  *left = (uint64_t)kib << 10;
  return r;
}

// ---- the channel ----------------------------------------------------------------------------------------------------

static int make_space(nv_gpu *g, error *err) {
  nv_space_params p = {.base = 0x1000, .size = 0x1fffffb000000, .flags = NV_SPACE_FAULTS | NV_SPACE_EXTERNAL};
  return nv_rm_make(&g->rm, g->rm.device, NV_CLASS_SPACE, &p, &g->space, "an address space", err) ||
             nv_rm_use_space(&g->rm, g->space, err)
           ? -1
           : 0;
}

static int map_doorbell(nv_gpu *g, error *err) {
  uint32_t object;
  if (nv_rm_make(&g->rm, g->rm.subdevice, g->classes.doorbell, NULL, &object, "a page to ring", err)) return -1;
  void *at = nv_rm_map(&g->rm, g->rm.device, object, NV_DOORBELL_BYTES, NULL, false, 0, err);
  g->doorbell = at;
  return at ? 0 : -1;
}

static int make_memory_of_channel(nv_gpu *g, error *err) {
  nv_rm *rm = &g->rm;
  if (!(g->ring_at = nv_rm_alloc(rm, NV_RING_BYTES, NV_VRAM_SEEN, true, err)) ||
      !(g->area = nv_rm_alloc(rm, NV_AREA_BYTES, NV_HOST, false, err)) ||
      !(g->notice_at = nv_rm_alloc(rm, NV_NOTICE_BYTES, NV_HOST, false, err)) ||
      !(g->staging = nv_rm_alloc(rm, 2 * NV_HALF_BYTES, NV_HOST, false, err)))
    return -1;
  // the driver may write there as soon as the channel exists
  memset((void *)(uintptr_t)g->area, 0, NV_AREA_BYTES);
  memset((void *)(uintptr_t)g->notice_at, 0, NV_NOTICE_BYTES);
  return 0;
}

static int make_channel(nv_gpu *g, error *err) {
  nv_group_params group = {.engine = NV_ENGINE_GRAPHICS};
  nv_context_params context = {.space = g->space, .flags = NV_CONTEXT_ASYNC};
  nv_rm *rm = &g->rm;
  if (nv_rm_make(rm, rm->device, NV_CLASS_GROUP, &group, &g->group, "a group of channels", err) ||
      nv_rm_make(rm, g->group, NV_CLASS_CONTEXT, &context, &g->context, "a context", err))
    return -1;
  uint32_t ring = nv_rm_handle(rm, g->ring_at), object;
  nv_channel_params channel = {.error = nv_rm_handle(rm, g->notice_at), .buffer = ring, .ring = g->ring_at,
                               .entries = NV_RING_ENTRIES, .context = g->context, .registers = {ring},
                               .registers_offset = {NV_REGISTERS_AT}};
  return nv_rm_make(rm, g->group, g->classes.ring, &channel, &g->channel, "a channel", err) ||
             nv_rm_make(rm, g->channel, g->classes.compute, NULL, &object, "an object for kernels", err) ||
             nv_rm_make(rm, g->channel, g->classes.copy, NULL, &object, "an object for copies", err)
           ? -1
           : 0;
}

static int start_channel(nv_gpu *g, error *err) {
  nv_schedule start = {.enable = 1};
  nv_token token = {0};
  nv_rm *rm = &g->rm;
  if (nv_rm_control(rm, g->channel, NV_GET_TOKEN, &token, sizeof token, "asking for the channel's number", err))
    return -1;
  g->token = token.token;
  uvm_register_channel r = {.gpu = rm->uuid, .control = rm->control, .client = rm->client, .channel = g->channel,
                            .length = 64 << 20};
  r.base = nv_rm_addresses(rm, r.length, 2 << 20);
  if (nv_rm_uvm(rm, UVM_REGISTER_CHANNEL, &r, &r.status, "giving the channel to nvidia-uvm", err)) return -1;
  g->in_uvm = true;
  return nv_rm_control(rm, g->group, NV_SCHEDULE, &start, rm->facts->schedule_bytes, "starting the channel", err);
}

static void stop_channel(nv_gpu *g) {
  nv_rm *rm = &g->rm;
  uvm_unregister_channel u = {.gpu = rm->uuid, .client = rm->client, .channel = g->channel};
  uvm_unregister_channel_590 v = {.client = rm->client, .channel = g->channel};
  if (g->in_uvm && rm->facts->uvm_590) nv_rm_uvm(rm, UVM_UNREGISTER_CHANNEL, &v, &v.status, "", NULL);
  else if (g->in_uvm) nv_rm_uvm(rm, UVM_UNREGISTER_CHANNEL, &u, &u.status, "", NULL);
  if (g->channel) nv_rm_drop(rm, g->group, g->channel);
}

int nv_gpu_start(nv_gpu *g, error *err) {
  nv_words w = {0};
  if (make_space(g, err) || map_doorbell(g, err) || make_memory_of_channel(g, err) || make_channel(g, err) ||
      start_channel(g, err))
    return -1;
  nv_push_object(&w, NV_ON_COMPUTE, g->classes.compute);
  nv_push_object(&w, NV_ON_COPY, g->classes.copy);
  nv_push_windows(&w, NV_SHARED_WINDOW_AT, NV_LOCAL_WINDOW_AT);
  int r = nv_gpu_run_words(g, &w, err);
  nv_words_free(&w);
  return r;
}

void nv_gpu_close(nv_gpu *g) {
  if (!g) return;
  if (g->doorbell) munmap((void *)(uintptr_t)g->doorbell, NV_DOORBELL_BYTES);
  // the channel first, since it uses the memory
  stop_channel(g);
  nv_rm_close(&g->rm);
  compiler_free(g->gpu.llvm);
  remote_free(&g->memory);
  str_free(&g->ptxas);
  str_free(&g->ptxas_version);
  free(g);
}

int nv_list(str *out, error *err) {
  nv_gpu *g = xcalloc(1, sizeof *g);
  int r = nv_gpu_find(g, err);
  if (!r)
    str_addf(out, "%s, compute capability %d.%d, %.1f GiB, driver %s, kernels for %s by ptxas %s", g->name,
             g->gpu.capability / 10, g->gpu.capability % 10, (double)g->bytes / 0x1p30, g->rm.version, g->gpu.sm,
             str_c(&g->ptxas_version));
  nv_gpu_close(g);
  return r;
}
