// kv_events: publishes events of the KV cache for routers, over ZeroMQ and in MessagePack like vLLM: which blocks of
// tokens this server has (kv_blocks.h). A message has three frames: the topic, its number (8 bytes, big-endian) and
// [seconds, [event, ...], 0]. A reader that missed messages requests them from a second socket by the first number, and
// gets [number, message] each, and finally [-1, ""].
//
// Events never delay a step: messages go into a ring, and a thread sends them. If it falls behind, the oldest are lost,
// as their numbers show. A reader that is too slow loses messages too.
//
// libzmq is opened at run time. Its sockets and threads are made before the process gives up the right to make them.
#ifndef WEFT_SERVE_KV_EVENTS_H
#define WEFT_SERVE_KV_EVENTS_H
#include "base/base.h"

typedef struct kv_events kv_events;
// json: the object of vLLM's --kv-events-config; host: the server's address, the default of the config. Returns 0 with
// NULL if events are off; -1 if the config is invalid or libzmq is missing.
int kv_events_open(const char *json, const char *host, int block_size, kv_events **out, error *err);
const char *kv_events_addresses(const kv_events *v);     // "tcp://127.0.0.1:5557"
int kv_events_start(kv_events *v, error *err);           // starts the sending thread; NULL is fine
void kv_events_close(kv_events *v);                      // sends what is left; NULL is fine

// Called by one thread in order (kv_blocks.h). parent NULL: the first block has no predecessor.
size_t kv_events_block_size(const kv_events *v);
void kv_events_stored(kv_events *v, const uint64_t *hashes, size_t n, const uint64_t *parent, const int32_t *ids);
void kv_events_removed(kv_events *v, const uint64_t *hashes, size_t n);
void kv_events_cleared(kv_events *v);
void kv_events_send(kv_events *v);                       // sends events since the last call as one message
#endif
