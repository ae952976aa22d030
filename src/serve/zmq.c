// Loads libzmq: see zmq.h.
#include "base/base.h"
#ifdef WEFT_KV_EVENTS
#include "serve/zmq.h"
#include <dlfcn.h>
#include <string.h>

int zmq_load(zmq_api *out, error *err) {
  zmq_api a;
  void *library = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error_set(err, "--kv-events-config needs libzmq, which is not here; Debian and Ubuntu have it as libzmq5");
  const struct { const char *name; void *to;
  } functions[] = {
    {"zmq_ctx_new", &a.context},    {"zmq_ctx_term", &a.end},         {"zmq_socket", &a.socket},
    {"zmq_close", &a.close},        {"zmq_bind", &a.bind},            {"zmq_setsockopt", &a.set},
    {"zmq_send", &a.send},          {"zmq_msg_init", &a.msg_init},    {"zmq_msg_close", &a.msg_close},
    {"zmq_msg_more", &a.msg_more},  {"zmq_msg_init_data", &a.msg_init_data}, {"zmq_msg_send", &a.msg_send},
    {"zmq_msg_recv", &a.msg_recv},  {"zmq_msg_size", &a.msg_size},    {"zmq_msg_data", &a.msg_data},
    {"zmq_poll", &a.poll},          {"zmq_errno", &a.error_number},   {"zmq_strerror", &a.text_of}};
  for (size_t i = 0; i < COUNT(functions); i++) {
    void *f = dlsym(library, functions[i].name);
    if (!f) { dlclose(library); return error_set(err, "libzmq has no %s", functions[i].name); }
    memcpy(functions[i].to, &f, sizeof f);
  }
  *out = a;
  return 0;
}
#endif
