// The runtime of devices with separate memory, for any number of threads: each function takes the device's turn, so a
// driver never has two callers at once (remote.h). One thread evaluates while another one writes pages to files; a
// driver's staging memory, its queues and the list of pieces belong to the holder.
#include "device/remote.h"

static void hold_remote(device *d) { turn_take(&d->remote->turn); }
static void let_go_remote(device *d) { turn_give(&d->remote->turn); }

// The value of `call` in a turn of the device.
#define IN_TURN(d, type, call) \
  do { \
    remote *of_turn = (d)->remote; \
    turn_take(&of_turn->turn); \
    type result = call; \
    turn_give(&of_turn->turn); \
    return result; \
  } while (0)

static void *alloc_in_turn(device *d, uint64_t size, enum pages pages, error *err) {
  IN_TURN(d, void *, remote_alloc(d, size, pages, err));
}

static void release_in_turn(device *d, void *at, uint64_t size) {
  hold_remote(d);
  remote_release(d, at, size);
  let_go_remote(d);
}

static int write_in_turn(device *d, void *to, const void *from, size_t n, error *err) {
  IN_TURN(d, int, remote_write(d, to, from, n, err));
}

static int read_in_turn(device *d, void *to, const void *from, size_t n, error *err) {
  IN_TURN(d, int, remote_read(d, to, from, n, err));
}

static int copy_in_turn(device *d, void *to, const void *from, size_t n, error *err) {
  IN_TURN(d, int, remote_copy(d, to, from, n, err));
}

static int fill_in_turn(device *d, void *to, unsigned char value, size_t n, error *err) {
  IN_TURN(d, int, remote_fill(d, to, value, n, err));
}

static uint64_t room_in_turn(const device *d) { IN_TURN(d, uint64_t, remote_room(d)); }

static bool take_in_turn(device *d, device_kernel *k, int n_bufs) { IN_TURN(d, bool, remote_take(d, k, n_bufs)); }

static int link_one(device *d, device_kernel *k, error *err) { IN_TURN(d, int, remote_link(d, k, err)); }

// A turn for each kernel: a driver may need long for it.
static int link_in_turns(device *d, device_kernel *kernels, int n, code_image **image, error *err) {
  (void)image;
  for (int i = 0; i < n; i++) if (link_one(d, &kernels[i], err)) return -1;
  return 0;
}

static int pack_in_turn(plan *p, const device_kernel *k, void *stream, const void *raw, uint64_t raw_bytes, int64_t lo,
                        int64_t hi, error *err) {
  IN_TURN(p->d, int, remote_pack_weight(p, k, stream, raw, raw_bytes, lo, hi, err));
}

static int record_in_turn(plan *p, error *err) { IN_TURN(p->d, int, remote_record(p, err)); }

static void forget_in_turn(plan *p) {
  hold_remote(p->d);
  remote_forget(p);
  let_go_remote(p->d);
}

static int replay_in_turn(plan *p, error *err) { IN_TURN(p->d, int, remote_replay(p, err)); }

static int replay_timed_in_turn(plan *p, struct plan_times *out, error *err) {
  IN_TURN(p->d, int, remote_replay_timed(p, out, err));
}

const runtime remote_runtime = {.alloc = alloc_in_turn,
                                .release = release_in_turn,
                                .write = write_in_turn,
                                .read = read_in_turn,
                                .copy = copy_in_turn,
                                .fill = fill_in_turn,
                                .room = room_in_turn,
                                .hold = hold_remote,
                                .let_go = let_go_remote,
                                .take = take_in_turn,
                                .link = link_in_turns,
                                .pack_weight = pack_in_turn,
                                .record = record_in_turn,
                                .forget = forget_in_turn,
                                .replay = replay_in_turn,
                                .replay_timed = replay_timed_in_turn};
