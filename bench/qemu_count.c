// A plugin of qemu (its interface, version 1): counts the instructions that a program executes in user mode, and says how many when
// it ends. bench/instructions.py compiles and loads it. One counter without a lock: programs run with one thread.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// What is used of qemu's interface; Debian 12 has no header for it.
struct qemu_plugin_tb;
typedef uint64_t plugin_id;
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*made)(plugin_id id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int add, void *to, uint64_t number);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*ended)(plugin_id id, void *ctx), void *ctx);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

static uint64_t executed;

static void on_block(plugin_id id, struct qemu_plugin_tb *tb) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(tb, 0, &executed, qemu_plugin_tb_n_insns(tb));
}

static void on_end(plugin_id id, void *ctx) {
  (void)id; (void)ctx;
  fprintf(stderr, "instructions: %" PRIu64 "\n", executed);
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
  (void)info; (void)argc; (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
  qemu_plugin_register_atexit_cb(id, on_end, NULL);
  return 0;
}
