"""What llama-cpp-python's README shows beside completions (test_python.py): pictures, speculative decoding, other tokenizers, the
functions of llama.h, the server.

WEFT_LLAMA_README=FILE runs the examples of that README itself, with nothing changed but imports, names of files, and the address of a
picture.  Those that fetch from Hugging Face fail where that cannot be reached.
"""
import base64
import ctypes
import gc
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import pytest
from test_python import llm, own, python_env  # noqa: F401
from test_serve_pictures import CASES, PLAIN, content

PROMPT = "def add(a, b):\n"


def png(width, height, grey):
    rows = b"".join(b"\0" + bytes([grey]) * 3 * width for _ in range(height))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)


def coded(picture):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(picture).decode()}"}}


@pytest.fixture
def seeing(own, vision, monkeypatch):  # noqa: F811
    """seeing(kind, **options): a Llama of one of the pairs, whose template is the text alone."""
    from weft import _chat
    from weft.llama_chat_format import MTMDChatHandler
    monkeypatch.setitem(_chat.TEXTS, "plain", PLAIN)
    opened = []

    def open_one(kind, **options):
        limits = {"image_min_tokens": 8} if kind == "qwen2.5vl" else {}  # as the records were made
        handler = MTMDChatHandler(clip_model_path=str(vision / kind / "mmproj.gguf"), **limits)
        opened.append(own.Llama(str(vision / kind / "model.gguf"), chat_handler=handler, chat_format="plain", n_ctx=1024, verbose=False, **options))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close()


def tokens_of(answer):
    return [bytes(one["bytes"]) for one in answer["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize("guesses", [False, True])
@pytest.mark.parametrize(("kind", "media"), CASES)
def test_pictures_and_sounds_as_transformers(seeing, vision, kind, media, guesses):
    record = json.loads((vision / kind / f"{media}.json").read_text())
    before, after = record["prompt"].split("<__media__>")
    message = [{"role": "user", "content": content(vision, media, before, after)}]
    from weft.llama_speculative import LlamaPromptLookupDecoding
    model = seeing(kind, **({"draft_model": LlamaPromptLookupDecoding()} if guesses else {}))
    theirs = record["transformers"]["own_preprocessing"]["greedy"]
    for _ in range(2):  # the second time the picture and all before it is known
        answer = model.create_chat_completion(messages=message, temperature=0, max_tokens=len(theirs), logprobs=True)
        expected = [model._vocab.piece(token) for token in theirs]
        got = tokens_of(answer)
        assert got == expected[:len(got)] and (len(got) == len(expected) or model._vocab.is_end(theirs[len(got)]))
    assert answer["usage"]["prompt_tokens"] == sum(len(part["ids"]) if "ids" in part else part["n_tokens"] for part in record["sequence"])


def test_a_conversation_goes_on_behind_a_picture(seeing):
    model = seeing("gemma3")
    first = [{"role": "user", "content": [{"type": "text", "text": "What is this? "}, coded(png(40, 30, 90))]}]
    answer = model.create_chat_completion(messages=first, temperature=0, max_tokens=4)
    held = model.eval_tokens
    encoder = model.chat_handler._media
    more = [*first, {"role": "user", "content": [{"type": "text", "text": " and this? "}, coded(png(40, 30, 200))]}]
    both = model.create_chat_completion(messages=more, temperature=0, max_tokens=4, logprobs=True)
    n = answer["usage"]["prompt_tokens"]
    assert model.eval_tokens[:n] == held[:n] and both["usage"]["prompt_tokens"] > n + 4
    assert model.chat_handler._media is encoder and len(model.chat_handler._shown) == 2
    model.reset()
    alone = model.create_chat_completion(messages=more, temperature=0, max_tokens=4, logprobs=True)
    assert tokens_of(alone) == tokens_of(both)
    streamed = list(model.create_chat_completion(messages=more, temperature=0, max_tokens=4, stream=True))
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in streamed) == both["choices"][0]["message"]["content"]


def test_a_picture_counts(seeing):
    """Another picture is another prompt, and gives other probabilities."""
    model = seeing("gemma3")
    rows = []
    for grey in (0, 250):
        message = [{"role": "user", "content": [{"type": "text", "text": "What is this? "}, coded(png(40, 30, grey)), {"type": "text", "text": "?"}]}]
        model.create_chat_completion(messages=message, temperature=0, max_tokens=1)
        rows.append(model.logits.copy())
    assert np.abs(rows[0] - rows[1]).max() > 1e-3


@pytest.mark.parametrize(("part", "words"), [
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}, "no base64"),
    ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "begins with data:, http: or https:"),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "image_url"),
    ({"type": "input_audio", "input_audio": {"data": "?"}}, "no base64"),
    ({"type": "video"}, "'video'")])
