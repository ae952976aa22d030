// The GPU of the false driver: it reads a channel's ring, follows it to words of methods, and those to descriptors of
// launches, all by the published headers (open-gpu-doc, classes/: host/clc56f.h, compute/clc6c0.h and clcbc0.h,
// dma-copy/ clc6b5.h; qmd.h for descriptors). Kernels are run by fake_cuda/ptx.c: the PTX is the one that ptxas made
// the code of which lies where the descriptor points (FAKE_NV_KERNELS, filled by the script ptxas).
//
// Launches are held back until something waits for them, and then run backwards, so that a wait that is missing is a
// wrong answer. What a GPU would not survive ends the channel with a notice, as the driver gives it.
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fake_cuda/ptx.h"
#include "fake_nv/fake.h"
#include "fake_nv/qmd.h"

enum { MMU_FAULT = 31, PBDMA_ERROR = 32, GR_EXCEPTION = 13, FELL_OFF = 79, MOST_ARGS = 96 };

// bank: number 2 of constants, where it has one
typedef struct kernel { const uint8_t *code, *bank; size_t size, bank_size; ptx *text; } kernel;
static VEC(kernel) kernels;
static VEC(char *) files_read;
static VEC(uint64_t) pending;                    // descriptors
static uint32_t bound[8], host[0x100 / 4], compute[0x2000 / 4], copier[0x2000 / 4];
static int launches;
static bool dead;
static uint32_t get;                             // the next entry of the ring

static int qmd_version(void) { return fake.sm >= 90 ? 4 : 3; }

static void *at_address(uint64_t at) { return (void *)(uintptr_t)at; }

static void die_of(uint32_t xid, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void die_of(uint32_t xid, const char *fmt, ...) {
  char text[600];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  fake_note("%s: Xid %u: %s", xid == FELL_OFF ? "ended" : "fault", xid, text);
  nv_notice *n = at_address(fake.channel.notice);
  n->info = xid;
  atomic_thread_fence(memory_order_seq_cst);
  n->status = 0xffff;
  dead = true;
}

static uint64_t join(uint32_t high, uint32_t low) { return (uint64_t)high << 32 | low; }

// ---- which kernel code is -------------------------------------------------------------------------------------------

static uint8_t *read_whole(const char *path, size_t *n) {
  FILE *f = fopen(path, "re");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  *n = (size_t)ftell(f);
  rewind(f);
  uint8_t *p = calloc(1, *n + 1);
  if (fread(p, 1, *n, f) != *n) *n = 0;
  fclose(f);
  return p;
}

// The sections .text.* and .nv.constant2.* of a cubin that ptxas has just made.
static bool code_of(const uint8_t *p, size_t n, kernel *out) {
  const Elf64_Ehdr *e = (const Elf64_Ehdr *)(const void *)p;
  if (n < sizeof *e) return false;
  const Elf64_Shdr *s = (const Elf64_Shdr *)(const void *)(p + e->e_shoff);
  for (int i = 0; i < e->e_shnum; i++) {
    const char *name = (const char *)p + s[e->e_shstrndx].sh_offset + s[i].sh_name;
    if (!strncmp(name, ".text.", 6)) { out->code = p + s[i].sh_offset; out->size = s[i].sh_size; }
    if (!strncmp(name, ".nv.constant2.", 14)) { out->bank = p + s[i].sh_offset; out->bank_size = s[i].sh_size; }
  }
  return out->code;
}

static void read_new_kernels(void) {
  const char *folder = fake_setting("FAKE_NV_KERNELS", "");
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    char path[600], why[200] = "";
    size_t n = strlen(e->d_name), size;
    bool known = n < 7 || strcmp(e->d_name + n - 6, ".cubin");
    for (size_t i = 0; i < files_read.n && !known; i++) known = !strcmp(files_read.at[i], e->d_name);
    if (known) continue;
    vec_push(&files_read, strdup(e->d_name));
    kernel k = {0};
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    uint8_t *cubin = read_whole(path, &size);
    snprintf(path, sizeof path, "%s/%.*s.ptx", folder, (int)n - 6, e->d_name);
    uint8_t *text = read_whole(path, &(size_t){0});
    if (cubin && text && code_of(cubin, size, &k) && (k.text = ptx_read((const char *)text, why, sizeof why)))
      vec_push(&kernels, k);
    else fake_fault("%s: %s", e->d_name, why);
  }
  if (d) closedir(d);
}

