// guard: who may ask.  Names in Host, pages in Origin, keys.  Checked before anything looks at a path.
#ifndef WEFT_SERVE_GUARD_H
#define WEFT_SERVE_GUARD_H
#include "serve/fields.h"

typedef struct guard guard;
struct guard_options {
  const char *key_file;                // lines "key" or "name:key"; NULL: none
  const char *const *keys;             // further ones, without names
  size_t n_keys;
  const char *const *hosts, *const *origins;
  size_t n_hosts, n_origins;
};
int guard_open(const struct guard_options *o, guard **out, error *err);
void guard_free(guard *g);
int guard_keys(const guard *g);
const char *guard_key_name(const guard *g, int key);

// A name in Host that nobody can have pointed here: an address, localhost, or one that was allowed.  Another page's
// script reaches a server by a name of its own that it makes lead here; addresses cannot be made to.
bool guard_host(const guard *g, const char *host);
// "*" is any name, "*.example.com" any name below that one.
bool guard_host_matches(const char *pattern, const char *name);
// A page may ask if it came from here (its origin is Host), if both it and this server are on the browser's own machine
// (localhost at any port: programs that were started there), or if it was allowed: then *allowed is what to answer.
bool guard_origin(const guard *g, const char *origin, const char *host, const char **allowed);
// The key of "Authorization: Bearer K" or "X-Api-Key: K"; -1: none of ours.  Takes as long whatever K is.
int guard_key(const guard *g, const char *authorization, const char *api_key);
#endif
