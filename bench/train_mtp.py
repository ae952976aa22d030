#!/usr/bin/env python3
"""train_mtp.py: a small model of the kind qwen35 with a block that predicts a further token (MTP), trained in minutes, for measuring drafts.

    train_mtp.py TOKENIZER.gguf OUT.gguf FILE... [--seconds N] [--layers N] [--ffn N] [--state FILE]

It learns the texts of FILEs in the vocabulary of another GGUF (models/tinypy.gguf, and Python's standard library). --layers and --ffn make the
file larger without changing what it says, so that a token costs what it does in a model of that size: layers that add nothing, and neurons that
nobody reads. --state keeps what was learned; if it is there, it is read, and trained further only if --seconds is given. Needs torch, transformers
and gguf.
"""
import argparse
import pathlib
import random
import time

import gguf
import numpy as np
import torch
from torch.nn import functional as F
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

DIM, LAYERS, FFN, HEADS, KV, HEAD, KEYS, STATE, LENGTH, BATCH = 128, 4, 384, 4, 2, 32, 4, 32, 128, 8
STEPS_AHEAD = 3                      # the block is asked again for what follows its own guess


def config(vocabulary):
    return Qwen3_5TextConfig(
        vocab_size=vocabulary, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
        head_dim=HEAD, linear_key_head_dim=STATE, linear_value_head_dim=STATE, linear_num_key_heads=KEYS, linear_num_value_heads=KEYS,
        layer_types=["linear_attention"] * (LAYERS - 1) + ["full_attention"], tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2], "mrope_interleaved": True})


class Mtp(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = torch.nn.Linear(2 * DIM, DIM, bias=False)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (qwen.Qwen3_5RMSNorm(DIM, eps=c.rms_norm_eps) for _ in range(3))
        self.layer = qwen.Qwen3_5DecoderLayer(c, LAYERS - 1)

    def forward(self, model, embedded, hidden):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)], -1))
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        places = torch.arange(n)[None].expand(3, x.shape[0], -1)
        return self.norm(self.layer(x, position_embeddings=model.rotary_emb(x, places), attention_mask=mask))


def losses(model, mtp, ids):
    """Of the next token, and of each drafted token after it."""
    embedded = model.embed_tokens(ids)
    head = lambda x, at: F.cross_entropy((x[:, :-1] @ model.embed_tokens.weight.T).flatten(0, 1), ids[:, at:].flatten())
    x = model(inputs_embeds=embedded, use_cache=False).last_hidden_state
    out = [head(x, 1)]
    for ahead in range(1, STEPS_AHEAD + 1):
        x = mtp(model, embedded[:, ahead:], x[:, :-1])
        out.append(head(x, ahead + 1))
    return out


def train(model, mtp, text, seconds):
    parameters = [*model.parameters(), *mtp.parameters()]
    best = torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01)
    began, step = time.time(), 0
    while (passed := time.time() - began) < seconds:
        for group in best.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 50) * max(0.05, 1 - passed / seconds)
        starts = [random.randrange(len(text) - LENGTH) for _ in range(BATCH)]
        each = losses(model, mtp, torch.stack([text[at:at + LENGTH] for at in starts]))
        best.zero_grad()
        (each[0] + 0.3 * sum(each[1:])).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        best.step()
        step += 1
        if step % 25 == 0:
            print(f"{passed:.0f} s, step {step}:", *(f"{float(x):.3f}" for x in each), flush=True)