static const kernel *kernel_at(uint64_t code) {
  for (int turn = 0; turn < 2; turn++) {
    for (size_t i = 0; i < kernels.n; i++)
      if (fake_is_mapped(code, kernels.at[i].size) && !memcmp(at_address(code), kernels.at[i].code, kernels.at[i].size))
        return &kernels.at[i];
    if (!turn) read_new_kernels();
  }
  return NULL;
}

// ---- launches -------------------------------------------------------------------------------------------------------

#define REFUSE(...) do { die_of(GR_EXCEPTION, __VA_ARGS__); return; } while (0)

static void check_config(const void *q, uint64_t shared) {
  int v = qmd_version();
  uint64_t least = qmd_get(q, v, QMD_MIN_SM_CONFIG_SHARED_MEM_SIZE),
           wanted = qmd_get(q, v, QMD_TARGET_SM_CONFIG_SHARED_MEM_SIZE),
           most = qmd_get(q, v, QMD_MAX_SM_CONFIG_SHARED_MEM_SIZE);
  if (least > wanted || wanted > most || (least - 1) * 4096 < shared)
    die_of(GR_EXCEPTION, "%llu bytes of a work-group's memory in a configuration of %llu, %llu, %llu",
           (unsigned long long)shared, (unsigned long long)least, (unsigned long long)wanted, (unsigned long long)most);
}

// Items in flight need memory of their own: what was given has to be enough for the whole GPU of this driver.
static void check_local(const void *q) {
  uint64_t item = qmd_get(q, qmd_version(), QMD_SHADER_LOCAL_MEMORY_HIGH_SIZE);
  uint64_t tpc = join(compute[0x2e4 / 4], compute[0x2e8 / 4]), at = join(compute[0x790 / 4], compute[0x794 / 4]);
  if (item && (item * 32 * 48 * 2 > tpc || !fake_is_mapped(at, tpc * 6)))
    die_of(GR_EXCEPTION, "%llu bytes of an item's memory, of %llu for a TPC", (unsigned long long)item,
           (unsigned long long)tpc);
}

// Bank 2, as many bits behind bank 0 as the headers say.
static bool has_bank(const void *q, const kernel *k) {
  int v = qmd_version(), valid = v == 4 ? 416 + 2 * 4 : 640 + 2, low = (v == 4 ? 1536 : 1024) + 2 * 64;
  const uint8_t *bytes = q;
  uint64_t words;
  memcpy(&words, bytes + low / 8, 8);
  uint64_t at = v == 4 ? (words & 0x7ffffffffffffull) << 6 : words & 0x1ffffffffffffull, size = (words >> 51) * 16;
  if (!k->bank_size) return !(bytes[valid / 8] >> valid % 8 & 1);
  return bytes[valid / 8] >> valid % 8 & 1 && size >= k->bank_size && fake_is_mapped(at, k->bank_size) && !(at % 64) &&
         !memcmp(at_address(at), k->bank, k->bank_size);
}

