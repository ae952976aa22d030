"""What clients of today do with a server, one function a client: outside.py CLIENT URL prints what came as one line of JSON.

test_outside.py runs each in the Python environment of tests/python/clients.txt and holds what came against what the model of that
file says.  The functions use the packages as their documentation shows and hide nothing: what a client raises is the test's error.
"""
import asyncio
import base64
import json
import struct
import sys
import zlib
from typing import Literal

from pydantic import BaseModel

SYSTEM = "You are terse."


class City(BaseModel):
    """A schema with one valid answer: the server has to force it, because the model says something else."""
    name: Literal["Paris"]
    country: Literal["France"]


def add(a: int, b: int) -> str:
    """Adds two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return f"{a + b} and on to {6 if a == 1 else 7}"


TOOL = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}


def three_turns(complete):
    """A conversation of OpenAI's shape in which the model calls a tool twice; complete(messages) is the client's call."""
    messages, called = [{"role": "user", "content": "What is the sum? 5"}], []
    for _ in range(3):
        message = complete(messages)
        calls = message.tool_calls or []
        if not calls:
            return {"text": message.content, "called": called, "ids": len({id for _, _, id in called})}
        messages.append(message.model_dump(exclude_none=True))
        for call in calls:
            arguments = json.loads(call.function.arguments)
            called.append([call.function.name, arguments, call.id])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": add(**arguments)})
    return {"called": called}


def openai_(url):
    import openai
    ai = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    chat = ai.chat.completions

    def ask(text, **more):
        return chat.create(model="told", messages=[{"role": "user", "content": text}], **more).choices[0].message

    with chat.stream(model="told", messages=[{"role": "user", "content": "say 1"}]) as stream:
        streamed = "".join(e.delta for e in stream if e.type == "content.delta")
    reasoned = ask("think 3")
    return {
        "chat": ask("say 1").content,
        "stream": streamed,
        "structured": chat.parse(model="told", messages=[{"role": "user", "content": "say 1"}], response_format=City)
                          .choices[0].message.parsed.model_dump(),
        "turns": three_turns(lambda messages: chat.create(model="told", messages=messages, tools=[TOOL]).choices[0].message),
        "parallel": [json.loads(c.function.arguments) for c in ask("call 4", tools=[TOOL]).tool_calls],
        "required": ask("say 1", tools=[TOOL], tool_choice="required", max_tokens=60).tool_calls[0].function.name,
        "reasoning": [reasoned.model_dump().get("reasoning_content"), reasoned.content],
        "responses": ai.responses.create(model="told", input="say 1").output_text,
        "embedding": len(ai.embeddings.create(model="told", input=["one", "two"]).data[1].embedding),
    }


def anthropic_(url):
    import anthropic
    ai = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    tool = {"name": "add", "description": "adds", "input_schema": TOOL["function"]["parameters"]}

    def ask(messages, **more):
        return ai.messages.create(model="told", max_tokens=100, messages=messages, **more)

    with ai.messages.stream(model="told", max_tokens=50, messages=[{"role": "user", "content": "say 1"}]) as stream:
        streamed = "".join(stream.text_stream)
    messages, called = [{"role": "user", "content": "What is the sum? 5"}], []
    for _ in range(3):
        answer = ask(messages, tools=[tool])
        uses = [b for b in answer.content if b.type == "tool_use"]
        if not uses:
            break
        messages.append({"role": "assistant", "content": answer.content})
        called += [[u.name, u.input, u.id] for u in uses]
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": u.id, "content": add(**u.input)} for u in uses]})
    thought = ask([{"role": "user", "content": "think 3"}])
    return {
        "chat": ask([{"role": "user", "content": "say 1"}]).content[0].text,
        "stream": streamed,
        "turns": {"text": answer.content[-1].text, "called": called, "ids": len({id for _, _, id in called})},
        "parallel": [b.input for b in ask([{"role": "user", "content": "call 4"}], tools=[tool]).content if b.type == "tool_use"],
        "required": [b.name for b in ask([{"role": "user", "content": "say 1"}], tools=[tool], tool_choice={"type": "any"}).content
                     if b.type == "tool_use"][0],
        "reasoning": [thought.content[0].thinking, thought.content[-1].text],
    }


def ollama_(url):
    import ollama
    ai = ollama.Client(host=url)

    def ask(messages, **more):
        return ai.chat(model="told", messages=messages, **more).message

    messages, called = [{"role": "user", "content": "What is the sum? 5"}], []
    for _ in range(3):
        message = ask(messages, tools=[add])
        if not message.tool_calls:
            break
        messages.append(message)
        for call in message.tool_calls:
            called.append([call.function.name, dict(call.function.arguments), str(len(called))])
            messages.append({"role": "tool", "tool_name": call.function.name, "content": add(**call.function.arguments)})
    thought = ask([{"role": "user", "content": "think 3"}], think=True)
    return {
        "chat": ask([{"role": "user", "content": "say 1"}]).content,
        "stream": "".join(p.message.content for p in ai.chat(model="told", messages=[{"role": "user", "content": "say 1"}], stream=True)),
        "turns": {"text": message.content, "called": called, "ids": len(called)},
        "parallel": [dict(c.function.arguments) for c in ask([{"role": "user", "content": "call 4"}], tools=[add]).tool_calls],
        "structured": json.loads(ask([{"role": "user", "content": "say 1"}], format=City.model_json_schema()).content),
        "reasoning": [thought.thinking, thought.content],
        "embedding": len(ai.embed(model="told", input="one").embeddings[0]),
        "list": [m.model for m in ai.list().models],
        "show": ai.show("told").capabilities,
    }


def png(width, height):
    """A grey picture."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * width) * height)) + chunk(b"IEND", b"")


