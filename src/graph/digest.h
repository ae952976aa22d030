// A digest of an expression, equal for equal expressions in any run and graph.
#ifndef WEFT_DIGEST_H
#define WEFT_DIGEST_H
#include "base/sha256.h"
#include "graph/uop.h"

void uop_digest(sha256 *s, uop *root);            // adds all nodes below root, each once, and root
#endif
