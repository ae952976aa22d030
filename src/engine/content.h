// content: what a model computes, as a name (SHA-256): all bytes of its files, its adapters, and what options and
// devices make of them. Sequences in files are named by it, so that none is ever taken for that of another model.
//
// A large file takes long to read, so a thread of low priority reads it once; until it is through there is no name, and
// nothing may be taken from a file or given to one. The cache keeps digests of files by their stamps (base/stamp.h), so
// that the next start reads nothing. A file whose ctime alone has moved since is read again: it may be renamed, or
// patched with its time put back. One that was written to while the model was loaded has no name any more: nobody knows
// which of its bytes have been read before and which after.
#ifndef WEFT_CONTENT_H
#define WEFT_CONTENT_H
#include "model/model.h"

enum { CONTENT_NAME = 65 };            // hexadecimal digits, and a zero

typedef struct content content;
struct cache;
// For as long as the file and the model are there. options: all else that decides what is computed, any text. c may be
// NULL.
content *content_new(const gguf *file, const model *m, const char *options, struct cache *c);
void content_free(content *c);         // ends what is under way; NULL is fine
// The name. wait_s: seconds to wait for it; negative: as long as it takes. 0: name has it. 1: not yet, *done (may be
// NULL) is the share of the files that is read. -1: there is none, and why: it will stay so. Any thread may ask.
int content_name(content *c, double wait_s, char name[CONTENT_NAME], double *done, error *err);
enum { CONTENT_WHOLE = 64 << 20, CONTENT_APART = 4 << 20, CONTENT_SAMPLE = 4 << 10 };
// A name that is quick to find, for processes that open their own copies of a file: of up to CONTENT_WHOLE bytes all,
// of a larger file all before the tensors and CONTENT_SAMPLE of each CONTENT_APART behind; and all of the adapters.
int content_sample(const gguf *file, const model *m, char name[CONTENT_NAME], error *err);
#endif
