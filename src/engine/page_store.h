// page_store: stores sequences in a folder, one file per page (sequence_file.h). A later process finds any beginning of
// a sequence, and common beginnings are stored once.
//
// The folder has a size limit: least recently used pages are removed first, the last pages of a sequence before earlier
// ones. Several models and processes may share the folder: file names contain the model. Two threads may use a store:
// one that finds and loads, and one that saves.
#ifndef WEFT_PAGE_STORE_H
#define WEFT_PAGE_STORE_H
#include "engine/sequence_file.h"

typedef struct page_store page_store;

// bytes: maximum for the pages of all models in the folder
struct page_folder { const char *path; uint64_t bytes; };
// Reads the folder. Damaged files are kept, with a warning. of: the name of what the model computes (content.h); most:
// maximum positions. -1: the folder cannot be read.
int page_store_open(caches *c, const char *of, int most, const struct page_folder *where, page_store **out, error *err);
void page_store_close(page_store *s);                  // NULL is fine
// The number of these tokens with which a sequence can be resumed from files.
size_t page_store_find(page_store *s, const int32_t *ids, size_t n);
// Loads that sequence. 1: it no longer exists; -1: no memory; -2: a file is damaged, err names it, and it is removed.
int page_store_load(page_store *s, const int32_t *ids, size_t n, sequence **out, error *err);
// Is a part of q in no file? ids: its tokens. q must be whole.
bool page_store_lacks(page_store *s, const sequence *q, const int32_t *ids);
// Saves that part, and removes files beyond the limit.
int page_store_save(page_store *s, const sequence *q, const int32_t *ids, error *err);
#endif
