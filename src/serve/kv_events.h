// kv_events: events of the KV cache for routers, over ZeroMQ and in MessagePack as vLLM publishes them: which blocks of
// tokens this server has (kv_blocks.h). A message has three frames: the topic, its number (8 bytes, the highest
// first) and [seconds, [event, ...], 0]. Who has missed some asks a second socket for them, by the first one's number,
// and gets [number, message] each, at last [-1, ""].
//
// Events never hold up a step: messages are put into a ring, and a thread sends them. If it is behind, the oldest are
// lost, which their numbers show. Whoever reads too slowly loses messages as well.
//
// libzmq is opened at run time. Sockets and its threads are made before the process gives up the right to make them.
#ifndef WEFT_SERVE_KV_EVENTS_H
#define WEFT_SERVE_KV_EVENTS_H
#include "base/base.h"

typedef struct kv_events kv_events;
// json: the object of vLLM's --kv-events-config; host: address of the server, for a config that says none. 0 and NULL:
// they are not wanted. -1: something in it cannot be, or libzmq is missing.
int kv_events_open(const char *json, const char *host, int block_size, kv_events **out, error *err);
const char *kv_events_addresses(const kv_events *v);     // "tcp://127.0.0.1:5557"
int kv_events_start(kv_events *v, error *err);           // the thread that sends; NULL is fine
void kv_events_close(kv_events *v);                      // sends what is left; NULL is fine

// On one thread, one after another (kv_blocks.h). parent NULL: there is no block before the first one.
size_t kv_events_block_size(const kv_events *v);
void kv_events_stored(kv_events *v, const uint64_t *hashes, size_t n, const uint64_t *parent, const int32_t *ids);
void kv_events_removed(kv_events *v, const uint64_t *hashes, size_t n);
void kv_events_cleared(kv_events *v);
void kv_events_send(kv_events *v);                       // those since the last time, as one message
#endif
