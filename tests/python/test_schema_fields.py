"""JSON schemas as pydantic and zod write them: what is generated under their grammars, pydantic's own validators accept.

The fields are those of pydantic's documentation of types, network types and extra constraints. Some validators demand more than the schema that they
come with says; those are named in BEYOND, and only their schemas are tried. zod's schemas are what its 4.4 writes (z.toJSONSchema), one of each kind.
"""
import collections
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import pathlib
import random
import re
import typing
import uuid
from typing import Annotated, Any, Literal, Optional, Union

import pytest
import typing_extensions
from test_grammar import tool  # noqa: F401 (a fixture)
from test_serve_clients import TEMPLATE
from serving import Server

THREADS = 1

pydantic = pytest.importorskip("pydantic")
from pydantic import Field  # noqa: E402

jsonschema = pytest.importorskip("jsonschema")


class Colour(enum.Enum):
    red = "red"
    blue = 3


class Address(pydantic.BaseModel):
    street: str = Field(min_length=1, max_length=40)
    number: Optional[int] = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=0, le=9)


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str = Field(max_length=10)


class Tree(pydantic.BaseModel):
    value: bool
    children: list["Tree"] = Field(max_length=2)


class Pair(typing.NamedTuple):
    a: int
    b: Optional[bool] = None


class Movie(typing_extensions.TypedDict):
    title: Annotated[str, Field(max_length=12)]
    year: typing.NotRequired[int]


Short = Annotated[str, Field(max_length=12)]
FIELDS = {
    "bool": bool, "int": int, "float": float, "str": Short, "none": None, "any": Any, "strict int": pydantic.StrictInt,
    "datetime": datetime.datetime, "date": datetime.date, "time": datetime.time, "timedelta": datetime.timedelta, "aware datetime": pydantic.AwareDatetime,
    "enum": Colour, "literal": Literal["a", 1, None], "optional": Optional[int], "union": Union[int, Short], "tagged union": Annotated[Union[Cat, Dog], Field(discriminator="kind")],
    "list": list[int], "list of at most 50,000": Annotated[list[bool], Field(max_length=50000)], "tuple": tuple[int, Short], "tuple of any length": tuple[int, ...], "set": set[int],
    "frozenset": frozenset[bool], "deque": collections.deque[int], "dict": dict[Short, int], "dict of ints": dict[Literal["a", "b"], int], "counter": typing.Counter[Short],
    "named tuple": Pair, "typed dict": Movie, "model": Address, "recursive model": Tree, "dict of models": dict[Short, Address], "sequence": typing.Sequence[int],
    "bytes": bytes, "base64": pydantic.Base64Bytes, "base64url": pydantic.Base64UrlBytes, "json": pydantic.Json, "secret": pydantic.SecretStr,
    "uuid": uuid.UUID, "uuid1": pydantic.UUID1, "uuid3": pydantic.UUID3, "uuid4": pydantic.UUID4, "uuid5": pydantic.UUID5, "uuid7": pydantic.UUID7,
    "path": pathlib.Path, "pattern": re.Pattern, "fraction": fractions.Fraction,
    "ipv4": ipaddress.IPv4Address, "ipv6": ipaddress.IPv6Address, "ipv4 network": ipaddress.IPv4Network, "ipv6 network": ipaddress.IPv6Network,
    "ipv4 interface": ipaddress.IPv4Interface, "ipv6 interface": ipaddress.IPv6Interface,
    "any ip": pydantic.IPvAnyAddress, "any network": pydantic.IPvAnyNetwork, "any interface": pydantic.IPvAnyInterface, "any url": pydantic.AnyUrl,
    "bounded int": Annotated[int, Field(gt=3, le=1000)], "multiple": Annotated[int, Field(multiple_of=7, ge=0)], "multiple of a decimal": Annotated[float, Field(multiple_of=0.25, ge=-4, lt=9.5)],
    "bounded float": Annotated[float, Field(gt=0.5, lt=2.25)], "pattern of a string": Annotated[str, Field(pattern=r"^[A-Z]{2}\d{3,5}$")],
    "pattern and length": Annotated[str, Field(pattern=r"^[a-z]+(-[a-z]+)*$", min_length=20, max_length=400)], "positive": pydantic.PositiveInt, "non-negative float": pydantic.NonNegativeFloat,
    "finite": pydantic.FiniteFloat,
}
# What their validators demand beside what the schema says; a value that they take.
BEYOND = {
    "decimal": (decimal.Decimal, "1.5", "any text"), "decimal with digits": (Annotated[decimal.Decimal, Field(max_digits=5, decimal_places=2)], "1.25", "any text"),
    "http url": (pydantic.HttpUrl, "https://example.org/a?b=c", "a scheme"), "dsn": (pydantic.PostgresDsn, "postgres://user:pass@a.b:5432/x", "a scheme"),
    "past date": (pydantic.PastDate, "2001-02-03", "the day"), "future datetime": (pydantic.FutureDatetime, "2999-01-01T00:00:00Z", "the day"),
    "naive datetime": (pydantic.NaiveDatetime, None, "no offset"), "complex": (complex, "1+2j", "any text"), "import": (pydantic.ImportString, "math.cos", "any text"),
    "base64 text": (pydantic.Base64Str, "aGk=", "UTF-8"), "byte size": (pydantic.ByteSize, "10 MB", "a unit"), "file": (pydantic.FilePath, "/", "that it is there"), "short bytes": (Annotated[bytes, Field(max_length=3)], "abc", "bytes, not characters"),
    "email": (Annotated[str, pydantic.WithJsonSchema({"type": "string", "format": "email"})], "a.b@example.org", "a package"),
    "name and email": (Annotated[str, pydantic.WithJsonSchema({"type": "string", "format": "name-email"})], "A B <a.b@example.org>", "a package"),
}


