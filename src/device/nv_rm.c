// Files, objects and memory of NVIDIA's kernel driver: see nv_rm.h.
#define _GNU_SOURCE
#include "device/nv_rm.h"
#include "base/plain.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

// From a comparison of the published sources of all versions from 550 to 595: other structures have not changed.
static const nv_version_facts nv_versions[] = {
  {590, 3, 132, true}, {575, 3, 132, false}, {550, 2, 132, false}};
enum {
  FIRST_SHORT_NAME = 595,
  LAST_KNOWN = 595,
  SMALL_PAGE = 4096,
  BIG_PAGE = 64 << 10,
  HUGE_PAGE = 2 << 20,
  HUGE_FROM = 8 << 20
};

// ---- errors and calls -----------------------------------------------------------------------------------------------

int nv_rm_failed(error *err, const char *what, uint32_t status) {
  static const struct {
    uint32_t status;
    const char *means;
  } known[] = {{0x0f, "the GPU is lost"},      {0x1a, "out of resources"},        {0x1b, "not permitted"},
               {0x1f, "invalid argument"},     {0x3a, "a structure of another version"}, {0x4f, "no free channel"},
               {0x51, "out of memory"},        {0x56, "not supported"},           {0x62, "the GPU has to be reset"}};
  const char *means = "error";
  for (size_t i = 0; i < COUNT(known); i++) if (known[i].status == status) means = known[i].means;
  return error_set(err, "NV: %s: %s (status 0x%02x of the driver)%s", what, means, status,
                   status == 0x51 || status == 0x1a
                     ? "; a smaller model, context (-c) or chunk (-ub) needs less memory"
                     : "");
}

static int nv_ioctl(int file, unsigned long number, void *params, const char *what, error *err) {
  int r;
  do r = ioctl(file, number, params); while (r < 0 && (errno == EINTR || errno == EAGAIN));
  return r < 0 ? error_set(err, "NV: %s: %s", what, strerror(errno)) : 0;
}

static int nv_escape(int file, enum nv_escape number, void *params, size_t n, const char *what, error *err) {
  return nv_ioctl(file, _IOC(_IOC_READ | _IOC_WRITE, NV_MAGIC, number, n), params, what, err);
}

int nv_rm_make(const nv_rm *rm, uint32_t parent, uint32_t class, void *params, uint32_t *out, const char *what,
               error *err) {
  nv_alloc a = {.client = rm->client, .parent = parent, .class = class, .params = (uint64_t)(uintptr_t)params};
  if (nv_escape(rm->control, NV_ALLOC, &a, sizeof a, what, err)) return -1;
  if (a.status) return nv_rm_failed(err, what, a.status);
  *out = a.object;
  return 0;
}

void nv_rm_drop(const nv_rm *rm, uint32_t parent, uint32_t object) {
  nv_free f = {rm->client, parent, object, 0};
  nv_escape(rm->control, NV_FREE, &f, sizeof f, "", NULL);
}

int nv_rm_control(const nv_rm *rm, uint32_t object, uint32_t command, void *params, size_t n, const char *what,
                  error *err) {
  nv_control c = {.client = rm->client, .object = object, .command = command, .params = (uint64_t)(uintptr_t)params,
                  .params_size = (uint32_t)n};
  if (nv_escape(rm->control, NV_CONTROL, &c, sizeof c, what, err)) return -1;
  return c.status ? nv_rm_failed(err, what, c.status) : 0;
}

int nv_rm_uvm(const nv_rm *rm, unsigned long command, void *params, const uint32_t *status, const char *what,
              error *err) {
  if (nv_ioctl(rm->uvm, command, params, what, err)) return -1;
  return *status ? nv_rm_failed(err, what, *status) : 0;
}

// ---- opening --------------------------------------------------------------------------------------------------------

static int nv_open_file(const char *path, error *err) {
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file >= 0) return file;
  if (errno == ENOENT || errno == ENXIO || errno == ENODEV)
    return error_set(err, "NV needs NVIDIA's kernel driver, and its file %s is not here: install the driver and load "
                          "its modules nvidia and nvidia-uvm", path);
  return error_set(err, "NV: %s: %s%s", path, strerror(errno),
                   errno == EACCES || errno == EPERM ? "; this process may not use the GPU" : "");
}

