// dropped: paths in a line, as a terminal writes them when a file is dropped on it.
#ifndef WEFT_APP_DROPPED_H
#define WEFT_APP_DROPPED_H
#include "base/base.h"
#include "base/str.h"

struct dropped { size_t from, n; char *path; };      // n bytes of the line from `from` on are the path
typedef VEC(struct dropped) dropped_list;
// Paths of pictures and sounds that are there: absolute ones, plain, quoted or escaped for a shell, and file: URLs.
// Files are opened, and their first bytes are read. dropped_free.
void dropped_find(const char *line, dropped_list *out);
void dropped_free(dropped_list *l);
#endif
