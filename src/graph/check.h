// Is a node well-formed?  The structural law of every op: number and dtypes of sources, lanes, shapes, arguments.  See
// check.c.
#ifndef WEFT_CHECK_H
#define WEFT_CHECK_H
#include "graph/uop.h"
// True if a node like this may be built.  Otherwise false, with a sentence added to `why` (which may be NULL).  Sources
// must be nodes; nothing else is assumed, so this is safe for text from anywhere.
bool uop_well_formed(enum op op, enum dtype dt, int lanes, uop *const *src, size_t nsrc, const uarg *arg, str *why);
bool uop_check(const uop *u, str *why);          // the same of a node that exists
#endif
