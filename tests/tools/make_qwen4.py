"""make_qwen4.py: what only files of qwen4exp have, for make_model.py: a stream of rows that are mixed by matrices of low rank, and a table of n-grams."""
import gguf
import numpy as np

END = 7                     # the token that ends a text


def prime_after(n):
    n += 1
    while any(n % i == 0 for i in range(2, int(n ** 0.5) + 1)):
        n += 1
    return n


def hashes(p):
    """Factors of tokens, and of each head its first row and how many it has: drawn, odd and prime, as the authors have them."""
    keys = p["keys"]
    n, heads = keys["ple.ngram_size"], (keys["ple.ngram_size"] - 1) * keys["ple.heads_per_ngram"]
    rng = np.random.default_rng([4, p["n_vocab"]])
    factors, sizes = [2 * int(rng.integers(1, (2 ** 63 - 1) // p["n_vocab"] // 2)) - 1 for _ in range(n)], []
    for _ in range(heads):
        sizes.append(prime_after(sizes[-1] if sizes else 40))
    return factors, [sum(sizes[:h]) for h in range(heads)], sizes


def write(m):
    p, keys = m.p, m.p["keys"]
    n, low, d = keys["hyper_connection.count"], keys["hyper_connection.low_rank"], p["dim"]
    factors, offsets, sizes = hashes(p)
    for name, values in (("layer_multipliers", factors), ("head_offsets", offsets), ("head_vocab_sizes", sizes)):
        m.w.add_key_value(f"qwen4exp.ple.{name}", values, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT64)
    for name in ["output_hc"] + [f"blk.{i}.hc_{part}" for i in range(p["layers"]) for part in ("attn", "ffn")]:
        m.vector(name + "_norm.weight", n * d)
        m.matrix(name + "_down", low, n * d, gain=2.0)
        m.matrix(name + "_up", n * d, low, gain=2.0)
        if name != "output_hc":
            m.matrix(name + "_inject", n, n * d, gain=3.0)
    b, width = f"blk.{keys['ple.layers'][0]}.ple_", keys["embedding_length_per_layer_input"]
    m.matrix("per_layer_token_embd", -(-sum(sizes) // 16) * 16, width, gain=width ** 0.5)
    m.matrix(b + "key", n * d, width * len(sizes))
    m.matrix(b + "value", d, width * len(sizes))
    for name in ("key", "query", "conv"):
        m.vector(f"{b}norm_{name}.weight", n * d)
    m.put(b + "conv1d.weight", m.normal(b + "conv1d", (n * d, keys["ple.conv_kernel"]), 0, 0.6))
