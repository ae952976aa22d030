"""Calls that llama-cpp-python documents, as programs that know a module by its name only: `llama_cpp`, or `weft`.

    python llama_programs.py MODULE MODEL      prints what came, as JSON

test_python.py runs them with `weft` and compares the answers with llama_cpp_python.json, which this wrote with `llama_cpp`
(version 0.3.36) on models/tinypy.gguf.  Draws are greedy: the two have random numbers of their own.  What is drawn at
random in each answer (ids, times) is left out.
"""
import importlib
import json
import pickle
import sys

PROMPT = "def add(a, b):\n"
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}}}]
CHAT = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "import os"}]


def stripped(answer):
    return {key: value for key, value in answer.items() if key not in ("id", "created", "model")}


def completion(module, llm):
    return stripped(llm(PROMPT, max_tokens=24, temperature=0))


def completion_of_ids(module, llm):
    return stripped(llm.create_completion(llm.tokenize(PROMPT.encode()), max_tokens=12, temperature=0))


def echo_and_stop(module, llm):
    return stripped(llm.create_completion(PROMPT, max_tokens=40, temperature=0, echo=True, stop=["\n\n", "package"]))


def a_stop_over_tokens(module, llm):
    return stripped(llm.create_completion(PROMPT, max_tokens=40, temperature=0, stop=["ule is a mod"]))


def stream(module, llm):
    parts = list(llm.create_completion(PROMPT, max_tokens=24, temperature=0, stream=True))
    return {"text": "".join(part["choices"][0]["text"] for part in parts), "last": stripped(parts[-1]), "keys": sorted(parts[0])}


def repeated(module, llm):
    return stripped(llm.create_completion(PROMPT, max_tokens=24, temperature=0, repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.1))


def biased(module, llm):
    token = llm.tokenize(b"return", add_bos=False)[-1]
    return stripped(llm.create_completion(PROMPT, max_tokens=6, temperature=0, logit_bias={token: 50.0}))


def by_grammar(module, llm):
    grammar = module.LlamaGrammar.from_string('root ::= "yes" | "no" | [0-9] [0-9]', verbose=False)
    return stripped(llm.create_completion("Is it? ", max_tokens=8, temperature=0, grammar=grammar))


def processor(module, llm):
    banned = set(llm.tokenize(b"\n", add_bos=False))

    def ban(ids, scores):
        for token in banned:
            scores[token] = -float("inf")
        return scores

    return stripped(llm.create_completion(PROMPT, max_tokens=16, temperature=0, logits_processor=module.LogitsProcessorList([ban])))


def stopping(module, llm):
    seen = []

    def enough(ids, logits):
        seen.append(len(ids))
        return len(seen) > 5

    answer = llm.create_completion(PROMPT, max_tokens=16, temperature=0, stopping_criteria=module.StoppingCriteriaList([enough]))
    return answer["choices"][0]["text"]


def chat(module, llm):
    return stripped(llm.create_chat_completion(CHAT, max_tokens=16, temperature=0))


def chat_stream(module, llm):
    parts = list(llm.create_chat_completion(CHAT, max_tokens=16, temperature=0, stream=True))
    deltas = [part["choices"][0]["delta"] for part in parts]
    return {"first": deltas[0], "text": "".join(delta.get("content", "") for delta in deltas[1:]), "last": stripped(parts[-1])}


def chat_schema(module, llm):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    answer = llm.create_chat_completion(CHAT, max_tokens=64, temperature=0, response_format={"type": "json_object", "schema": schema})
    return sorted(json.loads(answer["choices"][0]["message"]["content"]))


def chat_function(module, llm):
    answer = llm.create_chat_completion(CHAT, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}}, max_tokens=64, temperature=0)
    message = answer["choices"][0]["message"]
    call = message["tool_calls"][0]
    return {"role": message["role"], "content": message["content"], "type": call["type"], "name": call["function"]["name"], "arguments": sorted(json.loads(call["function"]["arguments"]))}


def tokens(module, llm):
    texts = ["", "def add", " two  spaces\n", "h\u00e9llo \u2603", "<s>x</s>"]
    ids = [[llm.tokenize(text.encode(), add_bos=bos, special=special) for bos in (True, False) for special in (True, False)] for text in texts]
    return {"ids": ids, "back": [llm.detokenize(row[0]).decode("utf-8", "replace") for row in ids], "bos": llm.token_bos(), "eos": llm.token_eos(), "nl": llm.token_nl(),
            "n_vocab": llm.n_vocab(), "n_ctx": llm.n_ctx(), "n_embd": llm.n_embd()}


def generated(module, llm):
    found = []
    for token in llm.generate(llm.tokenize(PROMPT.encode()), temp=0):
        found.append(token)
        if len(found) == 10:
            return found


def evaluated(module, llm):
    llm.reset()
    llm.eval(llm.tokenize(PROMPT.encode()))
    first = llm.sample(temp=0)
    llm.eval([first])
    return [first, llm.sample(temp=0), llm.n_tokens]


def state(module, llm):
    before = llm(PROMPT, max_tokens=8, temperature=0)["choices"][0]["text"]
    saved = llm.save_state()
    llm("something else", max_tokens=4, temperature=0)
    llm.load_state(saved)
    n = llm.n_tokens
    after = llm(PROMPT + before, max_tokens=8, temperature=0)["choices"][0]["text"]
    llm.load_state(pickle.loads(pickle.dumps(saved)))
    return [before, n, after, llm.n_tokens]


def metadata(module, llm):
    return {key: value for key, value in llm.metadata.items() if key.startswith(("general.", "llama."))}


def too_long(module, llm):
    try:
        llm("x " * 900, max_tokens=4)
    except ValueError as e:
        return str(e)


def logprobs(module, llm):
    return stripped(llm.create_completion(PROMPT, max_tokens=6, temperature=0, logprobs=3))


def echoed_logprobs(module, llm):
    return stripped(llm.create_completion(PROMPT, max_tokens=2, temperature=0, logprobs=1, echo=True))


def chat_logprobs(module, llm):
    return stripped(llm.create_chat_completion(CHAT, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2))


def embedding(module, llm):
    answer = llm.create_embedding(["hello", "world"])
    return {**stripped(answer), "data": [{**row, "embedding": None} for row in answer["data"]], "vectors": [row["embedding"] for row in answer["data"]]}


def embedding_normalised(module, llm):
    return llm.embed("hello", normalize=True)


PROGRAMS = [
    ({}, [completion, completion_of_ids, echo_and_stop, a_stop_over_tokens, stream, repeated, biased, by_grammar, processor, stopping, tokens, generated, evaluated, state, metadata, too_long]),
    ({"chat_format": "chatml"}, [chat, chat_stream, chat_schema]),
    ({"chat_format": "chatml-function-calling"}, [chat_function]),
    ({"logits_all": True}, [logprobs, echoed_logprobs]),
    ({"logits_all": True, "chat_format": "chatml"}, [chat_logprobs]),
    ({"embedding": True, "pooling_type": 1}, [embedding, embedding_normalised]),
]


def run(name, model):
    module, found = importlib.import_module(name), {}
    for options, programs in PROGRAMS:
        llm = module.Llama(model_path=model, n_ctx=512, verbose=False, **options)
        for program in programs:
            found[program.__name__] = program(module, llm)
        llm.close()
    return found


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:]), indent=1, default=float))
