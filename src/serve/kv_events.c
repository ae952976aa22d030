// The publisher: see kv_events.h. One ring holds messages to be sent and sent messages that may be replayed. libzmq
// references a message until the last reader has it, so messages are reference-counted, not copied.
#define _GNU_SOURCE
#include "serve/kv_events.h"
#include "serve/kv_config.h"
#ifdef WEFT_KV_EVENTS
#include <errno.h>
#include <msgpack.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "serve/zmq.h"

enum { MOST_BYTES = 64 << 20, LINGER_MS = 200 };
// Replays in work. libzmq holds REPLAY_QUEUE messages for each reader, and in a turn a reply sends ROUND more. A reader
// that takes nothing for STUCK_S loses its replies.
enum {
  MOST_REPLIES = 64,
  MOST_NAME = 255 /* of a client, in ZeroMQ */,
  REPLAY_QUEUE = 500,
  ROUND = 256,
  PAUSE_MS = 20
};
static const double STUCK_S = 30;
// since: when it sent a message last
struct reply { unsigned char client[MOST_NAME]; size_t n; uint64_t next; double since; bool done; };

typedef struct message { atomic_int holders; size_t n; char bytes[]; } message;

struct kv_events {
  struct kv_config o;
  zmq_api zmq;
  int fd, replay_fd, wake;             // listening sockets, until libzmq takes them over
  char addresses[256];
  void *context, *pub, *replay;
  pthread_t thread;
  bool started;
  struct reply replies[MOST_REPLIES];  // by age; used by the thread
  size_t n_replies;
  msgpack_sbuffer events;              // for the next message
  size_t n_events;
  pthread_mutex_t lock;
  // ---- protected by the lock: messages first .. next - 1 are in the ring; those from `sent` on are not sent yet
  message **ring;
  uint64_t first, sent, next;
  size_t bytes;
  bool stop;
};

// ---- MessagePack ----------------------------------------------------------------------------------------------------

static void pack_text(msgpack_packer *p, const char *text) { msgpack_pack_str_with_body(p, text, strlen(text)); }

// Begins an event: an array whose first element is its name, or a map with the name under "type".
static msgpack_packer begin_event(kv_events *v, const char *type, size_t members) {
  msgpack_packer p;
  msgpack_packer_init(&p, &v->events, msgpack_sbuffer_write);
  v->n_events++;
  if (v->o.maps) {
    msgpack_pack_map(&p, 1 + members);
    pack_text(&p, "type");
  } else {
    msgpack_pack_array(&p, 1 + members);
  }
  pack_text(&p, type);
  return p;
}

static void pack_key(const kv_events *v, msgpack_packer *p, const char *name) {
  if (v->o.maps) pack_text(p, name);
}

static void add_null(const kv_events *v, msgpack_packer *p, const char *name) {
  pack_key(v, p, name);
  msgpack_pack_nil(p);
}

static void add_hashes(const kv_events *v, msgpack_packer *p, const uint64_t *hashes, size_t n) {
  pack_key(v, p, "block_hashes");
  msgpack_pack_array(p, n);
  for (size_t i = 0; i < n; i++) msgpack_pack_uint64(p, hashes[i]);
}

// vLLM's value for the memory in which answers are made, for any device.
static void add_medium(const kv_events *v, msgpack_packer *p) {
  pack_key(v, p, "medium");
  pack_text(p, "GPU");
}

size_t kv_events_block_size(const kv_events *v) { return (size_t)v->o.block_size; }

void kv_events_stored(kv_events *v, const uint64_t *hashes, size_t n, const uint64_t *parent, const int32_t *ids) {
  msgpack_packer p = begin_event(v, "BlockStored", 7);
  add_hashes(v, &p, hashes, n);
  pack_key(v, &p, "parent_block_hash");
  if (parent) msgpack_pack_uint64(&p, *parent);
  else msgpack_pack_nil(&p);
  pack_key(v, &p, "token_ids");
  msgpack_pack_array(&p, n * (size_t)v->o.block_size);
  for (size_t i = 0; i < n * (size_t)v->o.block_size; i++) msgpack_pack_int32(&p, ids[i]);
  pack_key(v, &p, "block_size");
  msgpack_pack_int(&p, v->o.block_size);
  add_null(v, &p, "lora_id");
  add_medium(v, &p);
  add_null(v, &p, "lora_name");
}

void kv_events_removed(kv_events *v, const uint64_t *hashes, size_t n) {
  msgpack_packer p = begin_event(v, "BlockRemoved", 2);
  add_hashes(v, &p, hashes, n);
  add_medium(v, &p);
}