def litellm_pictures(litellm, url):
    """In OpenAI's form, which litellm turns into that of the server that it believes to speak with."""
    picture = "data:image/png;base64," + base64.b64encode(png(60, 40)).decode()
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "say 1"}]}]
    came = {}
    for way, at in {"openai/told": url + "/v1", "anthropic/told": url, "ollama_chat/told": url}.items():
        answer = litellm.completion(model=way, api_base=at, api_key="none", num_retries=0, max_tokens=50, messages=messages)
        came[way] = [answer.choices[0].message.content, answer.usage.prompt_tokens]
    return came


def litellm_(url):
    import litellm
    litellm.suppress_debug_info = True
    at = {"model": "openai/told", "api_base": url + "/v1", "api_key": "none", "num_retries": 0}

    def ask(messages, **more):
        return litellm.completion(messages=messages, **at, **more).choices[0].message

    def user(text):
        return [{"role": "user", "content": text}]

    reasoned = ask(user("think 3"))
    pieces = litellm.completion(messages=user("say 1"), stream=True, **at)
    ranked = litellm.rerank(model="hosted_vllm/ranks", query="one", documents=["one", "two", "three"], api_base=url, api_key="none", top_n=2)
    return {
        "chat": ask(user("say 1")).content,
        "stream": "".join(p.choices[0].delta.content or "" for p in pieces),
        "turns": three_turns(lambda messages: ask(messages, tools=[TOOL])),
        "parallel": [json.loads(c.function.arguments) for c in ask(user("call 4"), tools=[TOOL]).tool_calls],
        "required": ask(user("say 1"), tools=[TOOL], tool_choice="required", max_tokens=60).tool_calls[0].function.name,
        "structured": json.loads(ask(user("say 1"), response_format=City).content),
        "reasoning": [reasoned.reasoning_content, reasoned.content],
        "embedding": len(litellm.embedding(input=["one"], encoding_format="float", **at).data[0]["embedding"]),
        "rerank": len(ranked.results),
        "pictures": litellm_pictures(litellm, url),
        "anthropic": asyncio.run(litellm.anthropic.messages.acreate(
            model="anthropic/told", api_base=url, api_key="none", max_tokens=50, messages=user("say 1")))["content"][0]["text"],
        "ollama": litellm.completion(model="ollama_chat/told", api_base=url, messages=user("say 1")).choices[0].message.content,
    }


def langchain_(url):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    ai = ChatOpenAI(base_url=url + "/v1", api_key="none", model="told", max_retries=0)
    adder = tool(add)

    def talk(model):
        messages, called = [HumanMessage("What is the sum? 5")], []
        for _ in range(3):
            answer = model.invoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                break
            for call in answer.tool_calls:
                called.append([call["name"], call["args"], call["id"]])
                messages.append(ToolMessage(adder.invoke(call["args"]), tool_call_id=call["id"]))
        return {"text": answer.content, "called": called, "ids": len({id for _, _, id in called})}

    streamed = None
    for piece in ai.bind_tools([adder]).stream("call 4"):
        streamed = piece if streamed is None else streamed + piece
    embedder = OpenAIEmbeddings(base_url=url + "/v1", api_key="none", model="told", check_embedding_ctx_length=False)
    return {
        "chat": ai.invoke("say 1").content,
        "stream": "".join(p.content for p in ai.stream("say 1")),
        "turns": talk(ai.bind_tools([adder])),
        "parallel": [c["args"] for c in streamed.tool_calls],
        "required": ai.bind_tools([adder], tool_choice="required").bind(max_tokens=60).invoke("say 1").tool_calls[0]["name"],
        "structured": ai.with_structured_output(City).invoke("say 1").model_dump(),
        "by_tool": ai.with_structured_output(City, method="function_calling").invoke("say 1").model_dump(),
        "embedding": len(embedder.embed_query("one")),
    }


def langchain_ollama_(url):
    from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
    ai = ChatOllama(base_url=url, model="told")
    return {
        "chat": ai.invoke("say 1").content,
        "stream": "".join(p.content for p in ai.stream("say 1")),
        "parallel": [c["args"] for c in ai.bind_tools([add]).invoke("call 4").tool_calls],
        "structured": ai.with_structured_output(City).invoke("say 1").model_dump(),
        "complete": OllamaLLM(base_url=url, model="told").invoke("say 1"),
        "embedding": len(OllamaEmbeddings(base_url=url, model="told").embed_query("one")),
    }