static int ask_version(nv_rm *rm, error *err) {
  nv_version_query q = {.command = NV_VERSION_ASK};
  if (nv_escape(rm->control, NV_VERSION, &q, sizeof q, "asking for the driver's version", err)) return -1;
  q.text[sizeof q.text - 1] = 0;
  snprintf(rm->version, sizeof rm->version, "%s", q.text);
  int major = atoi(q.text);
  static const nv_version_facts newest = {FIRST_SHORT_NAME, 3, 68, true};
  if (major >= FIRST_SHORT_NAME && major <= LAST_KNOWN) rm->facts = &newest;
  for (size_t i = 0; i < COUNT(nv_versions) && !rm->facts && major <= LAST_KNOWN; i++)
    if (major >= nv_versions[i].major) rm->facts = &nv_versions[i];
  return rm->facts ? 0
                   : error_set(err, "NV: NVIDIA's driver is version %s, and its interface is known from %d to %d only: "
                                    "DEV=CUDA runs with any", *q.text ? q.text : "?",
                               nv_versions[COUNT(nv_versions) - 1].major, LAST_KNOWN);
}

// Opens the GPU's device file, and ties it to the control file.
static int open_card(const nv_rm *rm, error *err) {
  char path[32];
  snprintf(path, sizeof path, "/dev/nvidia%u", rm->minor);
  int file = nv_open_file(path, err);
  nv_register_file r = {rm->control};
  if (file >= 0 && nv_escape(file, NV_REGISTER_FILE, &r, sizeof r, "registering a file", err)) {
    close(file);
    return -1;
  }
  return file;
}

static int choose_card(nv_rm *rm, error *err) {
  nv_card cards[NV_MOST_CARDS] = {0};
  if (nv_escape(rm->control, NV_CARDS, cards, sizeof cards, "asking for the GPUs", err)) return -1;
  for (int i = 0; i < NV_MOST_CARDS; i++) {
    if (!cards[i].valid) continue;
    rm->minor = cards[i].minor;
    rm->id = cards[i].id;
    return (rm->card = open_card(rm, err)) < 0 ? -1 : 0;
  }
  return error_set(err, "NV: NVIDIA's driver finds no GPU: does nvidia-smi list one?");
}

int nv_rm_open(nv_rm *rm, error *err) {
  nv_device_params device = {.space_mode = NV_SPACES_OPTIONAL};
  nv_subdevice_params subdevice = {0};
  nv_get_gpu gpu = {0};
  nv_get_uuid uuid = {.flags = NV_UUID_BINARY, .length = sizeof rm->uuid};
  *rm = (nv_rm){.control = -1, .card = -1, .uvm = -1, .uvm_mm = -1};
  if ((rm->control = nv_open_file("/dev/nvidiactl", err)) < 0 || ask_version(rm, err) ||
      nv_rm_make(rm, 0, NV_CLASS_CLIENT, NULL, &rm->client, "becoming a client of the driver", err) ||
      choose_card(rm, err))
    return -1;
  gpu.id = rm->id;
  if (nv_rm_control(rm, rm->client, NV_GET_GPU, &gpu, sizeof gpu, "asking which GPU it is", err)) return -1;
  device.number = gpu.device;
  device.share_client = rm->client;
  if (nv_rm_make(rm, rm->client, NV_CLASS_DEVICE, &device, &rm->device, "taking the GPU", err) ||
      nv_rm_make(rm, rm->device, NV_CLASS_SUBDEVICE, &subdevice, &rm->subdevice, "taking the GPU", err) ||
      nv_rm_control(rm, rm->subdevice, NV_GET_UUID, &uuid, sizeof uuid, "asking which GPU it is", err))
    return -1;
  memcpy(&rm->uuid, uuid.data, sizeof rm->uuid);
  return 0;
}

void nv_rm_close(nv_rm *rm) {
  while (rm->pieces.n) nv_rm_free(rm, rm->pieces.at[rm->pieces.n - 1].at);
  // freeing the client frees all of its objects
  if (rm->client) nv_rm_drop(rm, 0, rm->client);
  int files[] = {rm->uvm_mm, rm->uvm, rm->card, rm->control};
  for (size_t i = 0; i < COUNT(files); i++) if (files[i] >= 0) close(files[i]);
  if (rm->reserved) munmap((void *)(uintptr_t)NV_SPACE_FROM, NV_SPACE_BYTES);
  vec_free(&rm->pieces);
  vec_free(&rm->holes);
  *rm = (nv_rm){.control = -1, .card = -1, .uvm = -1, .uvm_mm = -1};
}