def model_of(fields):
    return pydantic.create_model("Answer", **{f"f{i}": (type_, ...) for i, type_ in enumerate(fields)})


@pytest.mark.parametrize("name", FIELDS)
def test_pydantic_accepts_what_is_generated(tool, name):
    model, done = model_of([FIELDS[name]]), 0
    schema = model.model_json_schema()
    answer = tool.schema(schema)
    assert answer == "ok" or (answer.startswith("ok, but") and name in ("set", "frozenset")), (schema, answer)       # uniqueItems
    for seed in range(16):
        text = tool.walk(seed, 300)
        if text is not None:
            model.model_validate_json(text)
            done += 1
    assert done, schema


@pytest.mark.parametrize("name", BEYOND)
def test_pydantic_schemas_that_say_less_than_their_validators(tool, name):
    type_, value, _ = BEYOND[name]
    schema = model_of([type_]).model_json_schema()
    assert tool.strict(schema) == "ok", schema
    if value is not None:
        assert tool.text(json.dumps({"f0": value})) == "yes", (schema, value)
    for seed in range(4):
        text = tool.walk(seed, 300)
        assert text is None or jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), (schema, text)


def test_a_pattern_and_a_length_are_counted(tool):
    """HttpUrl allows 2083 characters: one more is none of its texts, and all positions share their states."""
    assert tool.strict(model_of([pydantic.HttpUrl]).model_json_schema()) == "ok"
    url = "https://example.org/"
    for n, answer in ((2083, "yes"), (2084, "no")):
        assert tool.text(json.dumps({"f0": url + "x" * (n - len(url))})) == answer
    states = int(re.search(rb"(\d+) states", tool.ask(b"time\n").encode())[1])
    assert states < 20000, states


# ---- through the server -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(weft, weft_env, tinypy, tmp_path_factory):
    template = tmp_path_factory.mktemp("template") / "calls.jinja"
    template.write_text(TEMPLATE)
    with Server(weft, weft_env, tinypy, "-c", 4096, "--chat-template-file", template) as s:
        yield s


