// out: stdout, collected and written in large pieces.  A pipe that was closed at the other end is no error: what is
// left is dropped in silence and the command ends well.  Anything else (a full disk) ends it with a message and status
// 1.
//
// What commands print comes from strangers: names and texts of files, and what a model says.  A terminal obeys control
// characters, so none but newline and tab gets to one: C0, DEL and C1 (U+0080 to U+009F, and bytes of these values that
// are no UTF-8) are left out here, whoever prints.  A pipe and a file get the bytes as they are.
#ifndef WEFT_OUT_H
#define WEFT_OUT_H
#include "base/str.h"

enum out_kind { OUT_ASK, OUT_TERMINAL, OUT_BYTES };   // ASK: the system is asked whether it is a terminal
struct out {                               // {0} to begin with
  str pending;
  int error, fd;                           // error: errno of the first write that failed; fd: a file instead of stdout
  enum out_kind kind;
  unsigned char lead, rest;                // of the character under way: its first byte, and how many are to come
};
void out_add(struct out *o, const char *text, size_t n);
void out_addf(struct out *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
// The words of a text and a newline, in lines of at most `width` columns; all but the first have `indent` spaces
// before.
void out_wrapped(struct out *o, const char *text, int indent, size_t width);
void out_code(struct out *o, const char *code);   // a control sequence of our own: a colour
bool out_terminal(struct out *o);
// writes what is pending; false: it failed, now or before, and the work may stop
bool out_flush(struct out *o);
int out_end(struct out *o, int status);    // flushes and frees; the exit status: `status`, or 1 after a message
#endif
