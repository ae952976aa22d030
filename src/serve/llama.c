// llama.cpp's endpoints.
#include "serve/families.h"
#include <string.h>

static const char *error_type(const fault *f) {
  switch (f->status) {
  case 401: return "authentication_error";
  case 403: return "permission_error";
  case 404: case 405: return "not_found_error";
  case 501: return "not_supported_error";
  case 503: return "unavailable_error";
  default: return f->n_ctx ? "exceed_context_size_error" : f->status < 500 ? "invalid_request_error" : "server_error";
  }
}

static json_t *llama_error(const fault *f) {
  json_t *e = json_pack("{s{si so ss}}", "error", "code", f->status, "message", json_of_text(f->text, strlen(f->text)), "type", error_type(f));
  json_t *in = json_object_get(e, "error");
  if (f->param[0]) json_object_set_new(in, "param", json_string(f->param));
  if (!f->n_ctx) return e;
  json_object_set_new(in, "n_prompt_tokens", json_integer(f->n_prompt));
  json_object_set_new(in, "n_ctx", json_integer(f->n_ctx));
  return e;
}

const struct family llama_family = {"llama.cpp", llama_error};
