// Opens many files in one process and says of each what `weft inspect --json` says of whether it can run. Starting the
// command takes several times as long as that.
//
//     inspect_tool        each line of the input is a path; each line of the output is an object:
//                         {"can_run": false, "why_not": "...", "key_uses": {"llama.block_count": "read", ...}}
//
// A file that cannot be opened ends the tool with exit status 1 and the error.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/base.h"
#include "base/str.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

static void add_uses(str *out, const weft_file *f) {
  const char **uses = weft_file_key_uses(f), *comma = "";
  for (size_t i = 0; i < weft_file_n_keys(f); i++) {
    const char *key = weft_file_key(f, i);
    if (!uses[i]) continue;
    str_add(out, comma);
    str_add_json(out, key, strlen(key));
    str_add(out, ": ");
    str_add_json(out, uses[i], strlen(uses[i]));
    comma = ", ";
  }
  weft_free(uses);
}

static void add_file(str *out, const weft_file *f) {
  weft_error why;
  bool runs = !weft_file_can_run(f, &why);
  str_addf(out, "{\"can_run\": %s, \"why_not\": ", runs ? "true" : "false");
  if (runs) str_add(out, "null");
  else str_add_json(out, why.text, strlen(why.text));
  str_add(out, ", \"key_uses\": {");
  add_uses(out, f);
  str_add(out, "}}\n");
}

static bool inspect(const char *path) {
  weft_file *f;
  weft_error why;
  str out = {0};
  if (weft_file_open(path, &f, &why)) {
    fprintf(stderr, "%s\n", why.text);
    return false;
  }
  add_file(&out, f);
  bool whole = !weft_file_check(f, &why);
  if (whole) fputs(out.at, stdout);
  else fprintf(stderr, "%s\n", why.text);
  fflush(stdout);
  str_free(&out);
  weft_file_close(f);
  return whole;
}

int main(void) {
  char *line = NULL;
  size_t cap = 0;
  bool good = true;
  for (ssize_t n; good && (n = getline(&line, &cap, stdin)) > 0;) {
    if (line[n - 1] == '\n') line[n - 1] = 0;
    good = inspect(line);
  }
  free(line);
  return good ? 0 : 1;
}