static void run_launch(uint64_t descriptor) {
  const void *q = at_address(descriptor);
  int v = qmd_version();
#define GET(f) qmd_get(q, v, QMD_##f)
  unsigned grid[] = {(unsigned)GET(GRID_WIDTH), (unsigned)GET(GRID_HEIGHT), (unsigned)GET(GRID_DEPTH)},
           block[] = {(unsigned)GET(CTA_THREAD_DIMENSION0), (unsigned)GET(CTA_THREAD_DIMENSION1),
                      (unsigned)GET(CTA_THREAD_DIMENSION2)};
  uint64_t code = join((uint32_t)GET(PROGRAM_ADDRESS_UPPER), (uint32_t)GET(PROGRAM_ADDRESS_LOWER)), args[MOST_ARGS],
           constants = join((uint32_t)GET(CONSTANT_BUFFER_ADDR_UPPER), (uint32_t)GET(CONSTANT_BUFFER_ADDR_LOWER)),
           bytes = GET(CONSTANT_BUFFER_SIZE_SHIFTED4) * 16, shared = GET(SHARED_MEMORY_SIZE),
           prefetch = join((uint32_t)GET(PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED),
                           (uint32_t)GET(PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED));
  char why[400] = "";
  if (v == 4) constants <<= 6;
  if (GET(QMD_MAJOR_VERSION) != (unsigned)v || GET(QMD_MINOR_VERSION) || (v == 4 && GET(QMD_TYPE) != 2))
    REFUSE("a descriptor of version %d", (int)GET(QMD_MAJOR_VERSION));
  const kernel *k = kernel_at(code);
  if (!k) REFUSE("no code at 0x%llx", (unsigned long long)code);
  if (prefetch != code >> 8 || code % 128 || GET(SASS_VERSION) != (unsigned)(fake.sm / 10 << 4 | fake.sm % 10))
    REFUSE("%s: where code is", ptx_name(k->text));
  const unsigned *wants = ptx_group(k->text);
  for (int i = 0; i < 3; i++)
    if (!grid[i] || !block[i] || (wants[i] && wants[i] != block[i]))
      REFUSE("%s: a launch of no size", ptx_name(k->text));
  uint64_t items = (uint64_t)block[0] * block[1] * block[2], registers = GET(REGISTER_COUNT);
  if (items > 1024 || !registers || (registers + 7) / 8 * 8 * ((items + 31) / 32 * 32) > 65536 || !GET(BARRIER_COUNT))
    REFUSE("%s: %llu items of %llu registers", ptx_name(k->text), (unsigned long long)items,
           (unsigned long long)registers);
  if (shared < 1024 + ptx_shared(k->text) || shared % 256)
    REFUSE("%s: %llu bytes", ptx_name(k->text), (unsigned long long)shared);
  check_config(q, shared);
  check_local(q);
  // where ptxas' code looks for arguments and for sizes, which nvdisasm shows
  unsigned params_at = fake.sm >= 90 ? 0x210 : 0x160, n = (unsigned)ptx_params(k->text);
  if (!GET(CONSTANT_BUFFER_VALID) || !GET(CONSTANT_BUFFER_INVALIDATE) || bytes < params_at + 8ull * n ||
      n > MOST_ARGS || constants % 64 || !fake_is_mapped(constants, bytes))
    REFUSE("%s: %llu bytes of constants at 0x%llx", ptx_name(k->text), (unsigned long long)bytes,
           (unsigned long long)constants);
  if (!has_bank(q, k)) REFUSE("%s: constant bank 2", ptx_name(k->text));
  const unsigned char *bank = at_address(constants);
  if (memcmp(bank, block, 12) || memcmp(bank + 12, grid, 12)) REFUSE("%s: sizes among constants", ptx_name(k->text));
  uint64_t stack;
  memcpy(&stack, bank + 0x28, 8);
  if (stack != 0xfffdc0) REFUSE("%s: an item's stack begins at 0x%llx", ptx_name(k->text), (unsigned long long)stack);
  memcpy(args, bank + params_at, 8ull * n);
  const char *end = fake_setting("FAKE_NV_DIE", "0");
  if (++launches == atoi(end) || (*end == '/' && !access(end, F_OK))) { die_of(FELL_OFF, "as asked"); return; }
  fake_note("launch %s registers %llu shared %llu local %llu barriers %llu", ptx_name(k->text),
            (unsigned long long)registers, (unsigned long long)shared,
            (unsigned long long)GET(SHADER_LOCAL_MEMORY_HIGH_SIZE), (unsigned long long)GET(BARRIER_COUNT));
  if (dead || !atoi(fake_setting("FAKE_NV_RUN", "1"))) return;
  int r = ptx_run(k->text, grid, block, args, fake_is_mapped, why, sizeof why);
  if (r) die_of(r == 700 ? MMU_FAULT : GR_EXCEPTION, "%s: %s", ptx_name(k->text), why);
#undef GET
}

