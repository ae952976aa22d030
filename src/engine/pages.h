// pages: records which sequence holds which pages of the caches. A page has space for a number of positions in every
// layer; a sequence finds its pages through a table. Sequences with equal first positions may share a page; a sequence
// that writes to a shared page copies it first.
//
// This code does not touch the memory itself: pages are numbers.
#ifndef WEFT_PAGES_H
#define WEFT_PAGES_H
#include "base/base.h"

typedef struct page_pool {
  int n;                     // number of pages
  int used, most;            // in use; maximum number in use so far
  int *holders;              // for each page: number of sequences that hold it
  int first;                 // all pages below are in use
} page_pool;

typedef VEC(int32_t) page_list;

void pages_open(page_pool *p, int n);
void pages_close(page_pool *p);
// Takes the lowest free page, so that memory stays compact; -1: all are in use.
int pages_take(page_pool *p);
void pages_hold(page_pool *p, int page);
bool pages_drop(page_pool *p, int page);                   // true: no sequence holds it any more
int pages_holders(const page_pool *p, int page);           // how many times it is held
#endif