def answered(server, model, seed, forced):
    """the text of an answer of this model's schema: as the content, or as the arguments of a call that has to be"""
    schema = model.model_json_schema()
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3000, "seed": seed, "temperature": 1.3,
            "logit_bias": [['"', 12], ["]", 5], ["}", 2], ["\n", -100]]}
    if forced:
        body |= {"tools": [{"type": "function", "function": {"name": "take", "description": "it", "parameters": schema}}], "tool_choice": "required"}
    else:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    status, got = server.ask("/v1/chat/completions", body)
    assert status == 200, got
    message = got["choices"][0]["message"]
    return message["tool_calls"][0]["function"]["arguments"] if forced else message["content"]


@pytest.mark.parametrize("forced", [False, True], ids=["response_format", "forced call"])
def test_all_fields_through_the_server(server, forced):
    names = list(FIELDS)
    random.Random(1).shuffle(names)
    for i in range(0, len(names), 6):
        model = model_of([FIELDS[name] for name in names[i:i + 6]])
        text = answered(server, model, i % 4, forced)
        model.model_validate_json(text)


def test_what_is_not_enforced_is_told(server):
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2, "uniqueItems": True},
                                               "b": {"type": "string", "format": "ü\r\nodd", "maxLength": 3}}, "required": ["a", "b"]}
    messages = [{"role": "user", "content": "x"}]
    form = lambda **more: {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}
    for body in ({"response_format": form()}, {"response_format": form(), "stream": True},
                 {"tools": [{"type": "function", "function": {"name": "f", "description": "it", "parameters": schema}}], "tool_choice": "required"}):
        status, got = server.ask("/v1/chat/completions", {"messages": messages, "max_tokens": 300, **body})
        note = server.headers["Weft-Schema-Note"]
        assert status == 200 and "schema at #/properties/a, uniqueItems: is not enforced" in note and "schema at #/properties/b, format" in note, (note, got)
    status, got = server.ask("/v1/chat/completions", {"messages": messages, "response_format": form(strict=True)})
    assert status == 400 and "schema at #/properties/a, uniqueItems" in got["error"]["message"], got
    del schema["properties"]["a"]["uniqueItems"]                    # an unknown format is an annotation: strict takes it
    status, got = server.ask("/v1/chat/completions", {"messages": messages, "response_format": form(strict=True), "max_tokens": 300})
    assert status == 200 and "format" in server.headers["Weft-Schema-Note"], got


def test_many_tools_take_little(server):
    """A call that has to be, with 4,000 tools: one grammar for all of their names, and no schema but that of the one that is chosen. (It was 200 KB each.)"""
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "format": "email"} for i in range(8)}}
    tools = [{"type": "function", "function": {"name": f"tool_{i}", "description": "", "parameters": schema}} for i in range(4000)]
    memory = lambda: int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])
    server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
    before = memory()
    status, got = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": tools, "tool_choice": "required", "max_tokens": 20})
    assert status == 400 and "the context holds 4096" in got["error"]["message"], got
    assert memory() - before < 200_000, (before, memory())          # kB: the JSON and the text of the tools


# ---- zod ----------------------------------------------------------------------------------------------------------------

TIME = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
DAY = (r"(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|"
       r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))")
OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])"


def text(format_, pattern=None, **more):
    return {"type": "string", "format": format_, **({"pattern": pattern} if pattern else {}), **more}


def closed(**members):
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