void kv_events_cleared(kv_events *v) { begin_event(v, "AllBlocksCleared", 0); }

static double unix_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static message *take_events(kv_events *v) {
  msgpack_sbuffer all;
  msgpack_packer p;
  msgpack_sbuffer_init(&all);
  msgpack_packer_init(&p, &all, msgpack_sbuffer_write);
  msgpack_pack_array(&p, 3);
  msgpack_pack_double(&p, unix_s());
  msgpack_pack_array(&p, v->n_events);
  msgpack_sbuffer_write(&all, v->events.data, v->events.size);
  msgpack_pack_int(&p, 0);             // rank
  message *m = xmalloc(sizeof *m + all.size);
  atomic_init(&m->holders, 1);
  m->n = all.size;
  memcpy(m->bytes, all.data, all.size);
  msgpack_sbuffer_destroy(&all);
  msgpack_sbuffer_clear(&v->events);
  v->n_events = 0;
  return m;
}

// ---- the ring -------------------------------------------------------------------------------------------------------

static void drop_message(void *bytes, void *hint) {
  message *m = hint;
  (void)bytes;
  if (atomic_fetch_sub(&m->holders, 1) == 1) free(m);
}

static message **ring_slot(const kv_events *v, uint64_t number) { return &v->ring[number % (uint64_t)v->o.buffer]; }

static void drop_first(kv_events *v) {
  message *m = *ring_slot(v, v->first++);
  v->bytes -= m->n;
  drop_message(NULL, m);
}

void kv_events_send(kv_events *v) {
  if (!v->n_events) return;
  message *m = take_events(v);
  pthread_mutex_lock(&v->lock);
  while (v->next > v->first && (v->next - v->first == (uint64_t)v->o.buffer || v->bytes + m->n > MOST_BYTES))
    drop_first(v);
  *ring_slot(v, v->next++) = m;
  v->bytes += m->n;
  if (v->next - v->sent > (uint64_t)v->o.queue) v->sent = v->next - (uint64_t)v->o.queue;
  if (v->sent < v->first) v->sent = v->first;
  pthread_mutex_unlock(&v->lock);
  eventfd_write(v->wake, 1);
}

// Message *number, or the first later one in the ring; referenced for the caller. NULL: none.
static message *hold_next(kv_events *v, uint64_t *number) {
  if (*number < v->first) *number = v->first;
  message *m = *number < v->next ? *ring_slot(v, *number) : NULL;
  if (m) atomic_fetch_add(&m->holders, 1);
  return m;
}

// ---- the thread -----------------------------------------------------------------------------------------------------

static void number_bytes(uint64_t number, unsigned char out[8]) {
  for (int i = 0; i < 8; i++) out[i] = (unsigned char)(number >> (56 - 8 * i));
}

// Takes m. libzmq drops messages for slow subscribers.
static void send_message(kv_events *v, void *socket, uint64_t number, message *m) {
  unsigned char head[8];
  zmq_msg_t body;
  number_bytes(number, head);
  v->zmq.send(socket, head, sizeof head, ZMQ_SNDMORE | ZMQ_DONTWAIT);
  if (v->zmq.msg_init_data(&body, m->bytes, m->n, drop_message, m)) { drop_message(NULL, m); return; }
  if (v->zmq.msg_send(&body, socket, ZMQ_DONTWAIT) < 0) v->zmq.msg_close(&body);
}

// false: nothing to send.
static bool send_next(kv_events *v) {
  pthread_mutex_lock(&v->lock);
  uint64_t number = v->sent;
  message *m = hold_next(v, &number);
  if (m) v->sent = number + 1;
  pthread_mutex_unlock(&v->lock);
  if (!m) return false;
  v->zmq.send(v->pub, v->o.topic, strlen(v->o.topic), ZMQ_SNDMORE | ZMQ_DONTWAIT);
  send_message(v, v->pub, number, m);
  return true;
}

