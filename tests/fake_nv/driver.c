// A library that is preloaded and stands for NVIDIA's kernel driver: the files /dev/nvidiactl, /dev/nvidia0 and
// /dev/nvidia-uvm as far as DEV=NV uses them. It checks each call (structures' sizes, handles, classes and their
// parents, order), gives memory that is full of rubbish, and shows the GPU's own memory to this process only while the
// GPU works: touching it otherwise is a fault. gpu.c is the GPU.
//
// FAKE_NV_LOG names a file that gets a line for each thing that matters; FAKE_NV_SM is the compute capability (90 where
// it is not given), FAKE_NV_VERSION the driver's, FAKE_NV_CARDS=0 no GPU, FAKE_NV_MEMORY bytes of memory.
// FAKE_NV_MISSING is a file that is not there, or `ptxas`: no program of that name is; FAKE_NV_DENIED a file that may
// not be opened. FAKE_NV_FAIL=<kind>:<number>:<status> makes calls fail: alloc and a class, control and a command, uvm
// and a command, map and 0; numbers are hexadecimal. FAKE_NV_RUN=0 runs no kernel; FAKE_NV_DIE=<n> ends the GPU at the
// n-th launch, FAKE_NV_DIE=<file> once that is there.
#define _GNU_SOURCE
#include "fake_nv/fake.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum kind { NOT_OURS, CONTROL, CARD, UVM };
enum { MOST_FILES = 4096, NO_OBJECT = -1, INVALID = 0x1f, NO_MEMORY = 0x51, WRONG_SIZE = 0x3a, NO_CLASS = 0x22 };
static struct { enum kind kind; bool registered; long maps; /* an object's number */ } files[MOST_FILES];
static VEC(object) objects;
struct range { uint64_t at; uint64_t size; };
static VEC(struct range) ranges;                 // of addresses that UVM was asked for
static uint64_t used;
static bool uvm_started, uvm_has_gpu, uvm_has_space;

const char *fake_setting(const char *name, const char *otherwise) {
  const char *s = getenv(name);
  return s && *s ? s : otherwise;
}

static void say(const char *before, const char *fmt, va_list ap) {
  if (!fake.log) return;
  fputs(before, fake.log);
  vfprintf(fake.log, fmt, ap);
  fputc('\n', fake.log);
  fflush(fake.log);
}
void fake_note(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say("", fmt, ap);
  va_end(ap);
}
void fake_fault(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  say("fault: ", fmt, ap);
  va_end(ap);
}

static uint32_t made_to_fail(const char *kind, uint32_t number) {
  const char *s = fake_setting("FAKE_NV_FAIL", "");
  size_t n = strlen(kind);
  unsigned which, status;
  if (strncmp(s, kind, n) || s[n] != ':' || sscanf(s + n + 1, "%x:%x", &which, &status) != 2) return 0;
  return which == number ? status : 0;
}

static uint32_t refuse(uint32_t status, const char *why, uint32_t number) {
  fake_fault("%s (%x)", why, number);
  return status;
}

// ---- files ----------------------------------------------------------------------------------------------------------

static void *real(const char *name) {
  void *p = dlsym(RTLD_NEXT, name);
  if (!p) abort();
  return p;
}

static int real_open(const char *path, int flags, int mode) {
  int (*f)(const char *, int, ...);
  *(void **)&f = real("open");
  return f(path, flags, mode);
}

static int open_any(const char *path, int flags, int mode) {
  enum kind kind = !strcmp(path, "/dev/nvidiactl")    ? CONTROL
                   : !strcmp(path, "/dev/nvidia0")    ? CARD
                   : !strcmp(path, "/dev/nvidia-uvm") ? UVM
                                                      : NOT_OURS;
  if (kind == NOT_OURS) return real_open(path, flags, mode);
  if (!fake.log && *fake_setting("FAKE_NV_LOG", "")) fake.log = fopen(fake_setting("FAKE_NV_LOG", ""), "ae");
  fake.sm = atoi(fake_setting("FAKE_NV_SM", "90"));
  if (!strcmp(path, fake_setting("FAKE_NV_MISSING", ""))) { errno = ENOENT; return -1; }
  if (!strcmp(path, fake_setting("FAKE_NV_DENIED", ""))) { errno = EACCES; return -1; }
  if ((flags & O_ACCMODE) != O_RDWR || !(flags & O_CLOEXEC)) fake_fault("%s opened with flags %x", path, flags);
  int file = real_open("/dev/null", O_RDWR | O_CLOEXEC, 0);
  if (file >= MOST_FILES) abort();
  files[file].kind = kind;
  files[file].registered = false;
  files[file].maps = NO_OBJECT;
  return file;
}

