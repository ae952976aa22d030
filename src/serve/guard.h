// guard: access control by Host, Origin and keys, before the path is examined.
#ifndef WEFT_SERVE_GUARD_H
#define WEFT_SERVE_GUARD_H
#include "serve/fields.h"

typedef struct guard guard;
struct guard_options {
  const char *key_file;                // lines "key" or "name:key"; NULL: none
  const char *const *keys;             // further keys, without names
  size_t n_keys;
  const char *const *hosts, *const *origins;
  size_t n_hosts, n_origins;
};
int guard_open(const struct guard_options *o, guard **out, error *err);
void guard_free(guard *g);
int guard_keys(const guard *g);
const char *guard_key_name(const guard *g, int key);

// Accepts a name in Host that no attacker can point here: an address, localhost, or an allowed name. A script of a
// foreign page could otherwise reach the server by a name that its owner resolves to this address (DNS rebinding).
bool guard_host(const guard *g, const char *host);
// "*" matches any name, "*.example.com" any name below that one.
bool guard_host_matches(const char *pattern, const char *name);
// Accepts a page if its origin is Host, if it and this server are both on the browser's own machine (localhost at any
// port), or if it is allowed; then *allowed is the value for the answer.
bool guard_origin(const guard *g, const char *origin, const char *host, const char **allowed);
// The index of the key in "Authorization: Bearer K" or "X-Api-Key: K"; -1: unknown. Takes constant time for any K.
int guard_key(const guard *g, const char *authorization, const char *api_key);
#endif
