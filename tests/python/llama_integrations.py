"""Packages that import llama_cpp themselves: python llama_integrations.py MODULE NAME MODEL prints what came, as JSON.

With the module weft they run on Weft (weft.as_llama_cpp()), as test_python.py has them; with llama_cpp on itself, which
made llama_integrations.json.
"""
import json
import sys

if sys.argv[1] == "weft":
    import weft
    weft.as_llama_cpp()

PROMPT = "def add(a, b):\n"


def langchain_llm(model):
    from langchain_community.llms import LlamaCpp
    llm = LlamaCpp(model_path=model, n_ctx=512, temperature=0.0, max_tokens=24, verbose=False)
    return {"text": llm.invoke(PROMPT), "stream": "".join(llm.stream(PROMPT)), "n": llm.get_num_tokens(PROMPT), "stopped": llm.invoke(PROMPT, stop=["module"])}


def langchain_chat(model):
    from langchain_community.chat_models import ChatLlamaCpp
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import tool

    @tool
    def weather(city: str, days: int) -> str:
        """The weather of a city."""
        return ""

    chat = ChatLlamaCpp(model_path=model, n_ctx=512, temperature=0.0, max_tokens=48, verbose=False)
    messages = [SystemMessage("You are terse."), HumanMessage("import os")]
    forced = chat.bind_tools([weather], tool_choice={"type": "function", "function": {"name": "weather"}}).invoke(messages)
    return {"text": chat.invoke(messages).content, "stream": "".join(part.content for part in chat.stream(messages)),
            "call": [call["name"] for call in forced.tool_calls + forced.invalid_tool_calls]}


def langchain_embeddings(model):
    from langchain_community.embeddings import LlamaCppEmbeddings
    vectors = LlamaCppEmbeddings(model_path=model, n_ctx=512, verbose=False)
    one = vectors.embed_query("hello")
    return {"n": len(one), "same": vectors.embed_documents(["hello", "world"])[0] == one}


def llama_index(model):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.llama_cpp import LlamaCPP
    llm = LlamaCPP(model_path=model, temperature=0.0, max_new_tokens=24, context_window=512, generate_kwargs={}, model_kwargs={"n_gpu_layers": 0}, verbose=False,
                   messages_to_prompt=lambda messages: "".join(message.content for message in messages), completion_to_prompt=lambda text: text)
    return {"text": llm.complete(PROMPT).text, "stream": "".join(part.delta for part in llm.stream_complete(PROMPT)), "chat": llm.chat([ChatMessage(role="user", content=PROMPT)]).message.content}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]](sys.argv[3])))
