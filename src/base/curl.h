// curl: libcurl, which is loaded only when something is fetched.
#ifndef WEFT_CURL_H
#define WEFT_CURL_H
#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>
#include "base/base.h"

typedef struct curl_api {
  void *library;
  CURL *(*init)(void);
  void (*cleanup)(CURL *);
  void (*reset)(CURL *);
  CURLcode (*set)(CURL *, CURLoption, ...), (*get)(CURL *, CURLINFO, ...), (*perform)(CURL *);
  const char *(*text_of)(CURLcode);
  struct curl_slist *(*add)(struct curl_slist *, const char *);
  void (*free_list)(struct curl_slist *);
  CURLU *(*url)(void);
  void (*url_free)(CURLU *);
  CURLUcode (*url_set)(CURLU *, CURLUPart, const char *, unsigned), (*url_get)(CURLU *, CURLUPart, char **, unsigned);
  void (*free_text)(void *);
} curl_api;

int curl_load(curl_api *out, error *err);        // -1: not installed, or too old
void curl_unload(curl_api *a);
// Sets the authorities of SSL_CERT_FILE and SSL_CERT_DIR: the command curl reads these variables, libcurl does not.
void curl_set_authorities(const curl_api *a, CURL *c);
// Sets the allowed protocols of a request and of its redirections: "http,https", or one of them.
void curl_set_protocols(const curl_api *a, CURL *c, bool only_https_after_redirect);
#endif
