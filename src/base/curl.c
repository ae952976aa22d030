// Loads libcurl: see curl.h.
#include "base/curl.h"
#include <dlfcn.h>
#include <string.h>
#include "base/env.h"

int curl_load(curl_api *out, error *err) {
  static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"};
  curl_api a = {0};
  for (size_t i = 0; i < COUNT(names) && !a.library; i++) a.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!a.library)
    return error_set(err, "nothing can be fetched without libcurl; Debian and Ubuntu have it as libcurl4");
  const struct { const char *name; void *to;
  } functions[] = {
    {"curl_easy_init", &a.init},        {"curl_easy_cleanup", &a.cleanup}, {"curl_easy_reset", &a.reset},
    {"curl_easy_setopt", &a.set},       {"curl_easy_getinfo", &a.get},     {"curl_easy_perform", &a.perform},
    {"curl_easy_strerror", &a.text_of}, {"curl_slist_append", &a.add},     {"curl_slist_free_all", &a.free_list},
    {"curl_url", &a.url},               {"curl_url_cleanup", &a.url_free}, {"curl_url_set", &a.url_set},
    {"curl_url_get", &a.url_get},       {"curl_free", &a.free_text}};
  for (size_t i = 0; i < COUNT(functions); i++) {
    void *f = dlsym(a.library, functions[i].name);
    if (!f) { dlclose(a.library); return error_set(err, "libcurl has no %s", functions[i].name); }
    memcpy(functions[i].to, &f, sizeof f);
  }
  *out = a;
  return 0;
}

void curl_unload(curl_api *a) {
  if (a->library) dlclose(a->library);
  *a = (curl_api){0};
}

void curl_set_authorities(const curl_api *a, CURL *c) {
  const char *file = env_str(ENV_SSL_CERT_FILE), *folder = env_str(ENV_SSL_CERT_DIR);
  if (!*file && !*folder) return;
  a->set(c, CURLOPT_CAINFO, *file ? file : NULL);
  a->set(c, CURLOPT_CAPATH, *folder ? folder : NULL);
}

void curl_set_protocols(const curl_api *a, CURL *c, bool only_https_after_redirect) {
  long all = (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS), safe = (long)CURLPROTO_HTTPS;
  // the options with texts exist from 7.85 on
  if (a->set(c, CURLOPT_PROTOCOLS_STR, "http,https") ||
      a->set(c, CURLOPT_REDIR_PROTOCOLS_STR, only_https_after_redirect ? "https" : "http,https")) {
    a->set(c, CURLOPT_PROTOCOLS, all);
    a->set(c, CURLOPT_REDIR_PROTOCOLS, only_https_after_redirect ? safe : all);
  }
}
