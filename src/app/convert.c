// weft convert: converts a Hugging Face folder to a GGUF file. The library does the work.
#include "app/app.h"
#include <string.h>

struct converter { struct settings all; progress bar; };

static const struct command command = {
  "convert", "Writes a folder of Hugging Face's as a GGUF file.", "DIR OUT.gguf [options]",
  "DIR is a folder as transformers saves it: config.json, model.safetensors (or several, with\n"
  "their index), tokenizer.json. Tensors are the same bytes as of llama.cpp's converter. All\n"
  "commands take such a folder as it is, too; 'weft quantize' makes the file smaller.\n", COMMAND_BIT(convert), 0};

static bool show_converted(void *ctx, double fraction) {
  struct converter *c = ctx;
  progress_set(&c->bar, "converting", fraction);
  return !interrupted();
}

static int run_converter(struct converter *c) {
  static const char *const types[] = {"auto", "f32", "f16", "bf16", "q8_0"};
  const struct convert_args *o = &c->all.convert;
  weft_error err;
  weft_convert_result r;
  weft_convert_options w = {.type = types[o->type], .threads = (int)c->all.model.threads, .progress = show_converted,
                            .ctx = c};
  keep_to_files(&c->all, o->out);
  interrupt_catch();
  progress_begin(&c->bar);
  double began = now_s();
  int status = weft_convert(o->in, o->out, &w, &r, &err) ? -1 : 0;
  progress_end(&c->bar);
  if (status) return failed("%s", err.text);
  if (r.stopped) return EXIT_INTERRUPTED;
  say("wrote %s: %zu tensors, %.1f million parameters, %.1f MB (%.1f s)", o->out, r.n_tensors,
          (double)r.n_params / 1e6, (double)r.bytes / 1e6, now_s() - began);
  return EXIT_OK;
}

int convert_command(int argc, char **argv) {
  struct converter c = {.bar = {0}};
  int status;
  bool parsed = settings_parse(&c.all, &command, argc, argv, &status);
  if (parsed && !c.all.convert.in) status = usage_error("no folder: give the one to convert, and the file to write");
  else if (parsed && !c.all.convert.out) status = usage_error("no file to write: 'weft convert DIR OUT.gguf'");
  else if (parsed) status = run_converter(&c);
  settings_free(&c.all);
  return status;
}
