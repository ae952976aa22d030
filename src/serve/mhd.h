// mhd: libmicrohttpd, opened only when a server starts: with GnuTLS and its dependencies it is nine libraries, half of
// a command's start time. If it is linked (WEFT_HTTP_LINKED: the static program, builds by zig cc, Windows, macOS), the
// linker fills the table of functions.
#ifndef WEFT_SERVE_MHD_H
#define WEFT_SERVE_MHD_H
#include <microhttpd.h>
#include "base/base.h"

#define MHD_FUNCTIONS(F)                                                                                              \
  F(add_connection) F(add_response_header) F(create_response_from_buffer) F(create_response_from_callback)            \
  F(destroy_response) F(get_connection_info) F(get_connection_values) F(get_version) F(is_feature_supported)          \
  F(lookup_connection_value) F(queue_response) F(quiesce_daemon) F(resume_connection) F(start_daemon) F(stop_daemon)  \
  F(suspend_connection)

typedef struct mhd_api {
#define F(name) __typeof__(MHD_##name) *name;
  MHD_FUNCTIONS(F)
#undef F
} mhd_api;

// -1: missing or too old. It stays loaded; a second call returns the same functions.
int mhd_load(mhd_api *out, error *err);
#endif
