// http: texts and files from the network, through libcurl, which is loaded when something is to be fetched and never
// else.
//
// A file comes under the name PATH.part, of which not a byte is lost: what is there is asked for no more (Range, and
// If-Range with the ETag in PATH.part.etag).  It becomes PATH when it is whole, has the size and the SHA-256 that it
// should have, and lies on the disk.
#ifndef WEFT_HTTP_H
#define WEFT_HTTP_H
#include "base/progress.h"
#include "base/str.h"

typedef struct http http;
// The token goes to the host of an address and to no other, wherever that may redirect. NULL: none. -1 and why not:
// there is no libcurl.
int http_open(const char *token, http **out, error *err);
void http_close(http *h);                            // NULL is fine

// A text of at most `most` bytes. status: HTTP's, where there was an answer; it is an error where it is not 200.
int http_text(http *h, const char *url, size_t most, str *out, int *status, error *err);

struct http_file {
  const char *url, *path, *shown;                    // shown: its name, for the progress bar and for messages
  int64_t size;                                      // -1: not known
  char sha256[65];                                   // "": not known, unless the server says it
  // a file beside it that is made empty before the file gets its name, and is filled afterwards: without room for it
  // there is no file; NULL: none
  const char *note;
  // how each file of its kind begins, such as "GGUF"; NULL: any bytes
  const char *magic;
};
// 0, or -1 and why not: PATH.part is kept then, unless it is the wrong file: of another sum, or one that begins
// otherwise, such as a page of HTML that asks for a password.  INTERRUPTED: Ctrl-C (app.h), with err
// saying what is there.
enum { HTTP_INTERRUPTED = -2 };
int http_fetch(http *h, const struct http_file *f, progress *bar, error *err);
#endif
