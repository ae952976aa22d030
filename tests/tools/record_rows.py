"""Makes tests/engine/rows/qwen3vl.*: a small random model of the qwen3vl architecture, a prompt with rows of floats on grids, what
is added to its first layers (deepstack), and what transformers (Qwen3VLTextModel, f32, CPU) makes of it.

usage: record_rows.py OUT_DIR GGUF_WITH_A_VOCABULARY   (needs transformers 5.24, torch, gguf; no part of the tests)
"""
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

WIDTH, LAYERS, HEADS, KV, HEAD, FF, VOCAB, DEEP = 32, 3, 2, 1, 32, 48, 342, 2
SECTIONS = [6, 5, 5]
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}


def make_model():
    torch.manual_seed(7)
    config = Qwen3VLTextConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=FF, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV, head_dim=HEAD, max_position_embeddings=512, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": SECTIONS, "mrope_interleaved": True})
    config._attn_implementation = "eager"
    model = Qwen3VLTextModel(config).eval().float()
    with torch.no_grad():
        for name, p in model.named_parameters():
            random = 1 + 0.2 * torch.randn_like(p) if "norm" in name else torch.randn_like(p) * (0.5 if "embed" in name else 0.35)
            p.copy_(random.half().float())
    return model


def write_model(model, vocabulary, path):
    w = gguf.GGUFWriter(path, "qwen3vl")
    w.add_context_length(512)
    w.add_block_count(LAYERS)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_sections(SECTIONS + [0])
    w.add_uint32("qwen3vl.n_deepstack_layers", DEEP)
    add = {gguf.GGUFValueType.ARRAY: w.add_array, gguf.GGUFValueType.STRING: w.add_string, gguf.GGUFValueType.BOOL: w.add_bool}
    for key, field in gguf.GGUFReader(vocabulary).fields.items():
        if key.startswith("tokenizer."):
            add.get(field.types[0], w.add_uint32)(key, field.contents())
    state = model.state_dict()
    tensors = {"token_embd": "embed_tokens", "output_norm": "norm"}
    tensors |= {f"blk.{i}.{b}": f"layers.{i}.{a}" for i in range(LAYERS) for a, b in NAMES.items()}
    for to, name in tensors.items():
        w.add_tensor(f"{to}.weight", state[f"{name}.weight"].numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Prompt:
    def __init__(self):
        self.random = np.random.default_rng(5)
        self.parts, self.ids, self.places, self.rows, self.next = [], [], [], [], 0

    def text(self, n):
        ids = self.random.integers(0, 256, n).tolist()
        self.parts.append({"type": "text", "n_tokens": n, "n_pos": n, "pos0": self.next, "ids": ids})
        for i in ids:
            self.token(i)

    def token(self, i):
        self.ids.append(i)
        self.places.append([self.next] * 3)
        self.next += 1

    def grid(self, *size):
        at = [[self.next + k for k in place] for place in np.ndindex(*size)]
        self.parts.append({"type": "image", "n_tokens": len(at), "n_pos": max(size), "pos0": self.next, "noncausal": 0,
                           "mrope_positions_t_y_x": at})
        self.ids += [-1] * len(at)
        self.places += at
        self.rows += [self.random.standard_normal((1 + DEEP, WIDTH)).astype("f4") * 0.7 for _ in at]
        self.next += max(size)


def log_probabilities(model, prompt):
    rows = torch.tensor(np.stack(prompt.rows))
    are_rows = torch.tensor([prompt.ids]) < 0
    embedded = model.embed_tokens(torch.tensor([prompt.ids]).clamp(min=0))
    embedded[are_rows] = rows[:, 0]
    out = model(inputs_embeds=embedded, position_ids=torch.tensor(prompt.places).T[:, None, :], visual_pos_masks=are_rows,
                use_cache=False, deepstack_visual_embeds=[rows[:, 1 + i] for i in range(DEEP)]).last_hidden_state
    return torch.log_softmax((out[0, -1] @ model.embed_tokens.weight.T).double(), -1)


def main(out, vocabulary):
    model, prompt, tops = make_model(), Prompt(), []
    write_model(model, vocabulary, out / "qwen3vl.gguf")
    prompt.text(5)
    prompt.grid(1, 3, 4)
    prompt.text(4)
    prompt.grid(2, 2, 2)
    prompt.text(6)
    np.stack(prompt.rows).tofile(out / "qwen3vl.f32")
    with torch.no_grad():
        for _ in range(8):
            values, ids = log_probabilities(model, prompt).topk(20)
            tops.append([[int(i), round(float(v), 6)] for i, v in zip(ids, values)])
            prompt.token(tops[-1][0][0])
    record = {"greedy": [t[0][0] for t in tops], "steps_top20": tops}
    print(record["greedy"], [round(t[0][1] - t[1][1], 3) for t in tops])
    (out / "qwen3vl.json").write_text(json.dumps({"family": "qwen3vl", "sequence": prompt.parts, "transformers": record}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
