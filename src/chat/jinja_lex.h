// jinja_lex: converts template text to tokens for the parser; white space around tags is trimmed here.
#ifndef WEFT_JINJA_LEX_H
#define WEFT_JINJA_LEX_H
#include "chat/jinja_impl.h"

typedef enum jtoken_kind {
  TK_DATA,
  TK_VAR_BEGIN,
  TK_VAR_END,
  TK_BLOCK_BEGIN,
  TK_BLOCK_END,
  TK_NAME,
  TK_STRING,
  TK_NUMBER,
  TK_OP,
  TK_END
} jtoken_kind;
typedef struct jtoken {
  int line;
  uint8_t kind;              // jtoken_kind
  char op[3];                // OP: its text
  union {
    struct { const char *at; size_t n; };   // DATA, NAME: bytes of the source (of the arena)
    jval value;              // STRING, NUMBER
  };
} jtoken;
typedef VEC(jtoken) jtokens;

// The tokens end with TK_END; errors go through r. The caller frees *out with vec_free in either case.
void jinja_lex(jrun *r, const char *text, size_t n, jtokens *out);
#endif
