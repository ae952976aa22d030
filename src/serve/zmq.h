// zmq: libzmq, loaded only if events of the KV cache are published.
#ifndef WEFT_SERVE_ZMQ_H
#define WEFT_SERVE_ZMQ_H
#include <zmq.h>
#include "base/base.h"

typedef struct zmq_api {
  void *(*context)(void);
  int (*end)(void *context);
  void *(*socket)(void *context, int type);
  int (*close)(void *socket), (*bind)(void *socket, const char *address);
  int (*set)(void *socket, int option, const void *value, size_t n);
  int (*send)(void *socket, const void *bytes, size_t n, int flags);
  int (*msg_init)(zmq_msg_t *), (*msg_close)(zmq_msg_t *), (*msg_more)(const zmq_msg_t *);
  int (*msg_init_data)(zmq_msg_t *, void *bytes, size_t n, zmq_free_fn *, void *hint);
  int (*msg_send)(zmq_msg_t *, void *socket, int flags), (*msg_recv)(zmq_msg_t *, void *socket, int flags);
  size_t (*msg_size)(const zmq_msg_t *);
  void *(*msg_data)(zmq_msg_t *);
  int (*poll)(zmq_pollitem_t *, int n, long ms), (*error_number)(void);
  const char *(*text_of)(int);
} zmq_api;

int zmq_load(zmq_api *out, error *err);          // -1: not installed. It stays loaded.
#endif
