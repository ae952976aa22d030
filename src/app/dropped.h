// dropped: paths in a line, as terminals write them when a file is dropped on the window.
#ifndef WEFT_APP_DROPPED_H
#define WEFT_APP_DROPPED_H
#include "base/base.h"
#include "base/str.h"

struct dropped { size_t from, n; char *path; };      // the path takes n bytes of the line, from `from` on
typedef VEC(struct dropped) dropped_list;
// Finds paths of existing pictures and sounds: absolute ones, plain, quoted or escaped for a shell, and file: URLs.
// Opens the files and reads their first bytes. dropped_free.
void dropped_find(const char *line, dropped_list *out);
void dropped_free(dropped_list *l);
#endif