void *nv_rm_map(const nv_rm *rm, uint32_t parent, uint32_t object, uint64_t size, void *where, bool host,
                uint32_t flags, error *err) {
  int file = host ? nv_open_file("/dev/nvidiactl", err) : open_card(rm, err);
  if (file < 0) return NULL;
  nv_map m = {.client = rm->client, .device = parent, .memory = object, .length = size, .flags = flags, .file = file};
  void *at = NULL;
  if (!nv_escape(rm->control, NV_MAP, &m, sizeof m, "mapping memory", err)) {
    if (m.status) nv_rm_failed(err, "mapping memory", m.status);
    else if ((at = mmap(where, size, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0), file, 0)) ==
             MAP_FAILED) {
      error_set(err, "NV: mapping %llu bytes of memory: %s", (unsigned long long)size, strerror(errno));
      at = NULL;
    }
  }
  close(file);
  // a child process does not need it
  if (at) madvise(at, size, MADV_DONTFORK);
  return at;
}

// ---- addresses ------------------------------------------------------------------------------------------------------

int nv_rm_use_space(nv_rm *rm, uint32_t space, error *err) {
  uvm_initialize start = {0};
  uvm_register_gpu gpu = {.gpu = rm->uuid, .control = -1};
  uvm_register_space as = {.gpu = rm->uuid, .control = rm->control, .client = rm->client, .space = space};
  if ((rm->uvm = nv_open_file("/dev/nvidia-uvm", err)) < 0 || (rm->uvm_mm = nv_open_file("/dev/nvidia-uvm", err)) < 0 ||
      nv_rm_uvm(rm, UVM_INITIALIZE, &start, &start.status, "starting nvidia-uvm", err))
    return -1;
  uvm_share_mm share = {.file = rm->uvm};
  nv_ioctl(rm->uvm_mm, UVM_SHARE_MM, &share, "", NULL);         // not supported on all systems, and then not needed
  if (nv_rm_uvm(rm, UVM_REGISTER_GPU, &gpu, &gpu.status, "giving the GPU to nvidia-uvm", err) ||
      nv_rm_uvm(rm, UVM_REGISTER_SPACE, &as, &as.status, "giving addresses to nvidia-uvm", err))
    return -1;
  void *at = mmap((void *)(uintptr_t)NV_SPACE_FROM, NV_SPACE_BYTES, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != (void *)(uintptr_t)NV_SPACE_FROM) {
    if (at != MAP_FAILED) munmap(at, NV_SPACE_BYTES);
    return error_set(err, "NV: addresses 0x%llx to 0x%llx of this process cannot be reserved for the GPU (is there a "
                          "limit of its memory, ulimit -v?)", NV_SPACE_FROM, NV_SPACE_FROM + NV_SPACE_BYTES - 1);
  }
  rm->reserved = true;
  vec_push(&rm->holes, ((nv_hole){NV_SPACE_FROM, NV_SPACE_BYTES}));
  return 0;
}

// Takes addresses from the beginning of the first hole that is large enough.
uint64_t nv_rm_addresses(nv_rm *rm, uint64_t size, uint64_t alignment) {
  for (size_t i = 0; i < rm->holes.n; i++) {
    nv_hole h = rm->holes.at[i];
    uint64_t at = round_up(h.at, alignment), before = at - h.at;
    if (before > h.size || size > h.size - before) continue;
    nv_hole behind = {at + size, h.size - before - size};
    if (before) rm->holes.at[i].size = before;
    else rm->holes.at[i] = rm->holes.at[--rm->holes.n];
    if (behind.size) vec_push(&rm->holes, behind);
    return at;
  }
  return 0;
}

