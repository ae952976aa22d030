// Rows of the table of classes (hf_classes.c) for models whose layers have windows in an order that the folder lists:
// Mellum 2.
#include "model/hf_impl.h"

#define BLOCK "model.layers.*."
static const char config_name[] = "config.json";

// ---- Mellum 2 -------------------------------------------------------------------------------------------------------

static const hf_rule mellum_rules[] = {HF_EXPERTS(BLOCK "mlp"), {0}};
static const hf_key mellum_keys[] = {{"expert_feed_forward_length", HF_U32, "moe_intermediate_size"}, {0}};

// All layers have experts.
static int mellum_more(hf *h, error *err) {
  hf_layers y;
  const char *name;
  if (hf_read_layers(h, "mlp_layer_types", "sparse", false, &y, err)) return -1;
  if (json_is_false(hf_value(h, "use_sliding_window", &name))) return hf_all_full(h, err);
  if (!json_array_size(json_object_get(h->text, "layer_types")))
    return hf_fail(h, config_name, "layer_types", err, "is missing");
  return hf_put_windows(h, 4, err);
}

// ---- the rows -------------------------------------------------------------------------------------------------------

const hf_class hf_classes_windows[] = {
  {.name = "MellumForCausalLM",
   .arch = "mellum",
   .no_mtp = true,
   .musts = "hidden_act=silu attention_bias=false norm_topk_prob=true",
   .defaults = "{\"rms_norm_eps\":1e-6}",
   .keys = mellum_keys,
   .rules = mellum_rules,
   .more = mellum_more},
  {0},
};