// false: the client has gone, or its queue is full (EAGAIN).
static bool begin_reply(kv_events *v, const struct reply *r) {
  if (v->zmq.send(v->replay, r->client, r->n, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) return false;
  v->zmq.send(v->replay, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
  return true;
}

// The next message of a reply, or its end. false: not now, or never (r->done).
static bool go_on_replaying(kv_events *v, struct reply *r) {
  unsigned char end[8];
  if (!begin_reply(v, r)) {
    r->done = v->zmq.error_number() != EAGAIN || now_s() - r->since > STUCK_S;
    return false;
  }
  r->since = now_s();
  pthread_mutex_lock(&v->lock);
  message *m = r->next < UINT64_MAX ? hold_next(v, &r->next) : NULL;
  pthread_mutex_unlock(&v->lock);
  if (m) {
    send_message(v, v->replay, r->next++, m);
    return true;
  }
  number_bytes(UINT64_MAX, end);
  v->zmq.send(v->replay, end, sizeof end, ZMQ_SNDMORE | ZMQ_DONTWAIT);
  v->zmq.send(v->replay, "", 0, ZMQ_DONTWAIT);
  r->done = true;
  return false;
}

static bool is_of_one_client(const struct reply *a, const struct reply *b) {
  return a->n == b->n && !memcmp(a->client, b->client, a->n);
}

// Replies to one client go out one after the other. A turn of each; false: none could send.
static bool send_replays(kv_events *v) {
  bool moved = false;
  size_t kept = 0;
  for (size_t i = 0; i < v->n_replies; i++) {
    struct reply *r = &v->replies[i];
    bool waits = false;
    for (size_t k = 0; k < kept && !waits; k++) waits = is_of_one_client(&v->replies[k], r);
    if (waits) r->since = now_s();
    for (int k = 0; !waits && k < ROUND && go_on_replaying(v, r); k++) moved = true;
    if (!r->done) v->replies[kept++] = *r;
  }
  moved |= kept < v->n_replies;
  v->n_replies = kept;
  return moved;
}

// Takes a replay request: identity, empty, number. Malformed ones are skipped. false: none pending.
static bool take_replay(kv_events *v) {
  struct reply *r = &v->replies[v->n_replies];
  size_t frames = 0;
  bool fine = true;
  zmq_msg_t part;
  *r = (struct reply){.since = now_s()};
  for (bool more = true; more; frames++) {
    v->zmq.msg_init(&part);
    if (v->zmq.msg_recv(&part, v->replay, ZMQ_DONTWAIT) < 0) { v->zmq.msg_close(&part); return false; }
    size_t size = v->zmq.msg_size(&part);
    const unsigned char *bytes = v->zmq.msg_data(&part);
    if (frames == 0 && size <= MOST_NAME) memcpy(r->client, bytes, r->n = size);
    else if (frames == 1) fine &= !size;
    else if (frames == 2 && size == 8) for (int i = 0; i < 8; i++) r->next = r->next << 8 | bytes[i];
    else fine = false;
    more = v->zmq.msg_more(&part);
    v->zmq.msg_close(&part);
  }
  v->n_replies += fine && frames == 3;
  return true;
}

// Work of one turn is bounded, so that a stop is seen soon.
static void *publish(void *arg) {
  kv_events *v = arg;
  zmq_pollitem_t items[] = {{.fd = v->wake, .events = ZMQ_POLLIN}, {.socket = v->replay, .events = ZMQ_POLLIN}};
  for (bool stop = false, moved = false; !stop;) {
    eventfd_t count;
    bool full = v->n_replies == MOST_REPLIES;
    long wait = moved ? 0 : v->n_replies ? PAUSE_MS : -1;
    if (v->zmq.poll(items, v->replay && !full ? 2 : 1, wait) < 0) continue;
    if (items[0].revents) eventfd_read(v->wake, &count);
    pthread_mutex_lock(&v->lock);
    stop = v->stop;
    pthread_mutex_unlock(&v->lock);
    for (int i = 0; i < ROUND; i++) if (!(moved = send_next(v))) break;
    for (int i = 0; v->replay && v->n_replies < MOST_REPLIES && i < MOST_REPLIES && take_replay(v); i++) {}
    moved |= send_replays(v);
  }
  while (send_next(v)) {}
  return NULL;
}

// ---- its life -------------------------------------------------------------------------------------------------------

static bool set_option(const kv_events *v, void *socket, int option, int value) {
  return !v->zmq.set(socket, option, &value, sizeof value);
}

// Makes a libzmq socket over a listening one, which libzmq then owns. limit: messages per reader.
static void *open_zmq_socket(kv_events *v, int type, int *fd, const struct kv_address *a, int limit) {
  enum { MOST_ASKED = 256, WAITING = 16 };       // limits for readers: bytes of a frame, messages
  void *s = v->zmq.socket(v->context, type);
  if (!s) return NULL;
  if (set_option(v, s, ZMQ_USE_FD, *fd) && set_option(v, s, ZMQ_SNDHWM, limit) &&
      set_option(v, s, ZMQ_RCVHWM, WAITING) && set_option(v, s, ZMQ_LINGER, LINGER_MS) &&
      !v->zmq.set(s, ZMQ_MAXMSGSIZE, &(int64_t){MOST_ASKED}, sizeof(int64_t)) && !v->zmq.bind(s, a->shown)) {
    *fd = -1;
    return s;
  }
  v->zmq.close(s);
  return NULL;
}

static int open_all(kv_events *v, error *err) {
  if (zmq_load(&v->zmq, err) || kv_config_listen(&v->o.endpoint, &v->fd, err)) return -1;
  if (v->o.replay.given && kv_config_listen(&v->o.replay, &v->replay_fd, err)) return -1;
  snprintf(v->addresses, sizeof v->addresses, "%s%s%s", v->o.endpoint.shown, v->o.replay.given ? ", replay at " : "",
           v->o.replay.shown);
  v->context = v->zmq.context();
  if (v->context) v->pub = open_zmq_socket(v, ZMQ_PUB, &v->fd, &v->o.endpoint, v->o.limit);
  if (v->pub && v->o.replay.given)
    v->replay = open_zmq_socket(v, ZMQ_ROUTER, &v->replay_fd, &v->o.replay, REPLAY_QUEUE);
  // a full queue is an error, and not a lost message
  if (v->replay) set_option(v, v->replay, ZMQ_ROUTER_MANDATORY, 1);
  if (!v->pub || (v->o.replay.given && !v->replay))
    return error_set(err, "--kv-events-config: %s: %s", v->addresses, v->zmq.text_of(v->zmq.error_number()));
  v->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return v->wake < 0 ? error_set(err, "--kv-events-config: %s", strerror(errno)) : 0;
}

int kv_events_open(const char *json, const char *host, int block_size, kv_events **out, error *err) {
  kv_events *v = xcalloc(1, sizeof *v);
  *v = (kv_events){.fd = -1, .replay_fd = -1, .wake = -1};
  *out = NULL;
  pthread_mutex_init(&v->lock, NULL);
  msgpack_sbuffer_init(&v->events);
  int status = kv_config_read(json, host, block_size, &v->o, err);
  if (!status && v->o.wanted) {
    v->ring = xcalloc((size_t)v->o.buffer, sizeof *v->ring);
    status = open_all(v, err);
  }
  if (!status && v->o.wanted) *out = v;
  else kv_events_close(v);
  return status ? -1 : 0;
}

const char *kv_events_addresses(const kv_events *v) { return v->addresses; }

int kv_events_start(kv_events *v, error *err) {
  if (!v) return 0;
  v->started = !pthread_create(&v->thread, NULL, publish, v);
  return v->started ? 0 : error_set(err, "no thread could be made for events of the KV cache");
}

void kv_events_close(kv_events *v) {
  if (!v) return;
  if (v->started) {
    pthread_mutex_lock(&v->lock);
    v->stop = true;
    pthread_mutex_unlock(&v->lock);
    eventfd_write(v->wake, 1);
    pthread_join(v->thread, NULL);
  }
  if (v->pub) v->zmq.close(v->pub);
  if (v->replay) v->zmq.close(v->replay);
  if (v->context) v->zmq.end(v->context);
  if (v->fd >= 0) close(v->fd);
  if (v->replay_fd >= 0) close(v->replay_fd);
  if (v->wake >= 0) close(v->wake);
  while (v->first < v->next) drop_first(v);
  free(v->ring);
  msgpack_sbuffer_destroy(&v->events);
  pthread_mutex_destroy(&v->lock);
  kv_config_free(&v->o);
  free(v);
}
#else

int kv_events_open(const char *json, const char *host, int block_size, kv_events **out, error *err) {
  struct kv_config o;
  *out = NULL;
  int status = kv_config_read(json, host, block_size, &o, err);
  if (!status && o.wanted)
    status = error_set(err, "--kv-events-config: this weft was built without ZeroMQ's and MessagePack's headers, which "
                            "Debian and Ubuntu have as libzmq3-dev and libmsgpack-dev");
  kv_config_free(&o);
  return status;
}

const char *kv_events_addresses(const kv_events *v) { (void)v; return ""; }
int kv_events_start(kv_events *v, error *err) { (void)v; (void)err; return 0; }
void kv_events_close(kv_events *v) { (void)v; }
size_t kv_events_block_size(const kv_events *v) { (void)v; return 1; }
void kv_events_stored(kv_events *v, const uint64_t *hashes, size_t n, const uint64_t *parent, const int32_t *ids) {
  (void)v; (void)hashes; (void)n; (void)parent; (void)ids;
}
void kv_events_removed(kv_events *v, const uint64_t *hashes, size_t n) { (void)v; (void)hashes; (void)n; }
void kv_events_cleared(kv_events *v) { (void)v; }
void kv_events_send(kv_events *v) { (void)v; }
#endif
