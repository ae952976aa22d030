// weft tokenize: converts text to tokens and back. It works on files with a vocabulary and no tensors, and on texts of
// any length: text is encoded while it is read, and tokens are printed at once.
#define _GNU_SOURCE
#include "app/app.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_STEP = 1 << 16 };

static const struct command command = {"tokenize",
                                       "Turns text into tokens, one a line, or tokens into text.",
                                       "FILE (-p TEXT | -f FILE | --stdin | --detokenize 1,2,3)",
                                       NULL,
                                       COMMAND_BIT(tokenize),
                                       0};

// Prints a token's bytes on one line, unambiguously: control characters, backslashes and broken UTF-8 become escapes.
static void add_piece(struct out *o, const char *piece, size_t n) {
  size_t n_valid;
  char *valid = weft_utf8(piece, n, &n_valid);
  bool whole = n_valid == n && !memcmp(valid, piece, n);
  weft_free(valid);
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)piece[i];
    if (c == '\n') out_addf(o, "\\n");
    else if (c == '\t') out_addf(o, "\\t");
    else if (c == '\r') out_addf(o, "\\r");
    else if (c == '\\') out_addf(o, "\\\\");
    else if (whole && c == 0xC2 && (unsigned char)piece[i + 1] < 0xA0)
      out_addf(o, "\\xC2\\x%02X", (unsigned)(unsigned char)piece[++i]);  // U+0080 to U+009F
    else if (c < 32 || c == 127 || (!whole && c >= 128)) out_addf(o, "\\x%02X", c);
    else out_add(o, piece + i, 1);
  }
}

struct shown { const struct settings *o; const weft_vocab *v; struct out *to; bool some; };

static void show_ids(struct shown *s, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n && !s->to->error; i++) {
    if (s->o->only_ids) {
      char digits[16], *at = digits + sizeof digits;       // snprintf would be slow for millions of ids
      for (uint32_t id = (uint32_t)ids[i]; at == digits + sizeof digits || id; id /= 10) *--at = (char)('0' + id % 10);
      out_add(s->to, s->some ? ", " : "[", s->some ? 2 : 1);
      out_add(s->to, at, (size_t)(digits + sizeof digits - at));
      s->some = true;
      continue;
    }
    size_t len;
    char *piece = weft_piece(s->v, ids[i], true, &len);
    out_addf(s->to, "%6d -> '", ids[i]);
    add_piece(s->to, piece, len);
    out_addf(s->to, "'\n");
    weft_free(piece);
  }
}

static int encode_and_show(struct shown *s, weft_encoder *e, const char *text, size_t n) {
  weft_error err;
  const int32_t *ids;
  size_t n_ids;
  if (weft_encoder_add(e, text, n, &ids, &n_ids, &err)) return failed("%s", err.text);
  show_ids(s, ids, n_ids);
  return 0;
}

// Encodes a file of any size while it is read.
static int add_file(struct shown *s, weft_encoder *e, const char *path) {
  bool is_stdin = !path || !strcmp(path, "-");
  int fd, status = 0;
  error why = {0};
  if (open_text(is_stdin ? "-" : path, &fd, &why)) return failed("%s", why.text);
  char *piece = xmalloc(READ_STEP);
  ssize_t got;
  while (!status && !s->to->error && (got = read(fd, piece, READ_STEP)) != 0) {
    if (got < 0 && errno == EINTR && !interrupted()) continue;
    status = got < 0 ? failed("%s: %s", is_stdin ? "stdin" : path, strerror(errno))
                     : encode_and_show(s, e, piece, (size_t)got);
  }
  free(piece);
  if (!is_stdin) close(fd);
  return status;
}

// Escapes need the whole text in memory.
static int add_unescaped(struct shown *s, weft_encoder *e, const char *path) {
  error why = {0};
  char *text = NULL;
  size_t n = 0;
  if (path && read_file(path, READ_CORPUS, &text, &n, &why)) return failed("%s", why.text);
  if (!path) { text = xstrdup(s->o->prompt); n = strlen(text); }
  int status = encode_and_show(s, e, text, unescape(text, n));
  free(text);
  return status;
}

static int tokenize(const struct settings *o, const weft_vocab *v, struct out *to) {
  weft_error err;
  weft_encoder *e;
  struct shown s = {o, v, to, false};
  const char *file = o->from_stdin ? "-" : o->file;
  const int32_t *ids;
  size_t n_ids;
  if (weft_encoder_new(v, (o->no_bos ? 0 : WEFT_ADD_SPECIAL) | (o->parse_special ? WEFT_PARSE_SPECIAL : 0), &e, &err))
    return failed("%s", err.text);
  int status = o->escapes ? add_unescaped(&s, e, file)
               : file     ? add_file(&s, e, file)
                          : encode_and_show(&s, e, o->prompt, strlen(o->prompt));
  if (!status && weft_encoder_end(e, &ids, &n_ids, &err)) status = failed("%s", err.text);
  if (!status) {
    show_ids(&s, ids, n_ids);
    if (o->only_ids) out_addf(to, s.some ? "]\n" : "[]\n");
  }
  weft_encoder_free(e);
  return status;
}

static int detokenize(const struct settings *o, const weft_vocab *v, struct out *to) {
  weft_error err;
  char *text;
  size_t n;
  if (weft_detokenize(v, o->detokenize.at, o->detokenize.n, o->parse_special, &text, &n, &err))
    return failed("%s", err.text);
  out_add(to, text, n);
  if (isatty(STDOUT_FILENO)) out_add(to, "\n", 1);
  weft_free(text);
  return 0;
}

static int tokenize_all(const struct settings *o) {
  weft_file *f;
  weft_vocab *v;
  weft_error err;
  struct out to = {0};
  if (weft_file_open(o->model.model, &f, &err)) return failed("%s", err.text);
  if (weft_vocab_open(f, &v, &err)) {
    weft_file_close(f);
    return failed("%s", err.text);
  }
  int status = o->detokenize.n ? detokenize(o, v, &to) : tokenize(o, v, &to);
  weft_vocab_close(v);
  weft_file_close(f);
  return out_end(&to, status);
}

static int tokenize_it(struct settings *o) {
  int inputs = (o->prompt != NULL) + (o->file != NULL) + o->from_stdin + (o->detokenize.n > 0);
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  if (inputs != 1)
    return usage_error(inputs ? "use one of -p, -f, --stdin and --detokenize"
                              : "nothing to tokenize: give -p TEXT, -f FILE, --stdin or --detokenize 1,2,3");
  keep_to_files(o, NULL);
  return tokenize_all(o);
}

int tokenize_command(int argc, char **argv) { return settings_run(&command, argc, argv, tokenize_it); }
