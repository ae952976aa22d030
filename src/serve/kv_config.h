// kv_config: the object of --kv-events-config, with vLLM's members, and the sockets that it requests.
#ifndef WEFT_SERVE_KV_CONFIG_H
#define WEFT_SERVE_KV_CONFIG_H
#include "base/base.h"

// shown: in ZeroMQ's syntax, "tcp://127.0.0.1:5557"
struct kv_address { bool given; char host[64], shown[96]; int port; };
struct kv_config {
  bool wanted;
  bool maps;                           // events are maps, as in vLLM from 0.24 on; otherwise arrays
  struct kv_address endpoint, replay;
  int buffer, queue, limit;            // messages: stored for replay, waiting to be sent, waiting for one reader
  int block_size;
  char *topic;
};

// -1: an unknown or invalid member. Call kv_config_free in either case.
int kv_config_read(const char *json, const char *host, int block_size, struct kv_config *out, error *err);
void kv_config_free(struct kv_config *o);
int kv_config_listen(struct kv_address *a, int *fd, error *err);
#endif