def agents_(url):
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel
    from openai import AsyncOpenAI
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    tool = function_tool(add)

    async def by(model):
        plain = Agent(name="plain", instructions=SYSTEM, model=model)
        calls = Agent(name="calls", instructions=SYSTEM, model=model, tools=[tool])
        typed = Agent(name="typed", instructions=SYSTEM, model=model, output_type=City)
        run = Runner.run_streamed(plain, "say 1")
        pieces = [e.data.delta async for e in run.stream_events()
                  if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"]
        turns = await Runner.run(calls, "What is the sum? 5")
        called = [[i.raw_item.name, json.loads(i.raw_item.arguments), i.raw_item.call_id] for i in turns.new_items if i.type == "tool_call_item"]
        return {
            "chat": (await Runner.run(plain, "say 1")).final_output,
            "stream": "".join(pieces),
            "structured": (await Runner.run(typed, "say 1")).final_output.model_dump(),
            "turns": {"text": turns.final_output, "called": called, "ids": len({id for _, _, id in called})},
        }

    async def both():
        return {"by_chat": await by(OpenAIChatCompletionsModel(model="told", openai_client=client)),
                "by_responses": await by(OpenAIResponsesModel(model="told", openai_client=client))}

    return asyncio.run(both())


def instructor_(url):
    import instructor
    import openai
    came = {}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA):
        ai = instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0), mode=mode)
        city = ai.chat.completions.create(model="told", response_model=City, max_retries=1, max_tokens=100,
                                          messages=[{"role": "user", "content": "which one 9" if mode == instructor.Mode.JSON else "say 1"}])
        came[mode.value] = city.model_dump()
    return came


def pydantic_ai_(url):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=url + "/v1", api_key="none")
    from anthropic import AsyncAnthropic
    models = {"by_chat": OpenAIChatModel("told", provider=provider), "by_responses": OpenAIResponsesModel("told", provider=provider),
              "by_messages": AnthropicModel("told", provider=AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=url, api_key="none")))}

    async def by(name, model):
        calls = Agent(model, tools=[add])
        turns = await calls.run("What is the sum? 5")
        called = [[p.tool_name, p.args_as_dict(), p.tool_call_id] for m in turns.all_messages() for p in m.parts if p.part_kind == "tool-call"]
        async with Agent(model).run_stream("say 1") as run:
            streamed = [piece async for piece in run.stream_text(delta=True)]
        came = {
            "chat": (await Agent(model, instructions=SYSTEM).run("say 1")).output,
            "stream": "".join(streamed),
            "turns": {"text": turns.output, "called": called, "ids": len({id for _, _, id in called})},
            "by_tool": (await Agent(model, output_type=City).run("say 1")).output.model_dump(),
        }
        if name != "by_messages":
            came["structured"] = (await Agent(model, output_type=NativeOutput(City)).run("say 1")).output.model_dump()
        return came

    async def each():
        return {name: await by(name, model) for name, model in models.items()}

    return asyncio.run(each())


def llama_index_(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike
    ai = OpenAILike(model="told", api_base=url + "/v1", api_key="none", is_chat_model=True, is_function_calling_model=True, context_window=2048,
                    max_retries=0, should_use_structured_outputs=True)
    tool = FunctionTool.from_defaults(add)
    embedder = OpenAILikeEmbedding(model_name="told", api_base=url + "/v1", api_key="none")
    answer = ai.predict_and_call([tool], "call 5")
    parallel = ai.chat_with_tools([tool], user_msg="call 4", allow_parallel_tool_calls=True)
    return {
        "chat": ai.chat([ChatMessage(role="user", content="say 1")]).message.content,
        "stream": "".join(p.delta or "" for p in ai.stream_chat([ChatMessage(role="user", content="say 1")])),
        "parallel": [c.tool_kwargs for c in ai.get_tool_calls_from_response(parallel)],
        "called": answer.response,
        "structured": ai.as_structured_llm(City).complete("say 1").raw.model_dump(),
        "embedding": len(embedder.get_text_embedding("one")),
    }


def smolagents_(url):
    from smolagents import OpenAIServerModel, ToolCallingAgent
    ai = OpenAIServerModel(model_id="told", api_base=url + "/v1", api_key="none")
    agent = ToolCallingAgent(tools=[], model=ai, max_steps=4, verbosity_level=0)
    return {"chat": ai([{"role": "user", "content": [{"type": "text", "text": "say 1"}]}]).content, "agent": agent.run("What is ten and one?")}


def llm_(url):
    import llm
    from llm.default_plugins.openai_models import Chat
    ai = Chat(model_id="told", model_name="told", api_base=url + "/v1", supports_tools=True, supports_schema=True)
    ai.key = "none"
    chain = ai.chain("What is the sum? 5", tools=[add])
    return {
        "chat": ai.prompt("say 1", stream=False).text(),
        "stream": "".join(ai.prompt("say 1")),
        "structured": json.loads(ai.prompt("say 1", schema=City, stream=False).text()),
        "turns": {"text": "".join(chain)},
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1] + "_"](sys.argv[2])))