# name of the type: schema, words of the note that it comes with
ZOD = {
    "email": (text("email", r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"), ""),
    "iso.datetime": (text("date-time", rf"^{DAY}T(?:{TIME}(?:Z))$"), ""), "iso.date": (text("date", f"^{DAY}$"), ""),
    "iso.time": (text("time", f"^{TIME}$"), "the pattern allows no 'time'"),
    "iso.duration": (text("duration", r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$"), ""),
    "ipv4": (text("ipv4", rf"^(?:{OCTET}\.){{3}}{OCTET}$"), ""),
    "uuid": (text("uuid", "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"), ""),
    "url": (text("uri"), ""), "base64": (text("base64", r"^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$", contentEncoding="base64"), ""),
    "cuid": (text("cuid", "^[cC][0-9a-z]{6,}$"), ""), "nanoid": (text("nanoid", "^[a-zA-Z0-9_-]{21}$"), ""), "ulid": (text("ulid", "^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"), ""),
    "emoji": (text("emoji", r"^(\p{Extended_Pictographic}|\p{Emoji_Component})+$"), "the property 'Extended_Pictographic' is not known"),
    "mac": (text("mac", "^(?:[0-9A-F]{2}:){5}[0-9A-F]{2}$|^(?:[0-9a-f]{2}:){5}[0-9a-f]{2}$"), ""), "e164": (text("e164", r"^\+[1-9]\d{6,14}$"), ""),
    "int": ({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}, ""), "float32": ({"type": "number", "minimum": -3.4028234663852886e+38, "maximum": 3.4028234663852886e+38}, ""),
    "never": (closed(a={"type": "null"}) | {"properties": {"a": {"type": "null"}, "b": {"not": {}}}}, ""),
    "startsWith, includes, endsWith": ({"type": "string", "allOf": [{"pattern": "^hello.*"}, {"pattern": "cruel"}, {"pattern": "^.{10}dark"}, {"pattern": ".*world$"}]}, ""),
    "template": ({"type": "string", "pattern": r"^https:\/\/(?:www\.)?-?\d+(?:\.\d+)?\.com$"}, ""), "record": ({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "boolean"}}, ""),
    "tuple": ({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": {"type": "null"}}, ""), "nullable of OpenAPI": ({"type": "boolean", "nullable": True}, ""),
    "tuple of draft 7": ({"type": "array", "items": [{"type": "null"}], "additionalItems": {"type": "boolean"}}, ""), "set of draft 7": ({"type": "array", "uniqueItems": True, "items": {"type": "string"}}, "uniqueItems: is not enforced"),
    "map of draft 7": ({"type": "array", "maxItems": 125, "items": {"type": "array", "items": [{"type": "boolean"}, {"type": "null"}], "minItems": 2, "maxItems": 2}}, ""),
    "discriminatedUnion": ({"oneOf": [closed(type={"type": "string", "const": "a"}, x={"type": "null"}), closed(type={"type": "string", "const": "b"}, y={"type": "null"})]}, ""),
    "intersection": ({"allOf": [closed(a={"type": "null"}), closed(b={"type": "boolean"})]}, "each allows the required members of the others"),
    "intersection of draft 7": ({"allOf": [{**closed(a={"type": "null"}), "additionalProperties": True}, {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]}], "unevaluatedProperties": False}, ""),
    "recursive": ({"$ref": "#/$defs/__schema0", "$defs": {"__schema0": closed(next={"anyOf": [{"$ref": "#/$defs/__schema0"}, {"type": "null"}]})}}, ""),
    "meta": ({"type": "boolean", "whatever": "sup", "title": "t"}, "whatever: this keyword is not known"), "file": ({"type": "string", "format": "binary", "contentEncoding": "binary", "maxLength": 9}, ""),
}


@pytest.mark.parametrize("name", ZOD)
def test_zod(tool, name):
    schema, note = ZOD[name]
    answer = tool.schema({"$schema": "https://json-schema.org/draft/2020-12/schema" if "draft 7" not in name else "http://json-schema.org/draft-07/schema#", **schema})
    assert answer == "ok" if not note else answer.startswith("ok, but") and note in answer, answer
    judge = {**schema, "type": ["boolean", "null"]} if "nullable" in schema else schema
    if "allOf" in schema and note:
        judge = closed(a={"type": "null"}, b={"type": "boolean"})
    if "draft 7" in name and "allOf" not in schema:
        judge = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    unknown = r"\p{" in json.dumps(schema).replace("\\\\", "\\")                          # Python's re does not know them
    done = 0
    for seed in range(12):
        got = tool.walk(seed, 200)
        if got is not None and not unknown and "set of" not in name:
            assert jsonschema.validators.validator_for(judge, default=jsonschema.Draft202012Validator)(judge).is_valid(json.loads(got)), got
        done += got is not None
    if "includes" in name:                                                                # a walk hardly comes to its end
        assert tool.text('"hello cru  dark cruel world"') == "no" and tool.text('"hello cruedark cruel world"') == "yes"
    else:
        assert done > 1
