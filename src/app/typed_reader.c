// Reads messages, and the files that they name: see typed_reader.h.
#define _GNU_SOURCE
#include "app/typed_reader.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "app/app.h"
#include "base/env.h"
#include "base/json.h"
#include "base/newfile.h"

enum { LONGEST = 1 << 24 };

bool typed_history(str *out) {
  return env_folder(ENV_XDG_STATE_HOME, ".local/state", "weft/chat_history", out);
}

// Creates the folders of the history for their owner alone, since it contains private text.
char *typed_history_made(void) {
  str path = {0};
  if (!typed_history(&path)) return NULL;
  for (char *slash = path.at + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(path.at, 0700);
    *slash = '/';
  }
  return path.at;
}

// Reads one line with its newline, if it has one.
static enum input read_line(typed_reader *r, const char *prompt, const char *begin, str *out) {
  if (r->edit) {
    enum edit_result got = edit_line(r->edit, prompt, r->how.color, begin, out);
    return got == EDIT_LINE ? INPUT_TEXT : got == EDIT_END ? INPUT_END : INPUT_INTERRUPTED;
  }
  char *line = NULL;
  size_t cap = 0;
  if (r->how.person) { fputs(prompt, stdout); fflush(stdout); }
  ssize_t n = getline(&line, &cap, stdin);
  if (n > 0) str_addn(out, line, (size_t)n);
  free(line);
  if (n <= 0 && interrupted()) { clearerr(stdin); return INPUT_INTERRUPTED; }
  return n > 0 ? INPUT_TEXT : INPUT_END;
}

static const char quotes[] = "\"\"\"";

// If a line ends with """ (before an optional newline), removes that and returns true.
static bool take_quotes(str *line, size_t from) {
  size_t n = line->n;
  while (n > from && (line->at[n - 1] == '\n' || line->at[n - 1] == '\r' || line->at[n - 1] == ' ')) n--;
  if (n < from + 3 || memcmp(line->at + n - 3, quotes, 3)) return false;
  line->n = n - 3;
  return true;
}

// Adds a message to the history in a form that can be typed again: in quotes if it would otherwise mean something else.
static void remember_message(const typed_reader *r, const char *text, bool lines) {
  size_t n = strlen(text);
  bool quoted = lines && ((n && text[n - 1] == '\\') || !strncmp(text, quotes, 3));
  str s = {0};
  str_addf(&s, "%s%s%s", quoted ? quotes : "", text, quoted ? quotes : "");
  if (r->edit) edit_remember(r->edit, s.at);
  str_free(&s);
}

enum input reader_message(typed_reader *r, const char *prompt, const char *begin, str *out) {
  bool block = false, lines = false;
  str_add(out, "");
  for (const char *shown = prompt;; shown = "... ", begin = "") {
    size_t from = out->n;
    enum input got = read_line(r, shown, begin, out);
    if (got == INPUT_INTERRUPTED) { out->n = 0; return got; }
    if (got == INPUT_END && !out->n) return INPUT_END;
    if (got == INPUT_END) break;
    if (out->n > LONGEST) return INPUT_TEXT;
    bool first = from == 0 && !block && out->n >= 3 && !memcmp(out->at, quotes, 3);
    if (first) {                       // """ begins a message; the rest of the line belongs to it
      memmove(out->at, out->at + 3, out->n -= 3);
      if (out->n == 1 && out->at[0] == '\n') out->n = 0;
      block = lines = true;
    }
    if (block && take_quotes(out, from)) break;
    if (block) continue;
    bool newline = out->n && out->at[out->n - 1] == '\n';
    if (!newline || out->n < from + 2 || out->at[out->n - 2] != '\\') break;
    lines = true;
    out->n -= 2;             // the message continues on the next line
    str_addc(out, '\n');
  }
  if (out->n && out->at[out->n - 1] == '\n') out->n--;
  out->at[out->n] = 0;
  remember_message(r, out->at, lines);
  return INPUT_TEXT;
}

// Records which files a line names, for reading or writing. Returns whether any was dropped.
bool reader_note_files(typed_reader *r, const char *line) {
  static const char *const readers[] = {"/read", "/load", "/image", "/audio"};
  size_t word = strcspn(line, " ");
  const char *rest = line + word + strspn(line + word, " ");
  bool reads = false;
  free(r->to_write);
  r->to_write = NULL;
  dropped_free(&r->to_read);
  if (strchr(line, '\n')) return false;
  for (size_t i = 0; i < COUNT(readers); i++) reads |= word == strlen(readers[i]) && !memcmp(line, readers[i], word);
  if (reads && *rest) vec_push(&r->to_read, ((struct dropped){.path = xstrdup(rest)}));
  else if (*rest && word == 5 && !memcmp(line, "/save", 5)) r->to_write = xstrdup(rest);
  else if (!reads && r->how.person) dropped_find(line, &r->to_read);
  return !reads && r->to_read.n;
}

int reader_read(typed_reader *r, uint64_t i, char **text, size_t *n, error *err) {
  if (i >= r->to_read.n || !r->to_read.at[i].path) return error_set(err, "no file was named to be read");
  char *path = r->to_read.at[i].path;
  r->to_read.at[i].path = NULL;
  int status = strcmp(path, "-") ? read_file(path, READ_PROMPT, text, n, err) : error_set(err, "- is no file");
  free(path);
  return status;
}

// Protects existing files from /save: only an older saved conversation may be overwritten. 0: the file may be written.
static int check_place(const char *path, error *err) {
  struct stat st;
  char *text;
  size_t n, i;
  error unread = {0};
  json_t *m;
  if (stat(path, &st) || !S_ISREG(st.st_mode) || !st.st_size) return 0;
  json_t *all = NULL;
  if (!read_file(path, READ_PROMPT, &text, &n, &unread)) {
    all = json_read(text, n, JSON_ALLOW_NUL, NULL, &unread);
    free(text);
  }
  bool messages = json_is_array(all);
  json_array_foreach(all, i, m) messages &= json_is_string(json_object_get(m, "role"));
  json_decref(all);
  return messages ? 0 : error_set(err, "%s: is there already, and is no saved conversation; use another name", path);
}

int reader_write(typed_reader *r, const char *text, size_t n, error *err) {
  char *path = r->to_write;
  int status = -1;
  r->to_write = NULL;
  if (!path) return error_set(err, "no file was named to be written");
  if (!strcmp(path, "-")) error_set(err, "- is no file");
  else if (!check_place(path, err)) status = newfile_whole(path, text, n, err);
  free(path);
  return status;
}