#define VISIBLE __attribute__((visibility("default")))
VISIBLE int open(const char *path, int flags, ...);
VISIBLE int open64(const char *path, int flags, ...);
VISIBLE int __open_2(const char *path, int flags);
VISIBLE int __open64_2(const char *path, int flags);

static int mode_of(int flags, va_list ap) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0; }
int open(const char *path, int flags, ...) {
  va_list ap;
  va_start(ap, flags);
  int mode = mode_of(flags, ap);
  va_end(ap);
  return open_any(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list ap;
  va_start(ap, flags);
  int mode = mode_of(flags, ap);
  va_end(ap);
  return open_any(path, flags, mode);
}
int __open_2(const char *path, int flags) { return open_any(path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_any(path, flags, 0); }

VISIBLE int close(int file) {
  int (*f)(int);
  *(void **)&f = real("close");
  if (file >= 0 && file < MOST_FILES) files[file].kind = NOT_OURS;
  return f(file);
}

VISIBLE int execvp(const char *path, char *const args[]) {
  int (*f)(const char *, char *const[]);
  *(void **)&f = real("execvp");
  const char *name = strrchr(path, '/');
  if (strcmp(fake_setting("FAKE_NV_MISSING", ""), name ? name + 1 : path)) return f(path, args);
  errno = ENOENT;
  return -1;
}

// ---- objects --------------------------------------------------------------------------------------------------------

static object *find(uint32_t handle) {
  for (size_t i = 0; i < objects.n; i++)
    if (objects.at[i].live && objects.at[i].handle == handle) return &objects.at[i];
  return NULL;
}

static bool is_class(uint32_t handle, uint32_t class) {
  const object *o = find(handle);
  return o && o->class == class;
}

// What a GPU of this capability has.
static const uint32_t *classes(void) {
  static const uint32_t a100[] = {0xc56f, 0xc6b5, 0xc6c0, 0xc461, 0}, ga102[] = {0xc56f, 0xc7b5, 0xc7c0, 0xc461, 0},
                        ad102[] = {0xc56f, 0xc7b5, 0xc9c0, 0xc461, 0},
                        gh100[] = {0xc86f, 0xc8b5, 0xcbc0, 0xc661, 0xc461, 0},
                        gb202[] = {0xca6f, 0xcab5, 0xcec0, 0xc661, 0};
  return fake.sm == 80 ? a100 : fake.sm == 86 ? ga102 : fake.sm == 89 ? ad102 : fake.sm == 90 ? gh100 : gb202;
}

static bool has_class(uint32_t class) {
  for (const uint32_t *c = classes(); *c; c++) if (*c == class) return true;
  return false;
}

static uint64_t memory_of_gpu(void) { return strtoull(fake_setting("FAKE_NV_MEMORY", "4294967296"), NULL, 10); }

static uint32_t make_memory(object *o, const nv_memory_params *p, bool host) {
  enum { NEEDED = NV_MEMORY_ALIGNED | NV_MEMORY_HAS_HANDLE | NV_MEMORY_UNMAPPED };
  bool huge = (p->attr >> 23 & 3) == 3;
  // pages of 4 KiB for much of the GPU's memory would be slow
  uint64_t page = huge ? 2 << 20 : !host && (p->size > 64 << 10 || p->alignment > 4096) ? 64 << 10 : 4096;
  if ((p->flags & NEEDED) != NEEDED || p->type != (host ? 13u : 0) || (p->attr >> 25 & 3) != host || !p->size ||
      p->size % page || p->alignment != page || p->limit != p->size - 1 || (huge && (p->attr2 >> 20 & 3) != 1) ||
      p->owner != objects.at[0].handle)
    return refuse(INVALID, "memory of this kind", p->attr);
  if (!host && p->size > memory_of_gpu() - used) return NO_MEMORY;
  o->size = p->size;
  o->file = memfd_create("fake memory", MFD_CLOEXEC);
  if (o->file < 0 || ftruncate(o->file, (off_t)p->size)) return NO_MEMORY;
  if (!host) used += p->size;
  if (p->size <= 64 << 20) {                     // what was there is nobody's business
    void *at = mmap(NULL, p->size, PROT_READ | PROT_WRITE, MAP_SHARED, o->file, 0);
    memset(at, 0xa5, p->size);
    munmap(at, p->size);
  }
  return 0;
}

static uint64_t address_of(uint32_t memory) {
  for (size_t i = 0; i < fake.mappings.n; i++)
    if (fake.mappings.at[i].memory == memory) return fake.mappings.at[i].at;
  return 0;
}

static uint32_t make_channel(const object *o, const nv_channel_params *p) {
  channel *c = &fake.channel;
  if (!is_class(o->parent, NV_CLASS_GROUP) || !has_class(o->class)) return refuse(NO_CLASS, "a channel", o->class);
  if (!p->entries || p->entries & (p->entries - 1) || !fake_is_mapped(p->ring, p->entries * 8ull) ||
      !is_class(p->context, NV_CLASS_CONTEXT) || !is_class(p->error, NV_CLASS_HOST_MEMORY) ||
      !is_class(p->registers[0], NV_CLASS_MEMORY) || p->buffer != p->registers[0] || p->engine || p->space)
    return refuse(INVALID, "a channel's parameters", p->entries);
  *c = (channel){.handle = o->handle, .ring = p->ring, .entries = p->entries, .notice = address_of(p->error)};
  c->registers = address_of(p->registers[0]) + p->registers_offset[0];
  if (c->registers % 512 || !fake_is_mapped(c->registers, 512)) return refuse(INVALID, "a channel's registers", 0);
  return 0;
}

static uint32_t make_object(object *o, void *params) {
  const uint32_t of_gpu = NV_CLASS_DEVICE;
  switch (o->class) {
  case NV_CLASS_CLIENT: return objects.n ? refuse(INVALID, "a second client", 0) : 0;
  case NV_CLASS_DEVICE: {
    const nv_device_params *p = params;
    return !is_class(o->parent, NV_CLASS_CLIENT) || p->number || p->share_client != o->parent ? INVALID : 0;
  }
  case NV_CLASS_SUBDEVICE: return is_class(o->parent, of_gpu) && params ? 0 : INVALID;
  case NV_CLASS_SPACE: {
    const nv_space_params *p = params;
    return is_class(o->parent, of_gpu) && p->flags == (NV_SPACE_EXTERNAL | NV_SPACE_FAULTS) ? 0 : INVALID;
  }
  case NV_CLASS_HOST_MEMORY: case NV_CLASS_MEMORY:
    return is_class(o->parent, of_gpu) ? make_memory(o, params, o->class == NV_CLASS_HOST_MEMORY) : INVALID;
  case NV_CLASS_GROUP: return is_class(o->parent, of_gpu) && ((nv_group_params *)params)->engine == 1 ? 0 : INVALID;
  case NV_CLASS_CONTEXT: {
    const nv_context_params *p = params;
    return is_class(o->parent, NV_CLASS_GROUP) && is_class(p->space, NV_CLASS_SPACE) && p->flags == 1 ? 0 : INVALID;
  }
  case NV_AMPERE_RING: case NV_HOPPER_RING: return make_channel(o, params);
  case NV_TURING_DOORBELL: case NV_HOPPER_DOORBELL:
    if (!is_class(o->parent, NV_CLASS_SUBDEVICE) || !has_class(o->class)) return NO_CLASS;
    o->size = NV_DOORBELL_BYTES;
    o->file = memfd_create("fake doorbell", MFD_CLOEXEC);
    if (ftruncate(o->file, (off_t)o->size)) return NO_MEMORY;
    fake.doorbell = mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_SHARED, o->file, 0);
    return 0;
  default:
    if (!has_class(o->class) || o->parent != fake.channel.handle) return refuse(NO_CLASS, "no such class", o->class);
    if ((o->class & 0xff) == 0xc0) fake.channel.compute = o->class;
    else fake.channel.copy = o->class;
    return 0;
  }
}

static uint32_t alloc(nv_alloc *a) {
  static uint32_t next = 0xcaf00001;
  uint32_t status = made_to_fail("alloc", a->class);
  if (status) return status;
  if (a->class != NV_CLASS_CLIENT && (!find(a->client) || !find(a->parent)))
    return refuse(INVALID, "an object of nobody", a->class);
  object o = {.handle = next++, .parent = a->parent, .class = a->class, .file = -1, .live = true};
  if ((status = make_object(&o, (void *)(uintptr_t)a->params))) {
    if (o.file >= 0) close(o.file);
    return status;
  }
  vec_push(&objects, o);
  a->object = o.handle;
  return 0;
}

static void drop(object *o) {
  if (o->class == NV_CLASS_MEMORY) used -= o->size;
  if (o->handle == fake.channel.handle && fake.channel.registered) fake_fault("a channel that UVM still has");
  if (o->handle == fake.channel.handle) fake.channel.scheduled = false;
  if (o->file >= 0) close(o->file);
  o->live = false;
}

static uint32_t free_object(const nv_free *f) {
  object *o = find(f->object);
  if (!o) return refuse(INVALID, "freed twice", f->object);
  if (o->class != NV_CLASS_CLIENT) {
    if (o->parent != f->parent) return refuse(INVALID, "freed from another parent", f->object);
    if (address_of(o->handle)) return refuse(INVALID, "memory that is still mapped", o->handle);
    drop(o);
    return 0;
  }
  size_t memory = 0;
  for (size_t i = 0; i < objects.n; i++) {
    if (!objects.at[i].live) continue;
    memory += objects.at[i].class == NV_CLASS_MEMORY || objects.at[i].class == NV_CLASS_HOST_MEMORY;
    drop(&objects.at[i]);
  }
  vec_free(&objects);
  if (fake.doorbell) munmap((void *)(uintptr_t)fake.doorbell, NV_DOORBELL_BYTES);
  fake.doorbell = NULL;                          // which ends the GPU
  fake.channel = (channel){0};
  fake_note("left: %zu pieces of memory, %zu mappings", memory, fake.mappings.n);
  return 0;
}

// ---- control --------------------------------------------------------------------------------------------------------

static int version(void) { return atoi(fake_setting("FAKE_NV_VERSION", "570.86.16")); }

static uint32_t gr_fact(uint32_t index) {
  switch (index) {
  case NV_GR_SM_VERSION: return (uint32_t)(fake.sm / 10 << 8 | fake.sm % 10);
  case NV_GR_WARPS: return 48;
  case NV_GR_GPCS: return 2;
  case NV_GR_TPCS: return 3;
  case NV_GR_SMS: return 2;
  default: fake_fault("asked for fact %x", index); return 0;
  }
}

static uint32_t fb_fact(uint32_t index) {
  switch (index) {
  case NV_FB_TOTAL: return (uint32_t)(memory_of_gpu() >> 10);
  case NV_FB_FREE: return (uint32_t)((memory_of_gpu() - used) >> 10);
  case NV_FB_L2: return 4 << 20;
  default: fake_fault("asked for fact %x of memory", index); return 0;
  }
}

// The size that the version's headers give the command's structure.
static size_t size_of(uint32_t command) {
  switch (command) {
  case NV_GET_GPU: return 32;
  case NV_GET_CLASSES: return 16;
  case NV_GET_NAME: return version() >= 595 ? 68 : 132;
  case NV_GET_UUID: return 268;
  case NV_GET_GR: return 32;
  case NV_GET_FB: return 16;
  case NV_SCHEDULE: return version() >= 575 ? 3 : 2;
  case NV_GET_TOKEN: return 4;
  default: return 0;
  }
}

static uint32_t control(const nv_control *c) {
  uint32_t status = made_to_fail("control", c->command);
  void *p = (void *)(uintptr_t)c->params;
  const object *o = find(c->object);
  if (status) return status;
  if (!o || !find(c->client)) return refuse(INVALID, "a command to nobody", c->command);
  if (c->params_size != size_of(c->command)) return refuse(WRONG_SIZE, "a command's structure", c->command);
  switch (c->command) {
  case NV_GET_GPU: ((nv_get_gpu *)p)->device = 0; return ((nv_get_gpu *)p)->id == 0x100 ? 0 : INVALID;
  case NV_GET_CLASSES: {
    nv_get_classes *g = p;
    uint32_t n = 0;
    for (const uint32_t *x = classes(); *x; x++, n++) if (g->at && n < g->n) ((uint32_t *)(uintptr_t)g->at)[n] = *x;
    g->n = n;
    return o->class == NV_CLASS_DEVICE ? 0 : INVALID;
  }
  case NV_GET_NAME: strcpy((char *)p + 4, "Fake GPU"); return o->class == NV_CLASS_SUBDEVICE ? 0 : INVALID;
  case NV_GET_UUID: memset(((nv_get_uuid *)p)->data, 0x5a, 16); return ((nv_get_uuid *)p)->flags == 2 ? 0 : INVALID;
  case NV_GET_GR: case NV_GET_FB: {
    nv_get_fb *g = p;
    nv_fact *facts = (nv_fact *)(uintptr_t)g->at;
    for (uint32_t i = 0; i < g->n; i++)
      facts[i].value = c->command == NV_GET_GR ? gr_fact(facts[i].index) : fb_fact(facts[i].index);
    return o->class == NV_CLASS_SUBDEVICE ? 0 : INVALID;
  }
  case NV_SCHEDULE: {
    pthread_t t;
    if (o->class != NV_CLASS_GROUP || !((nv_schedule *)p)->enable || !fake.channel.compute || !fake.channel.copy ||
        !fake.channel.registered)
      return refuse(INVALID, "a channel that is not ready is started", 0);
    fake.channel.scheduled = true;
    return pthread_create(&t, NULL, fake_gpu, NULL) || pthread_detach(t) ? INVALID : 0;
  }
  case NV_GET_TOKEN: ((nv_token *)p)->token = FAKE_TOKEN; return o->handle == fake.channel.handle ? 0 : INVALID;
  default: return refuse(INVALID, "no such command", c->command);
  }
}

static uint32_t map_memory(const nv_map *m) {
  uint32_t status = made_to_fail("map", 0);
  object *o = find(m->memory);
  if (status) return status;
  if (!o || o->file < 0 || m->length != o->size || m->offset || !find(m->device) || m->file < 0 ||
      m->file >= MOST_FILES)
    return refuse(INVALID, "memory that cannot be mapped", m->memory);
  bool host = o->class == NV_CLASS_HOST_MEMORY;
  if (files[m->file].kind != (host ? CONTROL : CARD) || (!host && !files[m->file].registered))
    return refuse(INVALID, "memory mapped by the wrong file", m->memory);
  files[m->file].maps = o - objects.at;
  return 0;
}

// ---- UVM ------------------------------------------------------------------------------------------------------------

bool fake_is_mapped(uint64_t at, size_t n) {
  for (size_t i = 0; i < fake.mappings.n; i++) {
    const mapping *m = &fake.mappings.at[i];
    if (at >= m->at && n <= m->size && at - m->at <= m->size - n) return true;
  }
  return false;
}

// Where this process mapped an object by itself.
static VEC(struct own { uint64_t at; uint32_t memory; }) own;

static uint32_t map_external(uint64_t base, uint64_t length, uint64_t offset, const uvm_attributes *gpu, uint64_t n,
                             uint32_t memory) {
  const object *o = find(memory);
  bool known = false, seen = false;
  for (size_t i = 0; i < ranges.n; i++) known |= ranges.at[i].at == base && ranges.at[i].size == length;
  for (size_t i = 0; i < own.n; i++) seen |= own.at[i].memory == memory && own.at[i].at == base;
  if (!known || !o || o->size != length || offset || n != 1 || gpu->mapping != 1 || gpu->gpu.at[0] != 0x5a ||
      fake_is_mapped(base, 1))
    return refuse(INVALID, "memory that cannot be mapped for the GPU", memory);
  for (size_t i = 0; i < own.n; i++)
    if (own.at[i].memory == memory && own.at[i].at != base) return refuse(INVALID, "two addresses", memory);
  if (!seen && mmap((void *)(uintptr_t)base, length, PROT_NONE, MAP_SHARED | MAP_FIXED, o->file, 0) == MAP_FAILED)
    return NO_MEMORY;
  vec_push(&fake.mappings, ((mapping){base, length, memory, seen}));
  return 0;
}

static uint32_t free_range(uint64_t base, uint64_t length) {
  for (size_t i = 0; i < ranges.n; i++) {
    if (ranges.at[i].at != base) continue;
    if (length && ranges.at[i].size != length) return refuse(INVALID, "another length than was asked for", 0);
    length = ranges.at[i].size;
    ranges.at[i] = ranges.at[--ranges.n];
    for (size_t k = 0; k < fake.mappings.n; k++) {
      if (fake.mappings.at[k].at != base) continue;
      if (!fake.mappings.at[k].seen)
        mmap((void *)(uintptr_t)base, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0);
      fake.mappings.at[k] = fake.mappings.at[--fake.mappings.n];
    }
    for (size_t k = 0; k < own.n; k++) if (own.at[k].at == base) own.at[k--] = own.at[--own.n];
    return 0;
  }
  return refuse(INVALID, "addresses that nobody asked for", 0);
}

static int uvm(int file, unsigned long command, void *p) {
  uint32_t status = made_to_fail("uvm", (uint32_t)command);
  if (!uvm_started && command != UVM_INITIALIZE && command != UVM_SHARE_MM) fake_fault("UVM before it is started");
  (void)file;
#define ANSWER(type, expression) do { type *x = p; x->status = status ? status : (expression); return 0; } while (0)
  switch (command) {
  case UVM_INITIALIZE: uvm_started = true; ANSWER(uvm_initialize, 0);
  case UVM_SHARE_MM: ANSWER(uvm_share_mm, 0);
  case UVM_REGISTER_GPU: uvm_has_gpu = true; ANSWER(uvm_register_gpu, x->gpu.at[15] == 0x5a ? 0 : INVALID);
  case UVM_REGISTER_SPACE:
    uvm_has_space = uvm_has_gpu;
    ANSWER(uvm_register_space, uvm_has_gpu && is_class(x->space, NV_CLASS_SPACE) ? 0 : INVALID);
  case UVM_CREATE_EXTERNAL: {
    uvm_create_external *x = p;
    x->status = status ? status : !uvm_has_space || x->base % 4096 || x->length % 4096 ? (uint32_t)INVALID : 0;
    if (!x->status) vec_push(&ranges, ((struct range){x->base, x->length}));
    return 0;
  }
  case UVM_MAP_EXTERNAL: {
    uvm_map_external *x = p;
    x->status = status ? status : map_external(x->base, x->length, x->offset, x->gpus, x->n, x->memory);
    return 0;
  }
  case UVM_FREE:
    // where older versions have a length the status is: nothing, before the call
    if (version() >= 590 && ((uvm_free_590 *)p)->status) fake_fault("UVM_FREE of an older version");
    if (version() >= 590) ANSWER(uvm_free_590, free_range(x->base, 0));
    ANSWER(uvm_free, free_range(x->base, x->length));
  case UVM_REGISTER_CHANNEL:
    fake.channel.registered = true;
    ANSWER(uvm_register_channel, x->channel == fake.channel.handle && !fake_is_mapped(x->base, 1) ? 0 : INVALID);
  case UVM_UNREGISTER_CHANNEL: {
    uint32_t which = version() >= 590 ? ((uvm_unregister_channel_590 *)p)->channel
                                        : ((uvm_unregister_channel *)p)->channel;
    if (!fake.channel.registered || which != fake.channel.handle) fake_fault("no channel %x", which);
    fake.channel.registered = false;
    if (version() >= 590) ANSWER(uvm_unregister_channel_590, 0);
    ANSWER(uvm_unregister_channel, 0);
  }
  default: fake_fault("no such UVM command %lx", command); errno = EINVAL; return -1;
  }
#undef ANSWER
}

// ---- calls ----------------------------------------------------------------------------------------------------------

static int answer_version(nv_version_query *q) {
  if (q->command != '2') { errno = EINVAL; return -1; }
  snprintf(q->text, sizeof q->text, "%s", fake_setting("FAKE_NV_VERSION", "570.86.16"));
  q->reply = 1;
  return 0;
}

static int cards(nv_card *c, size_t n) {
  memset(c, 0, n * sizeof *c);
  c[0] = (nv_card){.valid = (uint8_t)atoi(fake_setting("FAKE_NV_CARDS", "1")), .vendor = 0x10de, .id = 0x100};
  return 0;
}

static int escape(int file, unsigned long request, void *p) {
  size_t n = _IOC_SIZE(request);
  unsigned number = _IOC_NR(request);
  if (_IOC_TYPE(request) != 'F' || _IOC_DIR(request) != (_IOC_READ | _IOC_WRITE)) number = 0;
  bool on_card = files[file].kind == CARD;
#define SIZED(size) if (n != (size)) { fake_fault("ioctl %x with %zu bytes", number, n); errno = EINVAL; return -1; }
  switch (number) {
  case 0xd2: SIZED(72); return answer_version(p);
  case 0xc8: SIZED(32 * 72); return cards(p, 32);
  case 0xc9:
    SIZED(4);
    int with = ((nv_register_file *)p)->control;
    files[file].registered = on_card && with >= 0 && with < MOST_FILES && files[with].kind == CONTROL;
    if (!files[file].registered) errno = EINVAL;
    return files[file].registered ? 0 : -1;
  case 0x29: SIZED(16); ((nv_free *)p)->status = free_object(p); return 0;
  case 0x2a: SIZED(32); ((nv_control *)p)->status = control(p); return 0;
  case 0x2b: SIZED(32); ((nv_alloc *)p)->status = alloc(p); return 0;
  case 0x4e: SIZED(56); ((nv_map *)p)->status = map_memory(p); return 0;
  default: fake_fault("no such ioctl %lx", request); errno = EINVAL; return -1;
  }
#undef SIZED
}

VISIBLE int ioctl(int file, unsigned long request, ...);
int ioctl(int file, unsigned long request, ...) {
  va_list ap;
  va_start(ap, request);
  void *p = va_arg(ap, void *);
  va_end(ap);
  if (file < 0 || file >= MOST_FILES || files[file].kind == NOT_OURS) {
    int (*f)(int, unsigned long, ...);
    *(void **)&f = real("ioctl");
    return f(file, request, p);
  }
  pthread_mutex_lock(&fake.lock);
  int r = files[file].kind == UVM ? uvm(file, request, p) : escape(file, request, p);
  pthread_mutex_unlock(&fake.lock);
  return r;
}

static void *real_mmap(void *at, size_t n, int prot, int flags, int file, off_t offset) {
  static void *(*f)(void *, size_t, int, int, int, off_t);
  if (!f) *(void **)&f = real("mmap");
  return f(at, n, prot, flags, file, offset);
}

static void *map_any(void *at, size_t n, int prot, int flags, int file, off_t offset) {
  if (file < 0 || file >= MOST_FILES || files[file].kind == NOT_OURS || files[file].kind == UVM)
    return real_mmap(at, n, prot, flags, file, offset);
  long i = files[file].maps;
  if (i == NO_OBJECT || n != objects.at[i].size || offset) { errno = EINVAL; return MAP_FAILED; }
  if (at) vec_push(&own, ((struct own){(uint64_t)(uintptr_t)at, objects.at[i].handle}));
  return real_mmap(at, n, prot, flags, objects.at[i].file, 0);
}
VISIBLE void *mmap(void *at, size_t n, int prot, int flags, int file, off_t offset) {
  return map_any(at, n, prot, flags, file, offset);
}
VISIBLE void *mmap64(void *at, size_t n, int prot, int flags, int file, off64_t offset);
void *mmap64(void *at, size_t n, int prot, int flags, int file, off64_t offset) {
  return map_any(at, n, prot, flags, file, offset);
}
