// sequence_file: what the caches hold of a sequence, in files: all of it in one, or a page in each.
//
// Files of pages are named by what they hold: a name is a hash over the name of the page before and the tokens of this
// one, the first one's over what the model computes (content.h). So sequences that begin alike share their files, and a
// page's file says which one comes before it.
#ifndef WEFT_SEQUENCE_FILE_H
#define WEFT_SEQUENCE_FILE_H
#include "base/str.h"
#include "engine/caches.h"

typedef struct page_name { char at[32]; } page_name;         // hexadecimal digits, with no end
// A page of a sequence, its last one perhaps of fewer tokens.
typedef struct page_record {
  page_name before;          // of the page before it
  uint32_t number, n;        // pages before it; its tokens
  uint32_t groups;           // a bit for each group of layers (caches.h) that has it
  bool fixed;                // fixed states behind its last token are there
  int32_t ids[CACHE_PAGE];
  int32_t shift[CACHE_PAGE]; // behind each token, what positions are higher than places (sequence_shift)
} page_record;

// Where a whole sequence is read from: a file, or n bytes; path is the name in errors then.
typedef struct state_source { const char *path; const void *bytes; size_t n; } state_source;

enum { BAD_FILE = -2, NO_FILE = -3 };  // and -1: something else failed

// Of all that the values of a sequence depend on, what options say, as text.
struct engine_options;
void sequence_options(const struct engine_options *o, str *out);

// Below, `of` is the name of what the model computes, CONTENT_NAME characters (content.h).
page_name page_name_first(const char *of);                    // before page 0
page_name page_name_next(const page_name *before, const int32_t *ids, size_t n);

// What there is of page `number` of q; ids: its tokens. `before` is the caller's to say.
page_record page_of_sequence(const sequence *q, const int32_t *ids, size_t number);
int page_save(const sequence *q, const page_record *r, const char *of, const char *path, error *err);
// Of such a file, all but what layers hold. most: positions that there may be. BAD_FILE: it is of another model, of
// another version, or damaged, and err names it.
int page_look(const caches *c, int most, const char *of, const char *path, page_record *out, error *err);
// Of the first n tokens of these pages, how many a sequence can be taken up with (sequence_whole).
size_t pages_whole(caches *c, const page_record *const *pages, size_t n_pages, size_t n);
// The same, and no part of a span of rows of floats among the n_ids tokens that are wanted.
size_t pages_whole_spans(caches *c, const int32_t *ids, size_t n_ids, const page_record *const *pages, size_t n_pages,
                         size_t n);
// The sequence of n tokens for which pages_whole said so: a path for each page. BAD_FILE, NO_FILE: path *failed.
int pages_load(caches *c, const int32_t *ids, size_t n, const char *const *paths, int most, const char *of,
               size_t *failed, sequence **out, error *err);

// All pages in one file, written whole or not at all. ids: the tokens of q.
int sequence_save(const sequence *q, const int32_t *ids, const char *of, const char *path, error *err);
// The same bytes in memory.
int sequence_to_memory(const sequence *q, const int32_t *ids, const char *of, str *out, error *err);
// The tokens of such a file: *ids for free(). BAD_FILE, NO_FILE; of what layers hold nothing is looked at.
int sequence_tokens(const caches *c, int most, const char *of, const state_source *from, int32_t **ids, size_t *n,
                    error *err);
// One that holds as many of the n tokens as the file begins with, back to where it is whole, and no part of a span of
// rows of floats. BAD_FILE as above.
int sequence_load(caches *c, const int32_t *ids, size_t n, int most, const char *of, const state_source *from,
                  sequence **out, error *err);
#endif
