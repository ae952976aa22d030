// -sm auto: by rows or by layers, whichever makes a token faster by a simple model of costs. See auto_split.h.
#include "engine/auto_split.h"
#include <string.h>
#include "base/env.h"
#include "device/limit.h"
#include "device/ranks.h"
#include "engine/calibrate.h"
#include "engine/on_demand.h"
#include "weft.h"

// By rows, a layer gathers twice what a product adds to the stream, as floats, and twice what a product reads, as codes
// of 8 bits: 1B Q4_0 gathers 65 messages a token, and 14.2 bytes for each number of each layer's stream.
enum { LAYER_MESSAGES = 4, LAYER_BYTES = 14 };
static const double LEAST_GAIN = 1.1;      // of layers, whose prompts and whose several sequences are slower

static int link_of(int n, network *out, error *err) {
  const char *said = env_str(ENV_WEFT_LINK);
  error why = {0};
  *out = network_measured(n);
  if (!*said || !strcmp(said, "measured") || !network_parse(said, out, &why)) return 0;
  return error_set(err, "WEFT_LINK is a link, or measured: %s", why.text);
}

// Bytes a second that this process reads.
static int read_speed(device *d, double *gb_s, error *err) {
  machine_profile profile;
  *gb_s = 0;
  for (int i = 0; calibration_known(d, &profile) && i < profile.one.n; i++)
    if (profile.one.tried[i].gb_s > *gb_s) *gb_s = profile.one.tried[i].gb_s;
  return *gb_s > 0 ? 0 : device_read_limit(d, gb_s, err);
}

split_costs auto_split_costs(const split_sizes *of, int n, const network *link) {
  double parts = (double)of->layers * LAYER_MESSAGES;
  double size = (double)of->stream * LAYER_BYTES / LAYER_MESSAGES;
  return (split_costs){of->token_us / n + parts * network_gather_us(link, n, size) +
                         network_gather_us(link, n, 4.0 * (double)of->vocab),
                       of->token_us + (n - 1) * network_broadcast_us(link, 2, 4.0 * (double)of->stream) +
                         network_broadcast_us(link, 2, 4.0 * (double)of->vocab)};
}

int auto_split(const gguf *file, const model *m, device *d, int *split, error *err) {
  ranks r = ranks_here();
  network link;
  double gb_s;
  *split = WEFT_SPLIT_ROW;
  if (r.on_host == r.n && !*env_str(ENV_WEFT_LINK)) return 0;
  if (link_of(r.n, &link, err) || read_speed(d, &gb_s, err)) return -1;
  if (gb_s <= 0) return 0;
  split_sizes of = {on_demand_token_bytes(file, m) / gb_s / 1e3, model_n_layer(m), model_n_stream(m), model_n_vocab(m)};
  split_costs c = auto_split_costs(&of, r.n, &link);
  if (c.rows_us < LEAST_GAIN * c.layers_us) return 0;
  *split = WEFT_SPLIT_LAYER;
  warning(
    "%s: split by layers: by rows, a token would take about %.3g ms over this link (%.3g us, %.3g Gbit/s), and by "
    "layers %.3g ms (-sm row, or -sm layer without this message)",
    gguf_path(file), c.rows_us / 1e3, link.latency_us, link.gbit_s, c.layers_us / 1e3);
  return 0;
}
