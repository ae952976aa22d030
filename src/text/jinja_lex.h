// jinja_lex: template text to tokens, for the parser alone.  What whitespace around tags disappears is decided here.
#ifndef WEFT_JINJA_LEX_H
#define WEFT_JINJA_LEX_H
#include "text/jinja_impl.h"

typedef enum jtoken_kind { TK_DATA, TK_VAR_BEGIN, TK_VAR_END, TK_BLOCK_BEGIN, TK_BLOCK_END, TK_NAME, TK_STRING, TK_NUMBER, TK_OP, TK_END } jtoken_kind;
typedef struct jtoken {
  jtoken_kind kind;
  int line;
  char op[3];                // OP: its text
  const char *at;            // DATA, NAME: bytes of the source (of the arena)
  size_t n;
  jval value;                // STRING, NUMBER
} jtoken;
typedef struct jtokens { jtoken *at; size_t n, cap; } jtokens;

void jinja_lex(jrun *r, const char *text, size_t n, jtokens *out);   // ends with TK_END; fails through r
#endif
