// Graphemes and their widths: see signs.h.
#include "app/signs.h"
#include <string.h>
#include <utf8proc.h>

size_t sign_character(const char *text, size_t n, size_t at, int32_t *out) {
  utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n - at), out);
  if (used > 0) return (size_t)used;
  *out = 0xFFFD;
  return 1;
}

static int columns_of(int32_t c) {
  return c == '\t'                          ? TAB_COLUMNS
         : c == '\n'                        ? 0
         : c >= 0x1F1E6 && c <= 0x1F1FF     ? 2
         : c == 0xFE0F                      ? 1
                                            : utf8proc_charwidth(c);
}

size_t sign_end(const char *text, size_t n, size_t at, int *width) {
  int32_t c, next, state = 0;
  size_t end = at + sign_character(text, n, at, &c);
  int w = columns_of(c);
  while (end < n) {
    size_t used = sign_character(text, n, end, &next);
    if (utf8proc_grapheme_break_stateful(c, next, &state)) break;
    w += columns_of(next);
    end += used;
    c = next;
  }
  if (width) *width = w;
  return end;
}

int sign_columns(const char *text, size_t n) {
  int all = 0, w;
  for (size_t at = 0; at < n; all += w) at = sign_end(text, n, at, &w);
  return all;
}

// The end of a word with the spaces before it, and the width of both.
static size_t word_end(const char *text, size_t n, size_t at, int *spaces, int *word) {
  *spaces = *word = 0;
  for (; at < n && text[at] == ' '; at++) ++*spaces;
  for (int w; at < n && text[at] != ' ' && text[at] != '\n'; *word += w) at = sign_end(text, n, at, &w);
  return at;
}

void sign_wrap(str *out, const char *text, int columns, int indent) {
  int column = 0, spaces, word;
  for (size_t at = 0, n = strlen(text), end; at < n; at = end) {
    if (text[at] == '\n') {
      str_addc(out, '\n');
      column = 0;
      end = at + 1;
      continue;
    }
    end = word_end(text, n, at, &spaces, &word);
    size_t from = at + (size_t)spaces;
    if (column + spaces + word <= columns || !column) {
      str_addn(out, text + at, from - at);
      column += spaces;
    } else if (word) {
      str_addf(out, "\n%*s", indent, "");
      column = indent;
    }
    str_addn(out, text + from, end - from);
    column += word;
  }
}
