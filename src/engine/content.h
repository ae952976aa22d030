// content: a name (SHA-256) for what a model computes: all bytes of its files, its adapters, and the options and
// devices that affect results. Saved sequences carry it, so that none is used with another model.
//
// A large file takes long to read, so a low-priority thread reads it once; until it is done there is no name, and no
// sequence is loaded or saved. The cache stores digests by the files' stamps (base/stamp.h), so that the next start
// reads nothing. If only a file's ctime has changed, it is read again: it may have been renamed, or patched with its
// time restored. A file that was written to while the model was loaded has no name: it is unknown which of its bytes
// were read before the change.
#ifndef WEFT_CONTENT_H
#define WEFT_CONTENT_H
#include "model/model.h"

enum { CONTENT_NAME = 65 };            // hexadecimal digits and a NUL

typedef struct content content;
struct cache;
// Valid as long as file and model. options: all other settings that affect results, any text. c may be NULL.
content *content_new(const gguf *file, const model *m, const char *options, struct cache *c);
void content_free(content *c);         // stops reading; NULL is fine
// Gets the name. wait_s: seconds to wait; negative: no limit. Returns 0 and name; 1 if it is not ready, *done (may be
// NULL) being the fraction read; -1 if there is none, permanently, and why. Any thread may call.
int content_name(content *c, double wait_s, char name[CONTENT_NAME], double *done, error *err);
enum { CONTENT_WHOLE = 64 << 20, CONTENT_APART = 4 << 20, CONTENT_SAMPLE = 4 << 10 };
// A name that is quick to compute, for processes that open their own copies of a file: over all bytes up to
// CONTENT_WHOLE, or for a larger file over everything before the tensors and CONTENT_SAMPLE bytes of each CONTENT_APART
// after that; and over the adapters.
int content_sample(const gguf *file, const model *m, char name[CONTENT_NAME], error *err);
#endif
