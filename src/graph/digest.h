// A digest of an expression: the same for equal ones, in whichever run and graph they were made.
#ifndef WEFT_DIGEST_H
#define WEFT_DIGEST_H
#include "base/sha256.h"
#include "graph/uop.h"

void uop_digest(sha256 *s, uop *root);            // adds all nodes below root, each once, and root
#endif
