// Code for AArch64 on any machine: kernels run under qemu's user mode (package qemu-user-static).
//
// A whole program for qemu, made without a linker: the kernel and a few lines of IR that call it, write the memory to
// stdout and end the process, as one blob; and a file with two segments, that blob and the memory, pointers included.
#ifndef WEFT_TEST_QEMU_H
#define WEFT_TEST_QEMU_H
#include "render/rig.h"
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

typedef struct memory { unsigned char *at[RIG_BUFS]; } memory;

// A kernel's text as code for t.
static inline code_blob qemu_blob(const char *text, const cpu_target *t, str *assembly) {
  error err = {0};
  bytes object;
  code_blob blob;
  if (llvm_compile_for(t->triple, text, t->cpu, t->features, &object, assembly, &err)) rig_fail("llvm", &err, text);
  if (elf_link(object.at, object.n, &blob, &err)) rig_fail("link", &err, text);
  bytes_free(&object);
  return blob;
}

enum { CODE_AT = 0x400000, DATA_AT = 0x10000000, PAGE = 0x10000 };

static inline void qemu_file(const char *path, const code_blob *blob, uint64_t entry, const unsigned char *data,
                             size_t n) {
  size_t code = (blob->code.n + PAGE - 1) / PAGE * PAGE;
  Elf64_Ehdr e = {.e_type = ET_EXEC,
                  .e_machine = EM_AARCH64,
                  .e_version = 1,
                  .e_entry = CODE_AT + entry,
                  .e_phoff = sizeof e,
                  .e_ehsize = sizeof e,
                  .e_phentsize = sizeof(Elf64_Phdr),
                  .e_phnum = 2};
  memcpy(e.e_ident, ELFMAG, SELFMAG);
  e.e_ident[EI_CLASS] = ELFCLASS64; e.e_ident[EI_DATA] = ELFDATA2LSB; e.e_ident[EI_VERSION] = 1;
  Elf64_Phdr p[2] = {{PT_LOAD, PF_R | PF_X, PAGE, CODE_AT, CODE_AT, blob->code.n, blob->code.n, PAGE},
                     {PT_LOAD, PF_R | PF_W, PAGE + code, DATA_AT, DATA_AT, n, n, PAGE}};
  int f = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0700);
  bool ok = f >= 0 && pwrite(f, &e, sizeof e, 0) == sizeof e && pwrite(f, p, sizeof p, sizeof e) == sizeof p &&
            pwrite(f, blob->code.at, blob->code.n, PAGE) == (ssize_t)blob->code.n &&
            pwrite(f, data, n, (off_t)(PAGE + code)) == (ssize_t)n;
  if (f >= 0) close(f);
  if (!ok) fail_msg("cannot write %s", path);
}

static inline const char *qemu_name(void) {
  static const char *const names[] = {"qemu-aarch64-static", "qemu-aarch64"};
  for (size_t i = 0; i < COUNT(names); i++) {
    char command[64];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", names[i]);
    if (!system(command)) return names[i];
  }
  return NULL;
}

// Runs tiles 0 .. tiles - 1 of the kernel on each of `runs` memories, one for each buffer of r, and leaves in them what
// they hold afterwards.
static inline void qemu_run(rig *r, const cpu_target *t, const char *text_of_kernel, int64_t tiles, const char *cpu,
                            int runs, memory *got) {
  size_t size = 0, offset[RIG_BUFS], each;
  for (int b = 0; b < r->n_bufs; b++) {
    offset[b] = size;
    size += (size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt);
  }
  each = size + 8 * RIG_BUFS;
  unsigned char *data = calloc((size_t)runs, each);
  str text = {0};
  str_add(&text, text_of_kernel);
  str_add(&text, "\ndefine void @begin() {\n");
  for (int i = 0; i < runs; i++) {
    unsigned char *image = data + (size_t)i * each;
    uint64_t base = DATA_AT + (uint64_t)i * each;
    for (int b = 0; b < r->n_bufs; b++) {
      uint64_t pointer = base + 8 * RIG_BUFS + offset[b];
      memcpy(image + 8 * b, &pointer, 8);
      memcpy(image + 8 * RIG_BUFS + offset[b], got[i].at[b],
             (size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt));
    }
    str_addf(&text, "  call void @%s(ptr inttoptr (i64 %llu to ptr), ptr null, i64 0, i64 %lld)\n", r->p.name,
             (unsigned long long)base, (long long)tiles);
  }
  str_addf(&text,
           "  %%w = call i64 asm sideeffect \"svc #0\", \"={x0},{x8},{x0},{x1},{x2},~{memory}\"(i64 64, i64 1, i64 %d, "
           "i64 %zu)\n",
           DATA_AT, (size_t)runs * each);
  str_add(&text,
          "  %e = call i64 asm sideeffect \"svc #0\", \"={x0},{x8},{x0},~{memory}\"(i64 93, i64 0)\n  ret void\n}\n");
  code_blob blob = qemu_blob(str_c(&text), t, NULL);
  uint64_t entry = UINT64_MAX;
  for (size_t k = 0; k < blob.symbols.n; k++)
    if (!strcmp(blob.symbols.at[k].name, "begin")) entry = blob.symbols.at[k].offset;
  assert_true(entry != UINT64_MAX);
  char folder[] = "/tmp/weft-qemu-XXXXXX", file[64], command[256];
  assert_non_null(mkdtemp(folder));
  snprintf(file, sizeof file, "%s/kernel", folder);
  qemu_file(file, &blob, entry, data, (size_t)runs * each);
  snprintf(command, sizeof command, "%s -cpu %s %s", qemu_name(), cpu, file);
  FILE *f = popen(command, "r");
  size_t n = f ? fread(data, 1, (size_t)runs * each, f) : 0;
  int status = f ? pclose(f) : -1;
  unlink(file);
  rmdir(folder);
  if (n != (size_t)runs * each || status)
    fail_msg("%s: status %d, %zu bytes of %zu; the kernel was\n%s", command, status, n, (size_t)runs * each,
             text_of_kernel);
  for (int i = 0; i < runs; i++)
    for (int b = 0; b < r->n_bufs; b++)
      memcpy(got[i].at[b], data + (size_t)i * each + 8 * RIG_BUFS + offset[b],
             (size_t)r->bufs[b].elems * (size_t)dtype_size(r->bufs[b].dt));
  code_blob_free(&blob);
  str_free(&text);
  free(data);
}

// Levels of AArch64 and qemu's processors for them: one of ARMv8.0, and up to one that has everything.
enum { QEMU_LEVELS = 3 };
typedef struct qemu_level { const char *spec, *cpu; cpu_target t; } qemu_level;

// Fills in the levels; ends the test as skipped, with the reason, where there is no qemu.
static inline void qemu_levels(qemu_level *l) {
  if (!qemu_name()) {
    print_message("skipped: no qemu-aarch64 (the package qemu-user-static): AArch64 code is not run\n");
    skip();
  }
  static const qemu_level levels[QEMU_LEVELS] = {{.spec = "armv8-a", .cpu = "cortex-a57"},
                                                 {.spec = "armv8.2-a", .cpu = "neoverse-n1"},
                                                 {.spec = "armv8.6-a", .cpu = "max"}};
  cpu_features have = {.arm = true};
#define F(field, llvm_name, word, bit, level) have.field = true;
  ARM_FEATURES(F)
#undef F
  for (int i = 0; i < QEMU_LEVELS; i++) {
    error err = {0};
    l[i] = levels[i];
    if (cpu_target_for(l[i].spec, &have, &l[i].t, &err)) fail_msg("%s", err.text);
  }
}
#endif
