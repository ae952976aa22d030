// Loads libmicrohttpd: see mhd.h.
#include "serve/mhd.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { OLDEST = 975 };                 // 0.9.75, as in cmake/libraries.cmake

static int refuse_old(const mhd_api *a, error *err) {
  int major = 0, minor = 0, patch = 0;
  sscanf(a->get_version(), "%d.%d.%d", &major, &minor, &patch);
  return 1000 * major + 100 * minor + patch >= OLDEST
           ? 0
           : error_set(err, "libmicrohttpd %s is too old: weft serve needs 0.9.75 or newer", a->get_version());
}

#ifdef WEFT_HTTP_LINKED
int mhd_load(mhd_api *out, error *err) {
#define F(name) .name = MHD_##name,
  *out = (mhd_api){MHD_FUNCTIONS(F)};
#undef F
  return refuse_old(out, err);
}
#else
int mhd_load(mhd_api *out, error *err) {
  mhd_api a;
  void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return error_set(err, "weft serve needs libmicrohttpd, which is not here; Debian and Ubuntu have it as "
                          "libmicrohttpd12 (%s)", dlerror());
#define F(name) {"MHD_" #name, &a.name},
  const struct { const char *name; void *to;
  } functions[] = {MHD_FUNCTIONS(F)};
#undef F
  for (size_t i = 0; i < COUNT(functions); i++) {
    void *f = dlsym(library, functions[i].name);
    if (!f) { dlclose(library); return error_set(err, "libmicrohttpd has no %s", functions[i].name); }
    memcpy(functions[i].to, &f, sizeof f);
  }
  if (refuse_old(&a, err)) return -1;
  *out = a;
  return 0;
}
#endif