static void wait_for_idle(void) {
  while (pending.n && !dead) run_launch(pending.at[--pending.n]);
  pending.n = 0;
}

// ---- methods --------------------------------------------------------------------------------------------------------

static void on_host(unsigned method) {
  if (method != 0x6c) return;
  uint32_t execute = host[0x6c / 4];
  uint64_t at = join(host[0x60 / 4], host[0x5c / 4]), value = join(host[0x68 / 4], host[0x64 / 4]);
  if ((execute & 7) != 1 || !(execute & 1 << 20) || !(execute & 1 << 24) || at >> 40 || at % 16 ||
      !fake_is_mapped(at, 16)) {
    die_of(PBDMA_ERROR, "a semaphore at 0x%llx: %x", (unsigned long long)at, execute);
    return;
  }
  wait_for_idle();
  if (dead) return;
  uint64_t *out = at_address(at);
  if (execute & 1 << 25) out[1] = (uint64_t)(now_s() * 1e9);
  atomic_thread_fence(memory_order_seq_cst);
  *(volatile uint64_t *)out = value;
}

static void on_compute(unsigned method, uint32_t value) {
  switch (method) {
  case 0x100:
  case 0x2a0:
  case 0x2a4:
  case 0x2e4:
  case 0x2e8:
  case 0x2ec:
  case 0x790:
  case 0x794:
  case 0x7b0:
  case 0x7b4:
  case 0x2b4: return;
  case 0x110: wait_for_idle(); return;
  case 0x1698: fake_note("forget caches %x", value); return;
  case 0x2c0: {
    uint64_t descriptor = (uint64_t)compute[0x2b4 / 4] << 8;
    if (value != 9 || !fake_is_mapped(descriptor, qmd_version() == 4 ? 384 : 256))
      die_of(GR_EXCEPTION, "a launch of what is at 0x%llx: %u", (unsigned long long)descriptor, value);
    else vec_push(&pending, descriptor);
    return;
  }
  default: die_of(GR_EXCEPTION, "no method %x of compute", method);
  }
}

// Whether a semaphore is written, or memory is.
static void copy_or_fill(uint32_t how) {
  uint64_t from = join(copier[0x400 / 4], copier[0x404 / 4]), to = join(copier[0x408 / 4], copier[0x40c / 4]),
           n = (uint64_t)copier[0x418 / 4] * copier[0x41c / 4];
  bool fill = how & 1 << 10;
  if (fill) n *= 4;
  if (pending.n) fake_fault("a copy while kernels may run");
  if (!fake_is_mapped(to, n) || (!fill && !fake_is_mapped(from, n)) || (how >> 7 & 3) != 3 ||
      (fill && (copier[0x708 / 4] != (4 | 3 << 16) || to % 4))) {
    die_of(MMU_FAULT, "%llu bytes from 0x%llx to 0x%llx: %x", (unsigned long long)n, (unsigned long long)from,
           (unsigned long long)to, how);
    return;
  }
  fake_note("%s %llu", fill ? "fill" : "copy", (unsigned long long)n);
  if (!fill) memmove(at_address(to), at_address(from), n);
  else if (copier[0x700 / 4] == 0x01010101u * (copier[0x700 / 4] & 0xff))
    memset(at_address(to), (int)copier[0x700 / 4], n);
  else die_of(GR_EXCEPTION, "a pattern of four bytes");
}

