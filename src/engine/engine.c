// Opens a model for running.  So far it checks the file and stops there: plans are not built yet, and says so.
#include "engine/engine.h"

int engine_open(const char *path, const struct engine_options *opt, engine **out, error *err) {
  (void)opt;
  (void)out;
  gguf *g;
  if (gguf_open(path, &g, err)) return -1;
  error_set(err, "%s: this build of weft cannot run models yet", path);
  gguf_close(g);
  return -1;
}

void engine_close(engine *e) { (void)e; }
NORETURN static void none(void) { die("engine: there is none"); }
const gguf *engine_gguf(const engine *e) { (void)e; none(); }
const tokenizer *engine_tokenizer(const engine *e) { (void)e; none(); }
int engine_n_vocab(const engine *e) { (void)e; none(); }
int engine_n_ctx(const engine *e) { (void)e; none(); }
void engine_stats(const engine *e, struct engine_stats *out) { (void)e; (void)out; none(); }

int engine_eval(engine *e, const int32_t *ids, size_t n, int pos, const float **logits, error *err) {
  (void)e; (void)ids; (void)n; (void)pos; (void)logits; (void)err;
  none();
}
