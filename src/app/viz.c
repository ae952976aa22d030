// weft viz: shows what the compiler did with a model, as one self-contained HTML page that needs no network. The
// library provides the facts as JSON and the page (src/app/viz/) draws them; this file combines both. With VIZ=1 other
// commands write such a page when they end.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/model_args.h"
#include "base/embed.h"
#include "base/env.h"
#include "base/newfile.h"
#include "base/progress.h"
#include <string.h>

static const struct command command = {
  "viz", "Writes a page that shows what the compiler made of a model.", "-m FILE [--out page.html] [options]",
  "The page shows each kernel with its source, its assembly and the loop that counts, every rewrite with the\n"
  "rule that fired and what it changed, the graph of kernels and the graph of tensors behind each, the time\n"
  "line of a token with a lane for each thread, and where memory is. It is one file, works without a network,\n"
  "and says which keys it knows when ? is pressed. VIZ=1 (or VIZ=page.html) makes run, chat and bench write\n"
  "one when they end.\n", COMMAND_BIT(viz), 0};

// ---- the parts of the page: files of src/app/viz/, and dagre, which places the nodes of graphs ----------------------

#define ASSET(name, path) EMBED(weft_##name, path)
ASSET(page_html, WEFT_VIZ_DIR "/page.html");
ASSET(page_css, WEFT_VIZ_DIR "/page.css");
ASSET(page_js, WEFT_VIZ_DIR "/page.js");
ASSET(draw_js, WEFT_VIZ_DIR "/draw.js");
ASSET(expr_js, WEFT_VIZ_DIR "/expr.js");
ASSET(views_js, WEFT_VIZ_DIR "/views.js");
ASSET(kernel_js, WEFT_VIZ_DIR "/kernel.js");
#ifdef WEFT_DAGRE
ASSET(dagre_js, WEFT_DAGRE);
static const char dagre_license[] =
  "/* dagre: Copyright (c) 2012-2014 Chris Pettitt; with parts Copyright (c) 2012-2013 The Dojo Foundation, (c) "
  "2009-2013 Jeremy Ashkenas, DocumentCloud and\n"
  "Investigative Reporters & Editors. Permission is hereby granted, free of charge, to any person obtaining a copy of "
  "this software and associated documentation\n"
  "files (the \"Software\"), to deal in the Software without restriction, including without limitation the rights to "
  "use, copy, modify, merge, publish, distribute,\n"
  "sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, "
  "subject to the following conditions: The above\n"
  "copyright notice and this permission notice shall be included in all copies or substantial portions of the "
  "Software. THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT\n"
  "WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS "
  "FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT.\n"
  "IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN "
  "AN ACTION OF CONTRACT, TORT OR OTHERWISE,\n"
  "ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE. */\n";
#endif
#define ADD(out, name) str_addn(out, weft_##name, (size_t)(weft_##name##_end - weft_##name))

// Puts each line of the facts in an element of its own, so that the page parses a kernel only when it is shown.
static void add_data(str *to, const char *facts) {
  for (int i = 0; *facts; i++) {
    size_t n = strcspn(facts, "\n");
    str_addf(to, "<script type=\"application/json\" id=\"d%d\">", i);
    str_addn(to, facts, n);
    str_add(to, "</script>\n");
    facts += n + (facts[n] == '\n');
  }
}

static void add_page_part(str *to, const char *part, const char *facts) {
  if (!strncmp(part, "@css", 4)) ADD(to, page_css);
  if (!strncmp(part, "@data", 5)) add_data(to, facts);
  if (!strncmp(part, "@script", 7)) {
    ADD(to, page_js);
    ADD(to, draw_js);
    ADD(to, expr_js);
    ADD(to, views_js);
    ADD(to, kernel_js);
    str_add(to, "start();\n");
  }
#ifdef WEFT_DAGRE
  if (!strncmp(part, "@layout", 7)) { str_add(to, dagre_license); ADD(to, dagre_js); }
#endif
}

static void add_page(str *to, const char *facts) {
  for (const char *line = weft_page_html; line < weft_page_html_end;) {
    size_t n = strcspn(line, "\n") + 1;
    if (*line == '@') add_page_part(to, line, facts);
    else str_addn(to, line, n);
    line += n;
  }
}

// ---- writing --------------------------------------------------------------------------------------------------------

static int write_page(const char *path, const char *facts) {
  str page = {0};
  error err = {0};
  add_page(&page, facts);
  if (!strcmp(path, "-")) {
    struct out to = {.pending = page};
    return out_end(&to, EXIT_OK);
  }
  int status = newfile_whole(path, page.at, page.n, &err);
  str_free(&page);
  return status ? failed("%s", err.text) : EXIT_OK;
}

int viz_if_asked(weft_model *m, int status) {
  enum { STEPS = 8 };
  const char *path = env_str(ENV_VIZ);
  char *facts = NULL;
  size_t n;
  weft_error err;
  if (!m || !*path || !strcmp(path, "0")) return status;
  if (!strcmp(path, "1")) path = "weft-viz.html";
  int steps = weft_model_context(m) < STEPS ? weft_model_context(m) : STEPS;
  int made = weft_model_trace(m, 0, steps, 0, &facts, &n, &err) ? failed("VIZ: %s", err.text) : write_page(path, facts);
  if (!made) say("%s shows what the compiler did", path);
  weft_free(facts);
  return status ? status : made;
}

static int look(struct settings *o, progress *bar, weft_model *m) {
  weft_error err;
  char *facts = NULL;
  size_t n;
  interrupt_catch();
  progress_begin(bar);
  int status = fill_context(m, (int)o->depth, bar);
  if (!status && o->chunk_of > weft_model_chunk(m)) o->chunk_of = weft_model_chunk(m);
  if (!status && weft_model_trace(m, (int)o->chunk_of, (int)o->steps, (int)o->depth, &facts, &n, &err))
    status = failed("%s", err.text);
  progress_end(bar);
  if (status) return status;
  status = write_page(o->out, facts);
  if (!status && strcmp(o->out, "-")) say("wrote %s", o->out);
  weft_free(facts);
  return status;
}

static int write_it(struct settings *o) {
  progress bar = {0};
  weft_model *m = NULL;
  if (o->steps < 0) o->steps = 16;
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  env_set(ENV_VIZ, "0");
  keep_to_evaluating(o, o->out);
  // tokens of a prompt chunk, whose time is shown next to that of a token
  enum { BESIDE = 64 };
  o->model.context = o->depth + max_i64((o->chunk_of ? o->chunk_of : o->steps) + 1, BESIDE);
  int status = model_args_open(&o->model, &bar, &m);
  if (!status) status = look(o, &bar, m);
  weft_model_close(m);
  return status;
}

int viz_command(int argc, char **argv) { return settings_run(&command, argc, argv, write_it); }
