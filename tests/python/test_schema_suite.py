"""Constrained output against the JSON-Schema-Test-Suite, which scripts/setup.sh takes out of the source package of Python's jsonschema.

Each of the suite's schemas is refused with a reason that says where, or has a grammar: what random walks through its masks write must be
valid, and of the suite's own instances none that is invalid may be accepted.  Then the same with schemas put together from those at random.
The judge is jsonschema, beside what the suite says.
"""
import json
import random
import re
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from test_grammar import tool  # noqa: F401 (a fixture)

jsonschema = pytest.importorskip("jsonschema")

SUITE = Path(sys.prefix) / "schema-suite"
# How many groups there are at least (all versions of the suite since 2022), and how many of their schemas have a grammar.
DRAFTS = {
    "draft2020-12": (jsonschema.Draft202012Validator, 300, 200),
    "draft2019-09": (jsonschema.Draft201909Validator, 300, 200),
    "draft7": (jsonschema.Draft7Validator, 230, 180),
    "draft6": (jsonschema.Draft6Validator, 200, 160),
    "draft4": (jsonschema.Draft4Validator, 140, 110),
}
# What the suite demands beyond validation, where it is optional, and docs/grammars.md says no: encoded content is not looked into.
BEYOND = {"optional/content.json"}
REFUSAL = re.compile(r"!schema at #\S*(, \S+)?: .{10,}|!the schema is not JSON: line 1, column \d+: too big (negative )?integer.*")



def relative_pointer(text):
    """Whether text is a relative JSON pointer.  jsonschema's own check, which is there where some other package has
    installed jsonpointer, refuses a nought inside a number (313038)."""
    return not isinstance(text, str) or re.fullmatch(r"(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)", text) is not None


def multiple_of(validator, of, instance, schema):
    """As decimals are meant: jsonschema divides floats, and finds 0.07 to be no multiple of 0.01."""
    if validator.is_type(instance, "number") and Decimal(repr(instance)) % Decimal(repr(of)):
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {of!r}")


DRAFTS = {name: (jsonschema.validators.extend(draft_class, {"multipleOf": multiple_of}), *counts) for name, (draft_class, *counts) in DRAFTS.items()}
for draft_class, *_ in DRAFTS.values():
    draft_class.FORMAT_CHECKER.checks("relative-json-pointer")(relative_pointer)


def groups(draft):
    folder = SUITE / draft
    if not SUITE.is_dir():
        pytest.skip(f"no JSON-Schema-Test-Suite in {SUITE} (scripts/setup.sh test downloads it)")
    assert folder.is_dir(), f"{SUITE} is there, and has no {draft}"
    for path in sorted(folder.rglob("*.json")):
        for group in json.loads(path.read_text()):
            yield path.relative_to(folder).as_posix(), group


def walks(tool, seeds, steps):
    for seed in seeds:
        text = tool.walk(seed, steps)
        if text is not None:
            yield text


@pytest.mark.parametrize("draft", DRAFTS)
def test_suite(tool, draft, sanitized):
    validator_class, least, least_grammars = DRAFTS[draft]
    seen = grammars = accepted = refused = 0
    for name, group in groups(draft):
        schema, where = group["schema"], f"{draft}/{name}: {group['description']}"
        seen += 1
        refused += tool.schema(schema)[0] == "!"                # not enforced in full, but taken
        answer = tool.strict(schema)
        if not answer.startswith("ok"):                         # "ok, but": a format that nobody knows
            assert REFUSAL.fullmatch(answer), (where, schema, answer)
            continue
        grammars += 1
        valid = validator_class(schema, format_checker=validator_class.FORMAT_CHECKER)
        if not re.search(r"\\\\c", json.dumps(schema)):        # an escape of ECMAScript's that Python's re does not know
            for text in walks(tool, range(3 if sanitized else 8), 150):
                assert valid.is_valid(json.loads(text)), (where, schema, text)
        for test in group["tests"]:
            for separators in ((",", ":"), (", ", ": ")):
                text = json.dumps(test["data"], ensure_ascii=False, separators=separators)
                if tool.text(text) == "yes":
                    accepted += 1
                    assert test["valid"] or name in BEYOND, (where, schema, text)
    assert seen >= least and grammars >= least_grammars and accepted > 2 * grammars, (seen, grammars, accepted)
    assert refused < seen / 6, (seen, refused)                 # what nothing is valid under, and references out of the document