def test_what_cannot_be_shown(seeing, part, words):
    model = seeing("gemma3")
    with pytest.raises((ValueError, RuntimeError), match=words):
        model.create_chat_completion(messages=[{"role": "user", "content": [part]}], max_tokens=1)
    model.create_chat_completion(messages=[{"role": "user", "content": "and now?"}], max_tokens=1)


def test_a_handler_of_another_model(own, vision):  # noqa: F811
    from weft.llama_chat_format import Llava15ChatHandler
    handler = Llava15ChatHandler(clip_model_path=str(vision / "ultravox" / "mmproj.gguf"))
    with own.Llama(str(vision / "gemma3" / "model.gguf"), chat_handler=handler, verbose=False) as model, pytest.raises((ValueError, RuntimeError)):
        model.create_chat_completion(messages=[{"role": "user", "content": [coded(png(8, 8, 0))]}], max_tokens=1)


def test_moondreams_format(own, tinypy):  # noqa: F811
    from weft import _chat
    template = _chat._named("moondream")
    with own.Llama(str(tinypy), vocab_only=True, verbose=False) as words:
        text, _ = template.encode(words._vocab, [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "1"}, {"role": "user", "content": "Two?"}])
    assert text == b"Question: One?\n\nAnswer: 1\n\nQuestion: Two?\n\nAnswer:"


def test_guesses_change_nothing(own, llm, tinypy):  # noqa: F811
    from weft.llama_speculative import LlamaPromptLookupDecoding
    with own.Llama(str(tinypy), n_ctx=512, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=10), verbose=False) as guessing:
        def both(prompt, **options):
            options = {"max_tokens": 150, "temperature": 0, **options}
            texts = [model.create_completion(prompt, **options)["choices"][0]["text"] for model in (llm, guessing)]
            assert texts[0] == texts[1]
            return texts[0]

        text = both(PROMPT)
        both(PROMPT + text[:40])  # goes back to the middle of what was evaluated
        both(PROMPT, temperature=0.8, seed=3)
        both(PROMPT, stop=["return"], echo=True)
        both("import os\n", repeat_penalty=1.2)

        guessing._sequence.speculate(True, always=True)
        both(PROMPT)
        proposed, right = guessing._sequence.guessed()
        assert 0 < right <= proposed
        state = guessing.save_state()
        assert np.array_equal(guessing.logits, llm.logits)
        both("class A:\n")
        guessing.load_state(state)
        llm.load_state(state)
        assert guessing.eval_tokens == llm.eval_tokens
        token = int(np.argmax(llm.logits))
        for model in (guessing, llm):
            model.eval([token])
        assert np.array_equal(guessing.logits, llm.logits)
        streams = [guessing.create_completion(prompt, max_tokens=20, temperature=0, stream=True) for prompt in (PROMPT, "import os\n")]
        told = ["", ""]
        for _ in range(30):
            for i, stream in enumerate(streams):
                part = next(stream, None)
                told[i] += part["choices"][0]["text"] if part else ""
        assert told == [both(prompt, max_tokens=20) for prompt in (PROMPT, "import os\n")]


def test_a_draft_model_of_another_kind(own, tinypy):  # noqa: F811
    with pytest.raises(ValueError, match="LlamaPromptLookupDecoding"):
        own.Llama(str(tinypy), draft_model=lambda ids: ids, verbose=False)


def test_logits_without_a_copy(own, tinypy):  # noqa: F811
    model = own.Llama(str(tinypy), n_ctx=64, verbose=False)
    model.eval([1, 49, 26])
    view = model.logits_view
    assert view is model.logits_view and not view.flags.writeable and not view.flags.owndata
    kept = model.logits
    assert np.array_equal(view, kept)
    model.close()
    del model
    gc.collect()
    assert np.array_equal(view, kept)  # its memory goes with the array


def test_a_tokenizer_of_transformers(own, tinypy):  # noqa: F811
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers in this Python")
    transformers = pytest.importorskip("transformers", reason="no transformers in this Python")
    from weft.llama_tokenizer import LlamaHFTokenizer
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "def": 1, "add": 2, "<s>": 3}, unk_token="<unk>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    wrapped = LlamaHFTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", unk_token="<unk>"))
    assert wrapped.detokenize([2], prev_tokens=[1]) == b" add"
    with own.Llama(str(tinypy), tokenizer=wrapped, verbose=False) as model:
        assert model.tokenize(b"def add") == [1, 2] and model.detokenize([1, 2]) == b"def add" and model.tokenizer() is wrapped
        assert model.create_completion("def add", max_tokens=2, temperature=0)["usage"]["prompt_tokens"] == 2


