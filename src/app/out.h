// out: stdout, buffered and written in large pieces. If the other end of a pipe is closed, the rest is dropped silently
// and the command succeeds. Any other error (a full disk) ends the command with a message and status 1.
//
// Output contains untrusted text: names and texts from files, and text from models. Terminals obey control characters,
// so on a terminal all but newline and tab are removed here: C0, DEL and C1 (U+0080 to U+009F, and bytes of these
// values outside UTF-8). Pipes and files get the bytes unchanged.
#ifndef WEFT_OUT_H
#define WEFT_OUT_H
#include "base/str.h"

enum out_kind { OUT_ASK, OUT_TERMINAL, OUT_BYTES };   // ASK: checks whether stdout is a terminal
struct out {                               // initialize with {0}
  str pending;
  int error, fd;                           // error: errno of the first failed write; fd: a file instead of stdout
  enum out_kind kind;
  unsigned char lead, rest;  // of an incomplete character: its first byte, and the number of bytes to come
};
void out_add(struct out *o, const char *text, size_t n);
void out_addf(struct out *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// Adds the words of a text and a newline, in lines of at most `width` columns; all lines but the first are indented by
// `indent` spaces.
void out_wrapped(struct out *o, const char *text, int indent, size_t width);
void out_code(struct out *o, const char *code);   // adds a control sequence of Weft itself, such as a colour
bool out_terminal(struct out *o);
// Writes the pending bytes; false: this or an earlier write failed, and the work may stop.
bool out_flush(struct out *o);
int out_end(struct out *o, int status);    // flushes and frees; returns `status`, or 1 after a message
#endif
