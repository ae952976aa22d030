"""Records llama.cpp's perplexity of a text: record_perplexity.py MODEL.gguf TEXT CHUNK OUT.json (needs llama-cpp-python).

Its method: chunks of CHUNK tokens, each alone in the context, BOS in the place of the first token where the vocabulary says so; the
tokens of the second half are scored.  The record holds the text, the running perplexities and the final one with its error."""
import ctypes
import json
import math
import sys

import llama_cpp.llama_cpp as ll
import numpy as np

model_path, text_path, chunk, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
text = open(text_path, "rb").read().decode().removesuffix("\n")
quiet = ll.llama_log_callback(lambda *_: None)
ll.llama_log_set(quiet, ctypes.c_void_p())
ll.llama_backend_init()
model = ll.llama_model_load_from_file(model_path.encode(), ll.llama_model_default_params())
vocab = ll.llama_model_get_vocab(model)
n_vocab = ll.llama_vocab_n_tokens(vocab)
raw = text.encode()
ids = (ll.llama_token * (len(raw) + 8))()
n = ll.llama_tokenize(vocab, raw, len(raw), ids, len(ids), True, False)
params = ll.llama_context_default_params()
params.n_ctx = params.n_batch = params.n_ubatch = chunk
ctx = ll.llama_init_from_model(model, params)
batch = ll.llama_batch_init(chunk, 0, 1)
nll, running = [], []
for start in range(0, n - chunk + 1, chunk):
    ll.llama_memory_clear(ll.llama_get_memory(ctx), True)
    batch.n_tokens = chunk
    for i in range(chunk):
        bos = i == 0 and ll.llama_vocab_get_add_bos(vocab)
        batch.token[i] = ll.llama_vocab_bos(vocab) if bos else ids[start + i]
        batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = i, 1, 0, i >= chunk // 2
    assert ll.llama_decode(ctx, batch) == 0
    for i in range(chunk // 2, chunk - 1):
        logits = np.ctypeslib.as_array(ll.llama_get_logits_ith(ctx, i), (n_vocab,)).astype(np.float64)
        top = logits.max()
        nll.append(top + math.log(np.exp(logits - top).sum()) - logits[ids[start + i + 1]])
    running.append(math.exp(np.mean(nll)))
spread = np.mean(np.square(nll)) - np.mean(nll) ** 2
record = {"chunk": chunk, "running": [round(r, 4) for r in running], "ppl": running[-1], "error": math.sqrt(spread / (len(nll) - 1)) * running[-1], "text": text}
json.dump(record, open(out, "w"), indent=1)
print(record["ppl"], record["error"], len(running))
