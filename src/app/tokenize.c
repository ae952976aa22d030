// weft tokenize: text to tokens, and back.  Works on files that hold a vocabulary and no tensors.
#define _GNU_SOURCE
#include "app/app.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tokenize_options {
  const char *model, *prompt, *file;
  bool from_stdin, ids, no_bos, parse_special, escapes;
  struct ids detokenize;
};

static const struct command command = {
  "tokenize", "Turns text into tokens, one a line, or tokens into text.", "-m FILE (-p TEXT | -f FILE | --stdin | --detokenize 1,2,3)",
  NULL};

// A token's bytes so that they fit a line: control characters and broken UTF-8 as escapes.
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
    else if (c < 32 || c == 127 || (!whole && c >= 128)) out_addf(o, "\\x%02X", c);
    else out_add(o, piece + i, 1);
  }
}

static void show_tokens(struct out *o, const weft_vocab *v, const int32_t *ids, size_t n) {
  for (size_t i = 0; i < n && !o->error; i++) {
    size_t len;
    char *piece = weft_piece(v, ids[i], true, &len);
    out_addf(o, "%6d -> '", ids[i]);
    add_piece(o, piece, len);
    out_addf(o, "'\n");
    weft_free(piece);
  }
}

static void show_ids(struct out *o, const int32_t *ids, size_t n) {
  out_addf(o, "[");
  for (size_t i = 0; i < n; i++) out_addf(o, "%s%d", i ? ", " : "", ids[i]);
  out_addf(o, "]\n");
}

static int tokenize(const struct tokenize_options *o, const weft_vocab *v, struct out *to) {
  weft_error err;
  error why = {0};
  char *text = NULL;
  size_t n_text = 0, n_ids;
  int32_t *ids = NULL;
  const char *file = o->from_stdin ? "-" : o->file;
  if (file) {
    if (read_file(file, &text, &n_text, &why)) return failed("%s", why.text);
  } else {
    text = xstrdup(o->prompt);
    n_text = strlen(text);
  }
  if (o->escapes) n_text = unescape(text, n_text);
  unsigned flags = (o->no_bos ? 0 : WEFT_ADD_SPECIAL) | (o->parse_special ? WEFT_PARSE_SPECIAL : 0);
  int status = weft_tokenize(v, text, n_text, flags, &ids, &n_ids, &err);
  free(text);
  if (status) return failed("%s", err.text);
  if (o->ids) show_ids(to, ids, n_ids);
  else show_tokens(to, v, ids, n_ids);
  weft_free(ids);
  return 0;
}

static int detokenize(const struct tokenize_options *o, const weft_vocab *v, struct out *to) {
  weft_error err;
  char *text;
  size_t n;
  if (weft_detokenize(v, o->detokenize.at, o->detokenize.n, o->parse_special, &text, &n, &err)) return failed("%s", err.text);
  out_add(to, text, n);
  if (isatty(STDOUT_FILENO)) out_add(to, "\n", 1);
  weft_free(text);
  return 0;
}

static int work(const struct tokenize_options *o) {
  weft_file *f;
  weft_vocab *v;
  weft_error err;
  struct out to = {0};
  if (weft_file_open(o->model, &f, &err)) return failed("%s", err.text);
  if (weft_vocab_open(f, &v, &err)) {
    weft_file_close(f);
    return failed("%s", err.text);
  }
  int status = o->detokenize.n ? detokenize(o, v, &to) : tokenize(o, v, &to);
  weft_vocab_close(v);
  weft_file_close(f);
  return out_end(&to, status);
}

int tokenize_command(int argc, char **argv) {
  struct tokenize_options o = {0};
  error err = {0};
  const struct option table[] = {
    O_GROUP("Options"),
    O_TEXT("-m, --model", "FILE", "model, a GGUF file; one without tensors will do", &o.model),
    O_TEXT("-p, --prompt", "TEXT", "text to tokenize, taken literally", &o.prompt),
    O_TEXT("-f, --file", "FILE", "the same, from a file", &o.file),
    O_FLAG("--stdin", "the same, from stdin", &o.from_stdin),
    O_FLAG("--ids", "only the ids, on one line: [1, 2, 3]", &o.ids),
    O_FLAG("-e, --escape", "\\n, \\t, \\\", \\\\, \\xHH in the text are escapes", &o.escapes),
    O_FLAG("--no-bos", "no BOS before the text (default: as the model says)", &o.no_bos),
    O_FLAG("--parse-special", "control tokens in the text are those tokens;\nwith --detokenize, they are shown", &o.parse_special),
    O_IDS("--detokenize", "1,2,3", "print the text of these tokens, and nothing else", &o.detokenize),
  };
  int status;
  switch (args_parse(&command, table, COUNT(table), argc, argv, &err)) {
  case ARGS_GO: break;
  case ARGS_HELP: return EXIT_OK;
  default: free(o.detokenize.at); return usage_error("%s", err.text);
  }
  int inputs = (o.prompt != NULL) + (o.file != NULL) + o.from_stdin + (o.detokenize.n > 0);
  if (!o.model) status = usage_error("no model: give one with -m FILE");
  else if (inputs != 1) status = usage_error(inputs ? "use one of -p, -f, --stdin and --detokenize"
                                                    : "nothing to tokenize: give -p TEXT, -f FILE, --stdin or --detokenize 1,2,3");
  else status = work(&o);
  free(o.detokenize.at);
  return status;
}