def encode(reader, files):
    """Byte-level BPE by the file's own merges, as tokenizers does it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    words = lambda name: reader.get_field(name).contents()
    tokens, merges = words("tokenizer.ggml.tokens"), words("tokenizer.ggml.merges")
    t = Tokenizer(models.BPE({w: i for i, w in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return torch.tensor([i for f in files for i in [0, *t.encode(pathlib.Path(f).read_text(errors="replace")).ids]])


def write(out, reader, model, mtp, layers, ffn):
    w = gguf.GGUFWriter(out, "qwen35")
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kind = field.types[0]
            w.add_key_value(name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    w.add_name("MTP on tinypy's text")
    w.add_block_count(layers + 1)
    for add, value in ((w.add_context_length, 4096), (w.add_embedding_length, DIM), (w.add_feed_forward_length, ffn), (w.add_head_count, HEADS),
                       (w.add_head_count_kv, KV), (w.add_key_length, HEAD), (w.add_value_length, HEAD), (w.add_layer_norm_rms_eps, 1e-6),
                       (w.add_rope_freq_base, 10000.0), (w.add_rope_dimension_count, HEAD // 2), (w.add_ssm_conv_kernel, 4), (w.add_ssm_state_size, STATE),
                       (w.add_ssm_group_count, KEYS), (w.add_ssm_time_step_rank, KEYS), (w.add_ssm_inner_size, KEYS * STATE),
                       (w.add_nextn_predict_layers, 1), (w.add_vocab_size, model.embed_tokens.weight.shape[0])):
        add(value)
    w.add_rope_dimension_sections([3, 3, 2, 0])
    w.add_uint32("qwen35.full_attention_interval", LAYERS)
    put = lambda name, x: w.add_tensor(name, np.ascontiguousarray(x.detach().float().numpy() if torch.is_tensor(x) else x, np.float32))

    def wider(name, x):              # neurons that nobody reads
        down, extra = "down" in name, ffn - FFN
        noise = np.random.default_rng(1).standard_normal((extra, DIM)).astype(np.float32) * 0.05
        return np.concatenate([x.detach().numpy(), 0 * noise.T if down else noise], 1 if down else 0)

    def block(i, y, silent=False):
        b = f"blk.{i}."
        put(b + "attn_norm.weight", 1 + y.input_layernorm.weight)
        put(b + "post_attention_norm.weight", 1 + y.post_attention_layernorm.weight)
        for ours, theirs in (("ffn_gate", y.mlp.gate_proj), ("ffn_up", y.mlp.up_proj), ("ffn_down", y.mlp.down_proj)):
            put(f"{b}{ours}.weight", wider(ours, theirs.weight * (0 if silent and ours == "ffn_down" else 1)))
        quiet = 0 if silent else 1
        if y.block_type == "linear_attention":
            a = y.linear_attn
            for ours, x in (("attn_qkv.weight", a.in_proj_qkv.weight), ("attn_gate.weight", a.in_proj_z.weight), ("ssm_beta.weight", a.in_proj_b.weight),
                            ("ssm_alpha.weight", a.in_proj_a.weight), ("ssm_conv1d.weight", a.conv1d.weight.squeeze(1)), ("ssm_dt.bias", a.dt_bias),
                            ("ssm_a", -torch.exp(a.A_log)), ("ssm_norm.weight", a.norm.weight), ("ssm_out.weight", a.out_proj.weight * quiet)):
                put(b + ours, x)
        else:
            a = y.self_attn
            for ours, x in (("attn_q.weight", a.q_proj.weight), ("attn_k.weight", a.k_proj.weight), ("attn_v.weight", a.v_proj.weight),
                            ("attn_output.weight", a.o_proj.weight * quiet), ("attn_q_norm.weight", 1 + a.q_norm.weight),
                            ("attn_k_norm.weight", 1 + a.k_norm.weight)):
                put(b + ours, x)
    put("token_embd.weight", model.embed_tokens.weight)
    put("output_norm.weight", 1 + model.norm.weight)
    for i in range(layers):          # what was learned lies at the end: the kinds of layers come in the same order
        block(i, model.layers[i % LAYERS], silent=i < layers - LAYERS)
    block(layers, mtp.layer)
    b = f"blk.{layers}.nextn."
    put(b + "eh_proj.weight", mtp.fc.weight)
    for ours, norm in (("enorm", mtp.pre_fc_norm_embedding), ("hnorm", mtp.pre_fc_norm_hidden), ("shared_head_norm", mtp.norm)):
        put(f"{b}{ours}.weight", 1 + norm.weight)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tokenizer")
    p.add_argument("out")
    p.add_argument("files", nargs="+")
    p.add_argument("--seconds", type=float)
    p.add_argument("--layers", type=int, default=LAYERS)
    p.add_argument("--ffn", type=int, default=FFN)
    p.add_argument("--state")
    o = p.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    reader = gguf.GGUFReader(o.tokenizer)
    c = config(len(reader.get_field("tokenizer.ggml.tokens").data))
    model, mtp = qwen.Qwen3_5TextModel(c), Mtp(c)
    if o.state and pathlib.Path(o.state).exists():
        for module, state in zip((model, mtp), torch.load(o.state)):
            module.load_state_dict(state)
        seconds = o.seconds or 0
    else:
        seconds = o.seconds or 600
    if seconds:
        train(model, mtp, encode(reader, o.files), seconds)
        if o.state:
            torch.save((model.state_dict(), mtp.state_dict()), o.state)
    write(o.out, reader, model, mtp, o.layers, o.ffn)


main()
