// page_store: sequences in a folder, a file for each page (sequence_file.h), so that a later process finds any
// beginning of them, and what begins alike is there once.
//
// The folder has a limit: pages that were used least lately go first, the last ones of a sequence before those before
// them. Several models, and several processes, may have the same folder: the names of files say whose they are. A store
// may be used by two threads: one that finds and loads, and one that saves.
#ifndef WEFT_PAGE_STORE_H
#define WEFT_PAGE_STORE_H
#include "engine/sequence_file.h"

typedef struct page_store page_store;

// bytes: of the pages of all models there, at most
struct page_folder { const char *path; uint64_t bytes; };
// Learns what is there. Files that are damaged stay, with a warning. of: what the model computes (content.h); most:
// positions that there may be. -1: the folder cannot be read.
int page_store_open(caches *c, const char *of, int most, const struct page_folder *where, page_store **out, error *err);
void page_store_close(page_store *s);                  // NULL is fine
// With how many of these tokens a sequence can be taken up from files.
size_t page_store_find(page_store *s, const int32_t *ids, size_t n);
// That sequence. 1: there is none by now; -1: there is no memory for it; -2: a file is damaged, and err names it: it is
// removed.
int page_store_load(page_store *s, const int32_t *ids, size_t n, sequence **out, error *err);
// Whether something of q is in no file; ids: its tokens. Not while q is not whole.
bool page_store_lacks(page_store *s, const sequence *q, const int32_t *ids);
// Writes that, and removes files where there are too many.
int page_store_save(page_store *s, const sequence *q, const int32_t *ids, error *err);
#endif