def mixed(rng, pool, depth):
    """a schema made of those of the pool"""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(pool)
    inner = lambda: mixed(rng, pool, depth - 1)
    kind = rng.choice(["allOf", "anyOf", "oneOf", "properties", "items", "prefixItems", "others", "patterns", "dependent", "required", "together", "not", "if"])
    if kind in ("allOf", "anyOf", "oneOf"):
        beside = rng.choice(pool)
        return {**(beside if isinstance(beside, dict) and rng.random() < 0.4 else {}), kind: [inner() for _ in range(rng.randint(1, 3))]}
    if kind in ("not", "if"):
        return {"allOf": [inner()], "not": inner()} if kind == "not" else {"if": inner(), "then": inner(), "else": inner()}
    if kind == "properties":
        return {"type": "object", "properties": {name: inner() for name in rng.sample(["foo", "bar", "a", "b", "baz"], rng.randint(1, 3))},
                "required": rng.sample(["foo", "bar", "a"], rng.randint(0, 2))}
    if kind == "items":
        return {"type": "array", "items": inner(), "minItems": rng.randint(0, 2)}
    if kind == "prefixItems":
        return {"type": "array", "prefixItems": [inner(), inner()], "minItems": rng.randint(0, 3)}
    if kind == "others":
        return {"properties": {"foo": inner()}, "additionalProperties": inner()}
    if kind == "patterns":
        return {"patternProperties": {rng.choice(["^f", "a", "^b.*$"]): inner()}, "additionalProperties": rng.choice([True, False, {"type": "integer"}])}
    if kind == "dependent":
        return {"type": "object", "properties": {"foo": {}, "bar": {}}, "dependentSchemas": {"foo": inner()}}
    if kind == "required":
        return {"type": "object", "required": [rng.choice(["foo", "a"])], "minProperties": rng.randint(0, 3), "maxProperties": rng.randint(1, 4)}
    one, other = inner(), inner()
    return {**one, **other} if isinstance(one, dict) and isinstance(other, dict) else one


def test_mixed_schemas_of_the_suite(tool, sanitized):
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    pool, texts = [], set()
    for name, group in groups("draft2020-12"):
        schema = group["schema"]
        texts |= {json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]}
        if isinstance(schema, dict):
            schema = {key: value for key, value in schema.items() if key != "$schema"}
        written = json.dumps(schema)
        formats = re.findall(r'"format": "(.*?)"', written)                      # with some, jsonschema takes any text for valid
        references = re.search(r'\$ref|\$id|nchor"|\$defs|\\\\c', written)        # they would point elsewhere
        if not references and all(f in checker.checkers for f in formats) and tool.strict(schema) == "ok":
            pool.append(schema)
    texts, grammars = sorted(texts), 0
    n = 150 if sanitized else 800
    for seed in range(n):
        rng = random.Random(seed)
        schema = mixed(rng, pool, rng.randint(1, 3))
        if tool.strict(schema) != "ok":
            continue
        grammars += 1
        valid = DRAFTS["draft2020-12"][0](schema, format_checker=checker)
        for text in walks(tool, range(seed, seed + 4), 100):
            assert valid.is_valid(json.loads(text)), (seed, schema, text)
        for text in rng.sample(texts, 25):
            if tool.text(text) == "yes":
                assert valid.is_valid(json.loads(text)), (seed, schema, text)
    assert len(pool) > 150 and grammars > n // 2
