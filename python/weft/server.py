"""`python -m weft.server`: `weft serve` with the options of `python -m llama_cpp.server`.

    python -m weft.server --model model.gguf --n_ctx 4096 --chat_format chatml

Each option can be a variable of its name in capitals instead (MODEL=model.gguf).  The options of `weft serve` that have no such
name stand behind `--`.
"""
import argparse
import os
import sys
from typing import List, Optional

from ._command import run

# llama_cpp.server's option, that of weft serve, what it is when it is not named
NAMED = [("host", "--host", "localhost"), ("port", "--port", "8000"), ("n_ctx", "--ctx-size", "2048"), ("n_threads", "--threads", None),
         ("n_threads_batch", "--threads-batch", None), ("n_batch", "--batch-size", None), ("n_ubatch", "--ubatch-size", None),
         ("n_gpu_layers", "--gpu-layers", None), ("model_alias", "--alias", None), ("chat_format", "--chat-template", None),
         ("chat_template_kwargs", "--chat-template-kwargs", None), ("clip_model_path", "--mmproj", None), ("lora_path", "--lora", None),
         ("rope_freq_base", "--rope-freq-base", None), ("rope_freq_scale", "--rope-freq-scale", None),
         ("yarn_orig_ctx", "--yarn-orig-ctx", None), ("seed", "--seed", None), ("last_n_tokens_size", "--repeat-last-n", None),
         ("api_key", "--api-key", None), ("ssl_keyfile", "--ssl-key-file", None), ("ssl_certfile", "--ssl-cert-file", None)]
# Those that choose between ways which Weft does not have, or chooses itself
IGNORED = ["split_mode", "main_gpu", "tensor_split", "use_mmap", "use_mlock", "rpc_servers", "mul_mat_q", "logits_all", "embedding",
           "offload_kqv", "flash_attn", "numa", "cache", "cache_type", "cache_size", "draft_model", "draft_model_num_pred_tokens", "verbose",
           "interrupt_requests", "hf_tokenizer_config_path", "hf_pretrained_model_name_or_path"]
CACHE_TYPES = [("type_k", "--cache-type-k"), ("type_v", "--cache-type-v")]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m weft.server", description=__doc__.splitlines()[0])
    found.add_argument("--model", default=os.environ.get("MODEL"), help="a GGUF file; with --hf_model_repo_id a name in it, with *")
    found.add_argument("--hf_model_repo_id", default=os.environ.get("HF_MODEL_REPO_ID"), help="a repository of Hugging Face")
    for name, option, value in NAMED:
        found.add_argument(f"--{name}", default=os.environ.get(name.upper(), value), help=f"weft serve {option}")
    for name, option in CACHE_TYPES:
        found.add_argument(f"--{name}", type=int, default=os.environ.get(name.upper()), help=f"weft serve {option}; a number of ggml's types")
    found.add_argument("--kv_overrides", nargs="*", default=[], help="weft serve --override-kv")
    for name in IGNORED:
        found.add_argument(f"--{name}", nargs="*", default=None, help="accepted, and changes nothing")
    found.add_argument("rest", nargs="*", help="behind --: options of weft serve")
    return found


def command(arguments: List[str]) -> List[str]:
    """What `weft` is called with."""
    args = parser().parse_args(arguments)
    given = vars(args)
    if not args.model:
        raise SystemExit("python -m weft.server: --model names a GGUF file")
    model = args.model
    if args.hf_model_repo_id:
        from .llama import fetched
        model = fetched(args.hf_model_repo_id, args.model)
    made = ["serve", model]
    for name, option, _ in NAMED:
        value = given[name]
        if name == "chat_format" and value is not None:
            value = _template(value)
        if value is not None:
            made += [option, value]
    for name, option in CACHE_TYPES:
        if given[name] is not None:
            from .llama import _kv_type
            made += [option, _kv_type(int(given[name]))]
    for override in args.kv_overrides:
        made += ["--override-kv", override]
    return made + args.rest


def _template(name: str) -> Optional[str]:
    """The name that Weft has for a chat format, or its text."""
    from ._chat import FORMATS, OF_FILE, TEXTS
    return None if name in OF_FILE else TEXTS.get(name, FORMATS.get(name, name))


def main() -> None:
    run(command(sys.argv[1:]))


if __name__ == "__main__":
    main()
