// /lora-adapters: the default scales of adapters, and the scales in a request.
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "serve/families.h"

void llama_adapters(server *s, exchange *x) {
  json_t *all = json_array();
  for (size_t i = 0; i < shelf_n_adapters(s->shelf); i++) {
    weft_adapter a = shelf_adapter(s->shelf, i);
    json_array_append_new(all, json_pack("{sI so sf ss ss}", "id", (json_int_t)i, "path",
                                         json_of_text(a.path, strlen(a.path)), "scale", a.scale, "task_name", "",
                                         "prompt_prefix", ""));
  }
  answer_json(x, 200, all);
}

// Converts [{"id", "scale"}] to a scale for each adapter; adapters not listed get 0. For free(); NULL and a fault.
static float *read_scales(server *s, const json_t *list, const char *name, fault *f) {
  size_t n = shelf_n_adapters(s->shelf), i;
  float *scales = xcalloc(n + 1, sizeof *scales);
  bool *said = xcalloc(n + 1, sizeof *said);
  double by;
  const json_t *one;
  int64_t id;
  if (!json_is_array(list))
    fault_set(f, 400, name, "'%s' must be an array of {id, scale}, not %s", name, json_kind(list));
  json_array_foreach(list, i, one) {
    if (f->status) break;
    const json_t *its = json_object_get(one, "id"), *scale = json_object_get(one, "scale");
    if (!n) fault_set(f, 400, name, "'%s' names an adapter, and the server has none (--lora)", name);
    else if (!its || !scale) fault_set(f, 400, name, "'%s[%zu]' must have an id and a scale", name, i);
    else if (!read_int(its, "id", 0, (double)(n - 1), &id, f) &&
             !read_real(scale, "scale", -1e6, 1e6, &by, f)) {
      if (said[id])
        fault_set(f, 400, name, "'%s[%zu]' has an id that stands before it, too: %lld", name, i, (long long)id);
      said[id] = true;
      scales[id] = (float)by;
    }
  }
  free(said);
  if (!f->status) return scales;
  free(scales);
  return NULL;
}

void llama_set_adapters(server *s, exchange *x) {
  fault f = {0};
  error err = {0};
  size_t left = 1 << 20;
  json_t *list = NULL;
  if (!json_fits(str_c(&x->body), x->body.n, &left, &err) ||
      !(list = json_parse(str_c(&x->body), x->body.n, JSON_ALLOW_NUL, &err)))
    fault_set(&f, 400, NULL, "the body is no JSON: %s", err.text);
  float *scales = f.status ? NULL : read_scales(s, list, "adapters", &f);
  if (scales) {
    shelf_set_scales(s->shelf, scales);
    answer_json(x, 200, json_pack("{sb}", "success", 1));
  } else {
    answer_fault(s, x, &f);
  }
  free(scales);
  json_decref(list);
}

int llama_adapt(call *c) {
  float *scales = read_scales(c->s, c->p.lora, "lora", &c->fault);
  for (size_t i = 0; scales && i < c->requests.n; i++)
    if (c->requests.at[i]->scales)
      memcpy(c->requests.at[i]->scales, scales, shelf_n_adapters(c->s->shelf) * sizeof *scales);
  free(scales);
  return scales ? 0 : -1;
}
