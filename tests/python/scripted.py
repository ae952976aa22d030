"""A model that says what it is told to: each token is followed by one other, for certain.  The last character of a prompt chooses what is said, so
that tests see reasoning, calls of tools and the like come out of a real model file, by way of the tokenizer, the sampler and the server.

    scripted.write(path, {"1": ["Hello", " there"], "2": [...]}, template)       # None at the end: from the beginning again, without end
    scripted.write(path, {"abc": [...]}, template)                               # what is said after any of these characters
"""
import gguf
import numpy as np


def byte_characters():
    """GPT-2's characters for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {b: chr(b if b in plain else next(others)) for b in range(256)}


def write(path, scripts, template, context=2048, width=1024, bos=False):
    characters = byte_characters()
    tokens, follows = [characters[b] for b in range(256)], {}
    types = [gguf.TokenType.NORMAL] * 256
    end = len(tokens)
    tokens.append("<|end|>")
    types.append(gguf.TokenType.CONTROL)
    for firsts, pieces in scripts.items():
        last, *others = map(ord, firsts)
        again = len(tokens) if pieces[-1] is None else end
        for piece in filter(None, pieces):
            follows.update(dict.fromkeys(others, len(tokens)))
            others = ()
            tokens.append("".join(characters[b] for b in piece.encode()))
            assert tokens[-1] not in tokens[:-1], f"{piece!r} is said twice"
            types.append(gguf.TokenType.NORMAL)
            follows[last] = last = len(tokens) - 1
        follows[last] = again
    tokens.append(characters[254] + characters[255])
    types.append(gguf.TokenType.NORMAL)
    n = len(tokens)
    assert n <= width
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_context_length(context)
    w.add_embedding_length(width)
    w.add_block_count(1)
    w.add_feed_forward_length(32)
    w.add_head_count(8)
    w.add_head_count_kv(8)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(width // 8)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([f"{characters[254]} {characters[255]}"])      # there has to be one: of bytes that no text has
    w.add_eos_token_id(end)
    if bos:
        w.add_bos_token_id(end)
    w.add_chat_template(template)
    embedding, output = np.zeros((n, width), np.float32), np.zeros((n, width), np.float32)
    for i in range(n):
        embedding[i, i] = 1
        output[follows.get(i, end), i] = 1
    w.add_tensor("token_embd.weight", embedding)
    w.add_tensor("output.weight", output)
    w.add_tensor("output_norm.weight", np.ones(width, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        w.add_tensor(f"blk.0.{name}.weight", np.zeros((width, width), np.float32))
    for name, shape in (("ffn_gate", (32, width)), ("ffn_up", (32, width)), ("ffn_down", (width, 32))):
        w.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        w.add_tensor(f"blk.0.{name}.weight", np.ones(width, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return str(path)