static void on_copy(unsigned method, uint32_t value) {
  if (method != 0x300) {
    if ((method < 0x400 || method > 0x41c) && (method < 0x700 || method > 0x708) && (method < 0x240 || method > 0x248))
      die_of(GR_EXCEPTION, "no method %x of copies", method);
    return;
  }
  if (value & 3) copy_or_fill(value);
  uint64_t at = join(copier[0x240 / 4], copier[0x244 / 4]);
  if (dead || !(value >> 3 & 3)) return;
  if ((value >> 3 & 3) != 1 || !(value & 4) || !fake_is_mapped(at, 4) || at % 4) {
    die_of(MMU_FAULT, "a semaphore of copies at 0x%llx", (unsigned long long)at);
    return;
  }
  atomic_thread_fence(memory_order_seq_cst);
  *(volatile uint32_t *)at_address(at) = copier[0x248 / 4];
}

static void method(unsigned on, unsigned number, uint32_t value) {
  if (number >= 0x2000) { die_of(PBDMA_ERROR, "method %x", number); return; }
  if (number == 0) {
    bound[on] = value;
    if (value != fake.channel.compute && value != fake.channel.copy) die_of(PBDMA_ERROR, "no object %x", value);
    return;
  }
  if (number < 0x100) { host[number / 4] = value; on_host(number); return; }
  if (bound[on] && bound[on] == fake.channel.compute) {
    compute[number / 4] = value;
    on_compute(number, value);
    return;
  }
  if (bound[on] && bound[on] == fake.channel.copy) { copier[number / 4] = value; on_copy(number, value); return; }
  die_of(PBDMA_ERROR, "method %x of subchannel %u, which has no object", number, on);
}

// ---- the ring -------------------------------------------------------------------------------------------------------

static void follow(uint64_t at, size_t n) {
  const uint32_t *w = at_address(at);
  if (!fake_is_mapped(at, n * 4)) { die_of(MMU_FAULT, "%zu words at 0x%llx", n, (unsigned long long)at); return; }
  for (size_t i = 0; i < n && !dead;) {
    uint32_t head = w[i++];
    unsigned kind = head >> 29, count = head >> 16 & 0x1fff, on = head >> 13 & 7, first = (head & 0xfff) * 4;
    if ((kind != 1 && kind != 3) || count > n - i) { die_of(PBDMA_ERROR, "the word %08x", head); return; }
    for (unsigned k = 0; k < count && !dead; k++) method(on, first + (kind == 1 ? 4 * k : 0), w[i + k]);
    i += count;
  }
}

// The GPU's own memory is there while it works.
static void show_memory(bool shown) {
  for (size_t i = 0; i < fake.mappings.n; i++) {
    const mapping *m = &fake.mappings.at[i];
    if (!m->seen) mprotect(at_address(m->at), m->size, shown ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

static void work(void) {
  volatile uint32_t *registers = at_address(fake.channel.registers);
  volatile uint64_t *ring = at_address(fake.channel.ring);
  fake_note("doorbell");
  show_memory(true);
  for (; get != registers[0x8c / 4] && !dead; get = (get + 1) % fake.channel.entries) {
    uint64_t e = ring[get];
    if (registers[0x8c / 4] >= fake.channel.entries || e & 3 || !(e >> 41 & 1))
      die_of(PBDMA_ERROR, "entry %u of the ring: %016llx", get, (unsigned long long)e);
    else follow(e & 0xfffffffffcull, e >> 42 & 0x1fffff);
  }
  show_memory(false);
}

void *fake_gpu(void *nothing) {
  (void)nothing;
  memset(bound, 0, sizeof bound);
  get = 0;
  for (;;) {
    pthread_mutex_lock(&fake.lock);
    if (!fake.doorbell) break;
    uint32_t rung = __atomic_exchange_n(&fake.doorbell[NV_DOORBELL / 4], 0, __ATOMIC_SEQ_CST);
    if (rung && rung != FAKE_TOKEN) fake_fault("rung with %x", rung);
    else if (rung && fake.channel.scheduled && fake.channel.registered && !dead) work();
    pthread_mutex_unlock(&fake.lock);
    if (!rung) usleep(20);
  }
  pthread_mutex_unlock(&fake.lock);
  return NULL;
}
