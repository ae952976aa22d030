// sequence_file: sequences in files: a whole sequence in one file, or one page per file.
//
// Page files are named by content: a hash over the name of the previous page and the page's tokens; for the first page,
// over the name of what the model computes (content.h). Sequences with a common beginning therefore share files, and a
// page's file names its predecessor.
#ifndef WEFT_SEQUENCE_FILE_H
#define WEFT_SEQUENCE_FILE_H
#include "base/str.h"
#include "engine/caches.h"

typedef struct page_name { char at[32]; } page_name;         // hexadecimal digits, not NUL-terminated
// A page of a sequence; the last one may have fewer tokens.
typedef struct page_record {
  page_name before;          // of the previous page
  uint32_t number, n;        // pages before it; its tokens
  uint32_t groups;           // bit set of groups of layers (caches.h) that have it
  bool fixed;                // fixed states after its last token are present
  int32_t ids[CACHE_PAGE];
  int32_t shift[CACHE_PAGE]; // after each token, position minus place (sequence_shift)
} page_record;

// Where a whole sequence is read from: a file, or n bytes; path is then the name for errors.
typedef struct state_source { const char *path; const void *bytes; size_t n; } state_source;

enum { BAD_FILE = -2, NO_FILE = -3 };  // -1: another failure

// All options that affect a sequence's values, as text.
struct engine_options;
void sequence_options(const struct engine_options *o, str *out);

// Below, `of` is the name of what the model computes, CONTENT_NAME characters (content.h).
page_name page_name_first(const char *of);                    // predecessor of page 0
page_name page_name_next(const page_name *before, const int32_t *ids, size_t n);

// The record of page `number` of q; ids: its tokens. The caller sets `before`.
page_record page_of_sequence(const sequence *q, const int32_t *ids, size_t number);
int page_save(const sequence *q, const page_record *r, const char *of, const char *path, error *err);
// Reads such a file without the layers' data. most: maximum positions. BAD_FILE: it belongs to another model or
// version, or is damaged, and err names it.
int page_look(const caches *c, int most, const char *of, const char *path, page_record *out, error *err);
// How many of the first n tokens of these pages a sequence can be resumed with (sequence_whole).
size_t pages_whole(caches *c, const page_record *const *pages, size_t n_pages, size_t n);
// The same without cutting a span of rows of floats among the n_ids wanted tokens.
size_t pages_whole_spans(caches *c, const int32_t *ids, size_t n_ids, const page_record *const *pages, size_t n_pages,
                         size_t n);
// Loads the sequence of n tokens that pages_whole found, one path per page. BAD_FILE, NO_FILE: path *failed.
int pages_load(caches *c, const int32_t *ids, size_t n, const char *const *paths, int most, const char *of,
               size_t *failed, sequence **out, error *err);

// Saves all pages in one file, atomically. ids: the tokens of q.
int sequence_save(const sequence *q, const int32_t *ids, const char *of, const char *path, error *err);
// Writes the same bytes to memory.
int sequence_to_memory(const sequence *q, const int32_t *ids, const char *of, str *out, error *err);
// The tokens of such a file: *ids for free(). BAD_FILE, NO_FILE; the layers' data is not checked.
int sequence_tokens(const caches *c, int most, const char *of, const state_source *from, int32_t **ids, size_t *n,
                    error *err);
// Loads as many of the n tokens as the file begins with, reduced to a position where it is whole, without cutting a
// span of rows of floats. BAD_FILE as above.
int sequence_load(caches *c, const int32_t *ids, size_t n, int most, const char *of, const state_source *from,
                  sequence **out, error *err);
#endif
