// http: downloads texts and files with libcurl, which is loaded only when something is downloaded.
//
// A file is written to PATH.part, and an interrupted download resumes: bytes already present are not requested again
// (Range, and If-Range with the ETag in PATH.part.etag). It is renamed to PATH when it is complete, has the expected
// size and SHA-256, and is synced to disk.
#ifndef WEFT_HTTP_H
#define WEFT_HTTP_H
#include "base/progress.h"
#include "base/str.h"

typedef struct http http;
// Loads libcurl. The token is sent only to the host of the address, not to a host that it redirects to; NULL: none. -1
// and an error: libcurl is missing.
// A line end would begin another header.
bool http_may_be_in_header(const char *text);
int http_open(const char *token, http **out, error *err);
void http_close(http *h);                            // NULL is allowed

// Downloads a text of at most `most` bytes. status: the HTTP status, if there was an answer; other than 200 is an
// error.
int http_text(http *h, const char *url, size_t most, str *out, int *status, error *err);

struct http_file {
  const char *url, *path, *shown;                    // shown: its name in the progress bar and in messages
  int64_t size;                                      // -1: unknown
  char sha256[65];                                   // "": unknown, unless the server says it
  // an extra file, created empty before the rename and filled afterwards: if it cannot be created, PATH is not either;
  // NULL: none
  const char *note, *first_note;                     // first_note: likewise, if the first of several parts exists
  // the first bytes of a valid file, such as "GGUF"; NULL: any
  const char *magic;
};
// Downloads a file. 0, or -1 and an error. PATH.part is kept for resuming, unless it is the wrong file: its checksum
// differs, or it begins otherwise, such as an HTML page that asks for a password. INTERRUPTED: Ctrl-C (app.h); err says
// how much is present.
enum { HTTP_INTERRUPTED = -2 };
int http_fetch(http *h, const struct http_file *f, progress *bar, error *err);
#endif
