// Finds file paths that a terminal writes: see dropped.h. GNOME's and kitty quote them, macOS' and iTerm escape them,
// some write a file: URL, and some write them unchanged.
#define _GNU_SOURCE
#include "app/dropped.h"
#include "weft.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64 };

static bool is_picture_or_sound(const char *path) {
  char first[4096];
  struct stat st;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  ssize_t n = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) ? read(fd, first, sizeof first) : 0;
  if (fd >= 0) close(fd);
  return n > 0 && weft_medium_kind_of(first, (size_t)n);
}

// Parses a word by a shell's rules. Returns its length in the line; 0: a quote is not closed.
static size_t shell_word(const char *at, str *out) {
  char quote = 0;
  size_t i = 0;
  for (; at[i] && (quote || !isspace((unsigned char)at[i])); i++) {
    bool opens = !quote && (at[i] == '\'' || at[i] == '"');
    if (opens || (quote && at[i] == quote)) { quote = opens ? at[i] : 0; continue; }
    if (at[i] == '\\' && quote != '\'' && at[i + 1]) i++;
    str_addc(out, at[i]);
  }
  return quote ? 0 : i;
}

// Decodes file:///tmp/a%20b.png. False: no such URL, or of another machine.
static bool path_of_url(str *word) {
  static const char scheme[] = "file://", local[] = "localhost/";
  str path = {0};
  unsigned c;
  if (strncasecmp(str_c(word), scheme, sizeof scheme - 1)) return false;
  const char *at = word->at + sizeof scheme - 1;
  if (!strncasecmp(at, local, sizeof local - 1)) at += sizeof local - 2;
  for (; *at; at++) {
    bool coded = *at == '%' && isxdigit((unsigned char)at[1]) && sscanf(at + 1, "%2x", &c) == 1 && c;
    str_addc(&path, coded ? (char)c : *at);
    if (coded) at += at[2] && isxdigit((unsigned char)at[2]) ? 2 : 1;
  }
  str_free(word);
  *word = path;
  return path.n && path.at[0] == '/';
}

// The path at the beginning of a text, and its length there; 0: the text does not begin with a path. A question mark or
// similar after it belongs to the sentence.
static size_t path_at(const char *at, str *path) {
  path->n = 0;
  size_t n = shell_word(at, path);
  if (!n || (str_c(path)[0] != '/' && !path_of_url(path))) return 0;
  while (!is_picture_or_sound(path->at)) {
    if (path->n < 2 || at[n - 1] != path->at[path->n - 1] || !strchr(".,;:?!)", at[n - 1])) return 0;
    path->at[--path->n] = 0;
    n--;
  }
  return n;
}

void dropped_find(const char *line, dropped_list *out) {
  str path = {0};
  if (line[0] == '/' && is_picture_or_sound(line)) {             // an unquoted path with spaces
    vec_push(out, ((struct dropped){0, strlen(line), xstrdup(line)}));
    return;
  }
  for (size_t at = 0; line[at] && out->n < MOST;) {
    size_t n = strchr("/'\"fF", line[at]) ? path_at(line + at, &path) : 0;
    if (n) vec_push(out, ((struct dropped){at, n, xstrdup(path.at)}));
    at += n ? n : strcspn(line + at, " \t");
    at += strspn(line + at, " \t");
  }
  str_free(&path);
}

void dropped_free(dropped_list *l) {
  for (size_t i = 0; i < l->n; i++) free(l->at[i].path);
  vec_free(l);
}
