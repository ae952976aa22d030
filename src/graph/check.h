// Is a node well-formed? The structural rules of every op: number and dtypes of sources, lanes, shapes, arguments. See
// check.c.
#ifndef WEFT_CHECK_H
#define WEFT_CHECK_H
#include "graph/uop.h"
// True if a node with these fields may be built. Otherwise false, with a sentence added to `why` (may be NULL). Sources
// must be nodes; nothing else is assumed, so this is safe for untrusted text.
bool uop_well_formed(enum op op, enum dtype dt, int lanes, uop *const *src, size_t nsrc, const uarg *arg, str *why);
bool uop_check(const uop *u, str *why);          // checks an existing node
#endif
