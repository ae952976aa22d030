// Models that go on token by token, and those that see texts as a whole.
#include "engine/engine.h"
#include "model/gguf.h"

int engine_check_predicts(const engine *e, error *err) {
  const char *path = gguf_path(engine_gguf(e));
  if (engine_denoises(e))
    return error_set(err, "%s: this model denoises texts as a whole (weft run); it goes on with none token by token",
                     path);
  return engine_is_encoder(e)
           ? error_set(err, "%s: this model makes embeddings (weft embed); it predicts no tokens", path)
           : 0;
}