// Returns addresses and merges them with adjacent holes.
static void give_addresses_back(nv_rm *rm, uint64_t at, uint64_t size) {
  for (size_t i = 0; i < rm->holes.n;) {
    nv_hole h = rm->holes.at[i];
    if (h.at + h.size != at && at + size != h.at) { i++; continue; }
    if (h.at < at) at = h.at;
    size += h.size;
    rm->holes.at[i] = rm->holes.at[--rm->holes.n];
  }
  vec_push(&rm->holes, ((nv_hole){at, size}));
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static int make_memory(const nv_rm *rm, nv_memory *m, uint64_t page, bool one_piece, error *err) {
  bool host = m->where == NV_HOST;
  nv_memory_params p = {
    .owner = rm->client,
    .type = host ? NV_TYPE_NOTIFIER : NV_TYPE_IMAGE,
    .flags = NV_MEMORY_ANY_BANK | NV_MEMORY_ALIGNED | NV_MEMORY_HAS_HANDLE | NV_MEMORY_UNMAPPED |
             (host ? 0 : NV_MEMORY_PERSISTENT),
    .attr = (one_piece ? NV_ATTR_ONE_PIECE : NV_ATTR_PIECES) | (host ? NV_ATTR_HOST | NV_ATTR_WRITE_BACK : 0) |
            (page == HUGE_PAGE ? NV_ATTR_HUGE : 0),
    .attr2 = NV_ATTR2_PLAIN | (host ? NV_ATTR2_UNCACHED : NV_ATTR2_CACHED) | (page == HUGE_PAGE ? NV_ATTR2_2MB : 0),
    .format = NV_FORMAT_PLAIN,
    .size = m->size,
    .alignment = page,
    .limit = m->size - 1};
  char what[64];
  plain_snprintf(what, sizeof what, "%.2f GiB of memory", (double)m->size / 0x1p30);
  return nv_rm_make(rm, rm->device, host ? NV_CLASS_HOST_MEMORY : NV_CLASS_MEMORY, &p, &m->handle, what, err);
}

static int map_for_gpu(const nv_rm *rm, const nv_memory *m, error *err) {
  uvm_create_external range = {.base = m->at, .length = m->size};
  if (nv_rm_uvm(rm, UVM_CREATE_EXTERNAL, &range, &range.status, "addresses for memory", err)) return -1;
  uvm_map_external *map = xcalloc(1, sizeof *map);
  *map = (uvm_map_external){.base = m->at, .length = m->size, .n = 1, .control = rm->control, .client = rm->client,
                            .memory = m->handle};
  map->gpus[0] = (uvm_attributes){.gpu = rm->uuid, .mapping = UVM_READ_WRITE_ATOMIC};
  int r = nv_rm_uvm(rm, UVM_MAP_EXTERNAL, map, &map->status, "mapping memory for the GPU", err);
  free(map);
  return r;
}

static void unmap_for_gpu(const nv_rm *rm, const nv_memory *m) {
  uvm_free f = {.base = m->at, .length = m->size};
  uvm_free_590 g = {.base = m->at};
  if (rm->facts->uvm_590) nv_rm_uvm(rm, UVM_FREE, &g, &g.status, "", NULL);
  else nv_rm_uvm(rm, UVM_FREE, &f, &f.status, "", NULL);
}

// Reserves the range again without access.
static void unmap_for_process(const nv_memory *m) {
  if (m->where == NV_VRAM) return;
  mmap((void *)(uintptr_t)m->at, m->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

uint64_t nv_rm_alloc(nv_rm *rm, uint64_t size, enum nv_where where, bool one_piece, error *err) {
  // nvidia-uvm uses the largest pages that divide address and size
  uint64_t page = where == NV_HOST || size < BIG_PAGE ? SMALL_PAGE : size < HUGE_FROM ? BIG_PAGE : HUGE_PAGE;
  if (size > NV_SPACE_BYTES || !size) return (void)nv_rm_failed(err, "so much memory", 0x51), 0;
  nv_memory m = {.size = round_up(size, page), .where = where};
  m.at = nv_rm_addresses(rm, m.size, page);
  if (!m.at) return (void)nv_rm_failed(err, "addresses for memory", 0x51), 0;
  if (make_memory(rm, &m, page, one_piece, err)) { give_addresses_back(rm, m.at, m.size); return 0; }
  bool seen = where == NV_VRAM || nv_rm_map(rm, rm->device, m.handle, m.size, (void *)(uintptr_t)m.at, where == NV_HOST,
                                            where == NV_HOST ? 0 : NV_MAP_WRITE_COMBINED, err);
  if (seen && !map_for_gpu(rm, &m, err)) { vec_push(&rm->pieces, m); return m.at; }
  if (seen) { unmap_for_gpu(rm, &m); unmap_for_process(&m); }
  nv_rm_drop(rm, rm->device, m.handle);
  give_addresses_back(rm, m.at, m.size);
  return 0;
}

static nv_memory *piece_at(const nv_rm *rm, uint64_t at) {
  for (size_t i = 0; i < rm->pieces.n; i++) if (rm->pieces.at[i].at == at) return &rm->pieces.at[i];
  die("NV: no memory begins at 0x%llx", (unsigned long long)at);
}

void nv_rm_free(nv_rm *rm, uint64_t at) {
  nv_memory *p = piece_at(rm, at), m = *p;
  *p = rm->pieces.at[--rm->pieces.n];
  unmap_for_gpu(rm, &m);
  unmap_for_process(&m);
  nv_rm_drop(rm, rm->device, m.handle);
  give_addresses_back(rm, m.at, m.size);
}

uint32_t nv_rm_handle(const nv_rm *rm, uint64_t at) { return piece_at(rm, at)->handle; }
bool nv_rm_is_host(const nv_rm *rm, uint64_t at) { return piece_at(rm, at)->where == NV_HOST; }
