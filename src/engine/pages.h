// pages: which sequence holds which pages of the caches. A page has room for a number of positions in every layer; a
// sequence finds its own through a table. A page may be held by several sequences whose first positions are the same:
// whoever writes to it then takes a copy first.
//
// Nothing here touches the memory itself: pages are numbers.
#ifndef WEFT_PAGES_H
#define WEFT_PAGES_H
#include "base/base.h"

typedef struct page_pool {
  int n;                     // numbers there are
  int used, most;            // in use; one more than the highest that ever was
  int *holders;              // of each: sequences that hold it
  int first;                 // none below is free
} page_pool;

typedef VEC(int32_t) page_list;

void pages_open(page_pool *p, int n);
void pages_close(page_pool *p);
// The lowest page that is free, so that memory stays in few places; -1: all are in use.
int pages_take(page_pool *p);
void pages_hold(page_pool *p, int page);
bool pages_drop(page_pool *p, int page);                   // true: nobody holds it any more
int pages_holders(const page_pool *p, int page);           // how often it is held
#endif
