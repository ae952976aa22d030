// Scans messages byte by byte, except bodies: see framing.h.
#include "serve/framing.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DIGITS = 15 };             // of a chunk's size
enum { MOST_EXTENSION = 4096 };        // bytes of a chunk's extension, which is ignored
enum { MOST_ARGUMENTS = 100 };         // of a query: libmicrohttpd closes without an answer if they fill its memory

static bool is_control(unsigned char c) { return (c < ' ' && c != '\t') || c == 127; }

static void keep_byte(struct framing *f, char c) {
  if (f->n + 1 < sizeof f->line) f->line[f->n++] = c;
  f->line[f->n] = 0;
}

// The value of a header that sets the length of the body; NULL: another header.
static const char *length_field(const char *line, const char *name) {
  size_t n = strlen(name);
  if (strncasecmp(line, name, n) || line[n] != ':') return NULL;
  return line + n + 1 + strspn(line + n + 1, " \t");
}

static size_t without_space(const char *value) {
  size_t n = strlen(value);
  while (n && strchr(" \t", value[n - 1])) n--;
  return n;
}

static const char *take_length(struct framing *f, const char *value) {
  size_t digits = strspn(value, "0123456789");
  if (f->has_length || f->chunked) return "the length of the body is given more than once";
  if (!digits || digits > 18 || digits != strlen(value)) return "the length of the body is malformed";
  f->has_length = true;
  f->left = strtoull(value, NULL, 10);
  return NULL;
}

static const char *take_coding(struct framing *f, const char *value) {
  if (f->has_length || f->chunked) return "the length of the body is given more than once";
  f->unclear = without_space(value) != 7 || strncasecmp(value, "chunked", 7);
  f->chunked = true;
  return NULL;
}

static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

static const char *take_field(struct framing *f) {
  const char *length = length_field(f->line, "Content-Length"), *coding = length_field(f->line, "Transfer-Encoding");
  size_t name = strspn(f->line, token);
  bool cut = f->n + 1 == sizeof f->line;
  if (!name || (f->line[name] != ':' && !(cut && !f->line[name]))) return "a header is malformed";
  if (f->trailer) return NULL;
  f->hosts += length_field(f->line, "Host") != NULL;
  if (cut && (length || coding)) return "the length of the body is malformed";
  return length ? take_length(f, length) : coding ? take_coding(f, coding) : NULL;
}

static const char *end_header(struct framing *f) {
  f->digits = 0;
  if (f->trailer) { f->state = FRAMING_START; return NULL; }
  if (f->unclear) f->state = FRAMING_REST;
  else if (f->chunked) f->state = FRAMING_CHUNK;
  else f->state = f->left ? FRAMING_BODY : FRAMING_START;
  bool old = f->last == '0';           // HTTP/1.0 needs no Host; http.c checks the version
  return f->hosts == 1 || (old && !f->hosts) ? NULL : "one Host header is needed";
}

// A method is a token; the target is one nonempty word. http.c checks the version.
static const char *take_first_line(struct framing *f, char c) {
  if (!f->spaces && c != ' ' && !strchr(token, c)) return "the request line is malformed";
  if (c == ' ' && f->last == ' ') return "the request line is malformed";
  // "/path", "http://...", "*", or "host:port" for CONNECT: begins with a letter or digit, never with %
  if (f->spaces == 1 && f->last == ' ' && c != '/' && c != '*' && c != '[' && !isalnum((unsigned char)c))
    return "the request line is malformed";
  f->spaces += c == ' ';
  f->last = c;
  f->arguments += c == '&';
  if (f->arguments >= MOST_ARGUMENTS) return "a query has too many arguments";
  return f->spaces > 2 ? "the request line is malformed" : NULL;
}

static const char *begin_message(struct framing *f, char c) {
  *f = (struct framing){.state = FRAMING_REQUEST, .seen = true, .last = ' '};
  return take_first_line(f, c);
}

// The end of a line.
static const char *line_over(struct framing *f) {
  const char *wrong = NULL;
  switch (f->state) {
  case FRAMING_REQUEST:
    if (f->spaces != 2 || f->last == ' ') wrong = "the request line is malformed";
    f->state = FRAMING_LINE_START;
    break;
  case FRAMING_LINE_START: wrong = end_header(f); break;
  case FRAMING_LINE: wrong = take_field(f); f->state = FRAMING_LINE_START; break;
  case FRAMING_CHUNK:
  case FRAMING_EXTENSION:
    f->trailer = !f->left;
    f->state = f->left ? FRAMING_DATA : FRAMING_LINE_START;
    break;
  case FRAMING_DATA_END: f->state = FRAMING_CHUNK; f->digits = 0; f->left = 0; break;
  default: break;                      // empty lines before a message
  }
  f->n = 0;
  return wrong;
}

static const char *take_digit(struct framing *f, char c) {
  static const char digits[] = "0123456789abcdef";
  const char *at = c ? strchr(digits, c | ((c >= 'A' && c <= 'F') << 5)) : NULL;
  if (!at && c == ';' && f->digits) { f->state = FRAMING_EXTENSION; return NULL; }
  if (!at || ++f->digits > MOST_DIGITS) return "the size of a chunk is malformed";
  f->left = 16 * f->left + (uint64_t)(at - digits);
  return NULL;
}

static const char *take_byte(struct framing *f, char c) {
  if (f->cr) {
    f->cr = false;
    return c == '\n' ? line_over(f) : "a CR stands without LF";
  }
  if (c == '\n') return "a line ends without CR";
  if (c == '\r') {
    f->cr = true;
    return f->state == FRAMING_CHUNK && !f->digits ? "the size of a chunk is missing" : NULL;
  }
  if (is_control((unsigned char)c)) return "a header has a control character";
  switch (f->state) {
  case FRAMING_START: return begin_message(f, c);
  case FRAMING_REQUEST: return take_first_line(f, c);
  case FRAMING_LINE_START:
    if (c == ' ' || c == '\t') return "a header is folded";
    f->state = FRAMING_LINE;
    f->n = 0;
    keep_byte(f, c);
    return NULL;
  case FRAMING_LINE: keep_byte(f, c); return NULL;
  case FRAMING_CHUNK: return take_digit(f, c);
  case FRAMING_EXTENSION: return ++f->n > MOST_EXTENSION ? "the extension of a chunk is too long" : NULL;
  case FRAMING_DATA_END: return "a chunk is longer than it says";
  default: return NULL;
  }
}

static bool begins_cookie(const struct framing *f) {
  return f->state == FRAMING_LINE && f->n == 5 && !strncasecmp(f->line, "Cooki", 5);
}

const char *framing_add(struct framing *f, char *bytes, size_t n) {
  const char *wrong = NULL;
  f->seen = true;
  for (size_t i = 0; i < n && !wrong;) {
    if (f->state == FRAMING_REST) return NULL;
    if (f->state != FRAMING_BODY && f->state != FRAMING_DATA) {
      wrong = take_byte(f, bytes[i++]);
      if (begins_cookie(f)) bytes[i - 1] = '_';
      continue;
    }
    size_t take = f->left < n - i ? (size_t)f->left : n - i;
    f->left -= take;
    i += take;
    if (!f->left) f->state = f->state == FRAMING_BODY ? FRAMING_START : FRAMING_DATA_END;
  }
  return wrong;
}