def test_functions_of_llama_h(own, llm, tinypy, capfd):  # noqa: F811
    own.llama_backend_init()
    ctx_params = own.llama_context_default_params()
    model = own.llama_model_load_from_file(str(tinypy).encode(), own.llama_model_default_params())
    ctx = own.llama_init_from_model(model, ctx_params)
    vocab = own.llama_model_get_vocab(model)
    tokens = (own.llama_token * ctx_params.n_ctx)()
    text = PROMPT.encode()
    n = own.llama_tokenize(vocab, text, len(text), tokens, len(tokens), True, False)
    ids = list(tokens[:n])
    assert ids == llm.tokenize(text) and own.llama_tokenize(vocab, text, len(text), tokens, 1, True, False) == -n
    buffer = (ctypes.c_char * 32)()
    pieces = [buffer[:own.llama_token_to_piece(vocab, own.llama_token(token), buffer, 32, 0, False)] for token in ids]
    assert b"".join(pieces).strip() == text.strip()
    assert own.llama_decode(ctx, own.llama_batch_get_one(tokens, n)) == 0
    llm.reset()
    llm.eval(ids)
    assert np.array_equal(own.llama_get_logits(ctx), llm.logits)
    assert own.llama_decode(ctx, own.llama_batch_get_one((own.llama_token * 1)(-5), 1)) == -1
    assert own.llama_decode(ctx, own.llama_batch_get_one(tokens, ctx_params.n_ctx)) == 1
    own.llama_memory_clear(own.llama_get_memory(ctx), True)
    assert own.llama_decode(ctx, own.llama_batch_get_one(tokens, n)) == 0 and np.array_equal(own.llama_get_logits(ctx), llm.logits)
    own.llama_free(ctx)
    own.llama_model_free(model)
    assert own.llama_model_load_from_file(b"/none", own.llama_model_default_params()) is None and "/none" in capfd.readouterr().err


def test_options_of_the_server(own, monkeypatch):  # noqa: F811
    from weft.server import command
    assert command(["--model", "m.gguf", "--n_ctx", "4096", "--chat_format", "llama-3", "--type_k", "8", "--n_gpu_layers", "35",
                    "--cache", "true", "--", "--metrics"]) == \
        ["serve", "m.gguf", "--host", "localhost", "--port", "8000", "--ctx-size", "4096", "--gpu-layers", "35", "--chat-template", "llama3",
         "--cache-type-k", "q8_0", "--metrics"]
    monkeypatch.setenv("MODEL", "of-a-variable.gguf")
    monkeypatch.setenv("PORT", "1")
    assert command([])[:6] == ["serve", "of-a-variable.gguf", "--host", "localhost", "--port", "1"]
    monkeypatch.delenv("MODEL")
    with pytest.raises(SystemExit, match="--model"):
        command([])


def test_the_server(python_env, weft, tinypy):  # noqa: F811
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**python_env, "WEFT_PROGRAM": str(weft)}
    server = subprocess.Popen([sys.executable, "-m", "weft.server", "--model", str(tinypy), "--host", "127.0.0.1", "--port", str(port), "--chat_format", "chatml"],
                              env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                assert server.poll() is None, server.stderr.read()
                time.sleep(0.1)
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", headers={"Content-Type": "application/json"},
                                         data=json.dumps({"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] <= 4
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_the_readme_itself(python_env, tinypy, vision):  # noqa: F811
    readme = os.environ.get("WEFT_LLAMA_README")
    if not readme:
        pytest.skip("WEFT_LLAMA_README names no README of llama-cpp-python")
    blocks = re.findall(r"```python\n(.*?)```", Path(readme).read_text(), re.S)
    assert len(blocks) > 10
    picture = "data:image/png;base64," + base64.b64encode(png(40, 30, 90)).decode()
    for block in blocks:
        code = re.sub(r"^import llama_cpp\b", "import weft as llama_cpp", re.sub(r"^from llama_cpp", "from weft", block, flags=re.M), flags=re.M)
        pair = vision / "gemma3"
        code = re.sub(r'"[^"]*/[^"]*mmproj[^"]*"', f'"{pair}/mmproj.gguf"', code)
        code = re.sub(r'"(\./)?(path|models)/[^"]*\.gguf"', f'"{pair / "model.gguf" if "clip_model_path" in code else tinypy}"', code)
        code = re.sub(r'"https://[^"]*\.jpg"', f'"{picture}"', code).replace("'file_path.png'", f"'{vision}/media/a.png'")
        if "from_pretrained" in code:
            continue
        if "Llama(" in code and "import" not in code:
            code = "from weft import Llama\n" + code
        run = subprocess.run([sys.executable, "-c", code], env=python_env, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, block + run.stderr
