// curl: libcurl, which is loaded when something is to be fetched and never else.
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

int curl_load(curl_api *out, error *err);        // -1: there is none, or it is too old
void curl_unload(curl_api *a);
// The authorities that SSL_CERT_FILE and SSL_CERT_DIR name: libcurl itself knows neither, the command curl does.
void curl_set_authorities(const curl_api *a, CURL *c);
// "http,https", or one of them: what a request, and a redirection, may be.
void curl_set_protocols(const curl_api *a, CURL *c, bool only_https_after_redirect);
#endif
