"""Constrained output: GBNF, JSON schema and regular expressions, by way of grammar_tool and of `weft run`.

What a schema's grammar generates must be valid: random walks through the token masks are validated by Python's jsonschema.  What is
valid, and written as docs/grammars.md says, must be accepted.  Regular expressions are compared with Python's.
"""
import json
import os
import random
import re
import subprocess
import time

import pytest

THREADS = 1

jsonschema = pytest.importorskip("jsonschema")


class Tool:
    def __init__(self, path, model):
        self.process = subprocess.Popen([path, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def seconds(self):
        """Processor time: what else the machine does must not fail a test."""
        return sum(map(int, open(f"/proc/{self.process.pid}/stat").read().split()[13:15])) / os.sysconf("SC_CLK_TCK")

    def ask(self, request):
        self.process.stdin.write(request)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), f"grammar_tool ended after {request[:300]!r}"
        return line[:-1].decode()

    def counted(self, kind, text):
        data = text if isinstance(text, bytes) else text.encode()
        return self.ask(b"%s %d\n" % (kind.encode(), len(data)) + data)

    def schema(self, schema):
        return self.counted("schema", schema if isinstance(schema, str) else json.dumps(schema))

    def strict(self, schema):
        """as schema(), but what cannot be enforced is refused"""
        return self.counted("strict", schema if isinstance(schema, str) else json.dumps(schema))

    def text(self, text):
        return self.counted("text", text)

    def walk(self, seed, steps=150):
        """the text if the grammar ended it, None if it was cut off"""
        kind, _, text = self.ask(b"walk %d %d\n" % (seed, steps)).partition(" ")
        assert kind in ("end", "cut"), (kind, text)
        return bytes.fromhex(text).decode() if kind == "end" else None

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture(scope="module")
def tool(built_tool, tinypy):
    tool = Tool(built_tool("grammar_tool", "WEFT_GRAMMAR_TOOL"), tinypy)
    yield tool
    tool.close()


def validator(schema):
    return jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)


# ---- GBNF -------------------------------------------------------------------------------------------------------------

GBNF = [
    ('root ::= "abc"', ["abc"], ["ab", "abcd", ""]),
    ('root ::= [a-c]+ "x"?  # comment', ["a", "abcx"], ["x", ""]),
    ('root ::= a\na ::= a "x" | "y"', ["y", "yx", "yxxx"], ["x", "xy"]),
    ('root ::= a\na ::= "" a "x" | a a | "y"', ["y", "yy", "yxy"], ["x", ""]),
    ('root ::= a\na ::= "(" a ")" |', ["", "()", "((()))"], ["(", ")", "(()"]),
    ('root ::= "x"{3,5}', ["xxx", "xxxxx"], ["xx", "xxxxxx"]),
    ('root ::= [a-z]{2}{2}', ["abcd"], ["abc", "abcde"]),
    ('root ::= ("ab" [a-zé]{2,} ","){100,2147483648}', ["abxyz," * 100, "abxé," * 200], ["abxyz," * 99, "abx," * 200]),
    ("root ::= [^a]*", ["", "xyzé日本😀"], ["a", "xa", b"\xff", b"\xe6\x97"]),
    ("root ::= (\"a\"? \"b\"?){2,100000}", ["", "ab", "aaaaaa"], ["c"]),
    ('root ::= l\nl ::= "x" l | "x"', ["x", "x" * 3000], ["", "y"]),
    ('root ::= e\ne ::= e "+" e | e "*" e | "n"', ["n", "n+n*n", "+".join("n" * 60)], ["+", "n+"]),
    (r'root ::= "\x41é\U0001F600\n\"" . [\]\-x]', ['Aé😀\n"q]', 'Aé😀\n"\n-'], ["A"]),
    ('root ::= "a\nb\r\n" [\n]\n', ["a\nb\r\n\n"], ["ab", "a\nb\n\n"]),
    ('root ::= (\n  "a" |\n  "b"\n)\n', ["a", "b"], ["ab"]),
    ('root ::=\r\n "a" |\r\n b\r\nb ::= "b"\r\n', ["a", "b"], ["ab"]),
]


@pytest.mark.parametrize("grammar,yes,no", GBNF, ids=[g[0][:40].replace("\n", " ") for g in GBNF])
def test_gbnf(tool, grammar, yes, no):
    assert tool.counted("gbnf", grammar) == "ok"
    for text in yes:
        assert tool.text(text) == "yes", text
    for text in no:
        assert tool.text(text) != "yes", text
    for seed in range(3):
        text = tool.walk(seed, 40)
        assert text is None or tool.text(text) == "yes"


BAD_GBNF = [
    ("root ::= a", "line 1: rule 'a' is not defined"), ('root ::= root "x"', "line 1: rule 'root' matches nothing"),
    ('root ::= "a', "line 1, column 12"), ('roo ::= "x"', "no rule 'root'"), ('root ::= x\nx ::= "a\n\n', "it begins in line 2"), ('root ::= "a\n" )', "line 2, column 3"), ("root ::= [z-a]", "U+007A down to U+0061"),
    ('x ::= "y"\nroot ::= "\\q"', "line 2, column 12: unknown escape"), ('root ::= "x"{3,1}', "at least 3 and at most 1"),
    ('root ::= "x"{99999999999}', "a count above"), ('root ::= ("a"', "expected ')'"), ('root = "x"', "expected '::='"),
    ('root ::= "a"\nroot ::= "b"', "line 2, column 9: rule 'root' is defined twice, first in line 1"), ("root ::= <nope>", "is not a token"),
    ("root ::= <[99999999]>", "outside the vocabulary"), (b'root ::= "\xff"', "is not UTF-8"), ('root ::= "\\uD800"', "U+D800 is not a character"),
    ("", "no rule 'root'"), ("root ::= )", "')'"), ("root ::= []", "matches nothing"),
    ("root ::= " + "(" * 60000 + '"a"' + ")" * 60000, "more than 200 deep"),
]


@pytest.mark.parametrize("grammar,message", BAD_GBNF, ids=[str(m) for _, m in BAD_GBNF])
def test_bad_gbnf(tool, grammar, message):
    answer = tool.counted("gbnf", grammar)
    assert answer[0] == "!" and message in answer, answer


def test_hostile_grammars_are_bounded(tool, sanitized):
    began = tool.seconds()
    n = 5000
    assert tool.counted("gbnf", "root ::= r0\n" + "\n".join(f"r{i} ::= r{i+1}" for i in range(n)) + f'\nr{n} ::= "x"') == "ok"
    assert tool.text("x") == "yes"
    assert tool.counted("gbnf", "root ::= r0\n" + "\n".join(f'r{i} ::= r{i+1} "y"' for i in range(n)) + f'\nr{n} ::= "x"') == "ok"
    assert tool.text("x" + "y" * n) == "yes"
    answer = tool.counted("gbnf", "root ::= r0\n" + "\n".join(f"r{i} ::= r{i+1} | r{i * 7 % n}" for i in range(n)) + f'\nr{n} ::= "x"')
    assert answer == "ok" or "ambiguous" in answer
    assert tool.counted("gbnf", 'root ::= ((("a"|"aa"){1,100000}){1,1000000}){1,1000}') == "ok"
    assert tool.text("a" * 50) == "yes"
    assert tool.counted("gbnf", "root ::= s\ns ::= s s s | s s | \"a\" |") == "ok"
    assert tool.text("a" * 300) in ("yes", "!the grammar is too ambiguous here: too many ways to read the text so far")
    for pattern in ("(" * 60000, "a{1,2147483648}", "(((a{1,1000}){1,1000}){1,1000}){1,1000}", "(a|b)*a(a|b){20}", "(?:" * 150 + "a" + ")*" * 150):
        tool.counted("regex", pattern)
    tool.schema({"allOf": [{"type": "string", "pattern": "(a|b)*a(a|b){18}"}, {"pattern": "(a|b)*b(a|b){19}"}]})
    assert tool.schema("[" * 100000)[0] == "!"
    assert tool.seconds() - began < (300 if sanitized else 60)     # seconds


def test_hostile_schemas_and_expressions_are_bounded(tool, sanitized):
    began = tool.seconds()
    assert tool.counted("regex", "(?i)" + "aé" * 50000) in ("ok", "!the regular expression: needs more than 524288 states")
    assert tool.counted("regex", "[" + r"\w\W" * 1000 + "]") == "ok"
    assert "ranges of characters" in tool.counted("regex", "[" + r"\w\W" * 500000 + "]")
    assert tool.schema({"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": r"^\d{1,3}$"} for i in range(1000)}}) == "ok"
    names = {f"p{i}": {"type": "null"} for i in range(400)}
    assert tool.schema({"type": "object", "properties": names, "patternProperties": {rf"^\w{c}$": {} for c in "abcd"}, "additionalProperties": False}) == "ok"
    for n, why in ((20000, "more than 2000 combinations"), (1500, "the alternatives are too many to be compared")):
        assert why in tool.strict({"oneOf": [{"type": "integer", "minimum": 2 * i, "maximum": 2 * i + 1} for i in range(n)]})
    assert tool.schema({"enum": [f"x{i}" for i in range(500)], "pattern": "x|^(a|b)*a(a|b){8}$"}) == "ok"      # compiled once
    assert tool.schema({"oneOf": [{"type": "integer", "minimum": 2 * i, "maximum": 2 * i + 1} for i in range(1000)]}) == "ok"
    assert tool.text("1999") == "yes" and tool.text("2000") != "yes"
    nets = "|".join(f"(([0-9a-fA-x]{{1,4}}:){{1,{i % 7 + 1}}}(:[0-9a-f]{{1,4}}){{1,{i % 5 + 1}}})" for i in range(8))     # 0.4 s each beside the format
    tool.schema({"type": "object", "properties": {f"p{i}": {"type": "string", "format": "ipv6", "pattern": f"^({nets}|x{i})$"} for i in range(300)}})
    assert tool.seconds() - began < (100 if sanitized else 20)     # seconds; some were minutes


def kilobytes(process):
    return int(re.search(r"VmHWM:\s*(\d+)", open(f"/proc/{process.pid}/status").read())[1])


D = {"d": {"required": [f"n{i}" for i in range(2000)]}}
A, MORE = "a" * 1000000, "the schema takes more than 16777216 steps"
HELD = "what the schema's parts mean together takes more than 64 MB"
# Each has a loop over a value, a name, a list or a text of the schema that runs once for each schema, alternative or
# reference. It was counted as one step, or not at all: most took more than 40 s, those of HELD up to 1.9 GB.
GROWING = {
    "not": (HELD, {"not": {"allOf": [{"$ref": "#/$defs/d"}] * 1000}, "$defs": D}),                                    # 1.9 GB
    "long name in not": (HELD, {"not": {"allOf": [{"$ref": "#/$defs/d"}] * 2000}, "$defs": {"d": {"required": [A]}}}),
    "if": (HELD, {"if": {"allOf": [{"$ref": "#/$defs/d"}] * 300}, "then": {"type": "object"}, "else": {}, "$defs": D}),
    "dependents": (HELD, {"dependentRequired": {f"k{i}": [] for i in range(150000)}}),
    "escapes": ("nothing is at", {"$ref": "#/" + "%41" * 600000}),
    "pattern": (MORE, {"enum": ["".join(random.Random(i).choices("ab", k=400)) for i in range(2000)], "pattern": "^(a|b)*a(a|b){150}$"}),
    "long value": (MORE, {"const": A, "allOf": [{"minLength": 1}] * 9000}),
    "long array": (MORE, {"const": [0] * 400000, "allOf": [{}] * 9000}),
    "array without equals": (MORE, {"const": list(range(200000)), "allOf": [{"uniqueItems": True}] * 9000}),
    "wide object": (MORE, {"const": {f"k{i}": 0 for i in range(50000)}, "allOf": [{}] * 9000}),
    "long name in a value": (MORE, {"const": {A: 0}, "allOf": [{"properties": {}}] * 9000}),
    "long name required": (MORE, {"enum": [{"a": i} for i in range(50000)], "required": [A]}),
    "dependents of values": (MORE, {"enum": [{"x": {"a": i}} for i in range(50000)], "properties": {"x": {"dependentRequired": {f"k{i}": [] for i in range(20000)}}}}),
    "long list of dependents": (MORE, {"enum": [{"a": i} for i in range(50000)], "dependentRequired": {"a": ["a"] * 50000}}),
    "choices": (HELD, {"allOf": [{"anyOf": [{"title": str(i)}]} for i in range(6000)]}),                               # 3 GB
    "types": (MORE, {"enum": [str(i) for i in range(50000)], "type": ["string"] * 100000}),
    "types of alternatives": (MORE, {"oneOf": [{"type": ["string"] * 100000}] + [{"type": "integer", "title": str(i)} for i in range(1900)]}),
    "alternatives of nothing": (MORE, {"allOf": [{"anyOf": [True] * 1999}, {"anyOf": [False] * 500000 + [True]}]}),
    "excluded values": (MORE, {"allOf": [{"anyOf": [{"type": "integer", "minimum": i} for i in range(1900)]}, {"not": {"enum": ["a"] * 200000}}]}),
    "long name": (MORE, {"allOf": [{"properties": {A: True}}] + [{"properties": {}}] * 9000}),
    "long name among names": (MORE, {"allOf": [{"properties": {A: True}}] + [{"propertyNames": True}] * 9000}),
}


@pytest.mark.parametrize("why,schema", GROWING.values(), ids=list(GROWING))
def test_work_and_memory_are_counted_by_what_is_read(built_tool, tinypy, why, schema, sanitized):
    tool = Tool(built_tool("grammar_tool", "WEFT_GRAMMAR_TOOL"), tinypy)
    began, before = tool.seconds(), kilobytes(tool.process)
    answer = tool.schema(schema)
    assert why in answer, answer[:300]
    assert tool.seconds() - began < (20 if sanitized else 4)
    assert sanitized or kilobytes(tool.process) - before < 250000
    tool.close()


def test_letters_in_any_case_are_counted(tool, sanitized):
    began = tool.seconds()
    for pattern in ("(?i)" + "." * 300000, "(?i)" + r"\S" * 150000):          # 40 s and more: each looked up all letters of Unicode
        assert "more than 1048576 ranges of characters" in tool.counted("regex", pattern)
    assert tool.counted("regex", "(?i)" + "a." * 1000) == "ok"
    assert tool.text("Ax" * 1000) == "yes" and tool.text("bx" * 1000) != "yes"
    assert tool.counted("regex", "(?i)[^k]") == "ok"
    assert [tool.text(c) == "yes" for c in "kK\u212aa"] == [False, False, False, True]
    assert tool.seconds() - began < (20 if sanitized else 4)


def test_escapes_in_references(tool):
    schema = {"$defs": {"a/b": {"const": 1}, "%4": {"const": 2}, "% 4": {"const": 3}, "%0x41": {"const": 4}, "A%": {"const": 5}}}
    for ref, value in (("a~1b", 1), ("%4", 2), ("% 4", 3), ("%0x41", 4), ("%250x41", 4), ("%41%", 5), ("%41%25", 5)):
        answer = tool.schema({**schema, "$ref": "#/$defs/" + ref})
        assert answer == "ok" and tool.text(str(value)) == "yes" if value else "nothing is at" in answer, (ref, answer)


def test_a_pattern_that_is_too_large_is_noted(tool):
    """Its neighbours are enforced; strict, the schema is refused. A pattern that is wrong is an error in any case."""
    large, plain = {"type": "string", "pattern": "^(a|b)*a(a|b){24}$", "maxLength": 100}, {"type": "string", "pattern": "^x{3}$"}
    schema = {"type": "object", "properties": {"l": large, "p": plain, "again": large}, "required": ["l", "p"]}
    began = tool.seconds()
    noted = "ok, but schema at #/properties/l, pattern: is not enforced"
    assert tool.schema(schema).startswith(noted) and tool.strict(schema)[0] == "!"
    assert tool.schema(schema).startswith(noted) and tool.text('{"l": "", "p": "xxx"}') == "yes" and tool.text('{"l": "c", "p": "xx"') == "no"
    assert tool.seconds() - began < 20
    assert tool.schema({"allOf": [large, {"pattern": "("}]})[0] == "!"


# ---- regular expressions ----------------------------------------------------------------------------------------------

PATTERNS = [r"abc", r"a|b|cd", r"(a|b)*c", r"[a-c]{2,3}x?", r"\d+(\.\d{1,2})?", r"[^a]b", r".{3}", r"^a$|^b", r"(?i:aB)c", r"a*?b+?", r"\x41\u0042",
            r"(?:a(b(c)?)?)?", r"a{0}", r"a{2}", r"(^|,)a(,|$)", r"a{x", r"[\w.-]+@[a-c]+", r"(?P<n>a)b", r"[,\-.]*", r"(?i)aB[x-z]", r"(a{2,3}){2}", r"(?#c)a|", r"(?i)[^b-dÀ-Þ]é?", r"(?i:ß|σ|[а-в])", "(?i)^a[bc]$", "(?#c)^a|()^b$()"]
BAD_PATTERNS = [(r"(a)\1", "a back-reference"), ("(?:a(?=b))*", "a look-ahead within something that is repeated"), ("(?<!a)b", "a negative look-behind"), (r"\bq", "a word boundary"), ("a++", "possessive"),
                ("(?>a)", "an atomic group"), ("a{,3}", "write {0,n}"), ("x(^a)", "an anchor"), ("a{2,1}", "at least 2 and at most 1"), ("(", "offset 0: a group that is not closed"),
                ("a)", "offset 1"), ("[a", "not closed"), ("*a", "nothing stands before"), (r"\q", "unknown escape"), ("[z-a]", "down to"), (r"\p{Foo}", "'Foo' is not known"),
                ("(?(1)a)", "a condition"), ("a(?#c)*", "a repetition after a comment"), ("a(?s)+", "a repetition after a comment"), (r"a\Q\E?", "a repetition after a comment"), (b"\xff", "is not UTF-8"), ("(" * 1000, "more than 200 deep")]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regex_matches_as_python_does(tool, pattern):
    assert tool.counted("regex", pattern) == "ok"
    compiled, rng = re.compile(pattern), random.Random(pattern)
    for _ in range(150):
        text = "".join(rng.choice("abcABx,.@1") for _ in range(rng.randint(0, 6)))
        assert (tool.text(text) == "yes") == bool(compiled.fullmatch(text)), text
    for seed in range(4):
        text = tool.walk(seed, 30)
        assert text is None or compiled.fullmatch(text), text


def test_quoted_characters(tool):
    assert tool.counted("regex", r"\Qa*b.\E+c\Q?\E") == "ok"      # as in PCRE, the last one is repeated
    assert [tool.text(x) for x in ("a*b.c?", "a*b...c?", "a*b.a*b.c?", "abxc?")] == ["yes", "yes", "no", "no"]


@pytest.mark.parametrize("pattern,message", BAD_PATTERNS, ids=[m for _, m in BAD_PATTERNS])
def test_bad_regex(tool, pattern, message):
    answer = tool.counted("regex", pattern)
    assert answer.startswith("!regular expression, offset ") and message in answer, answer


# ---- JSON schema ------------------------------------------------------------------------------------------------------

NODE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}
# schema, accepted, not accepted (nor valid, or outside of what is promised)
SCHEMAS = [
    ({"type": "string"}, ['"a"', r'"\u00e9"', r'"\ud83d\ude00"', '""'], [r'"\ud800"', '"\n"', "a"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"éé😀"', r'"\u0041\n"'], ['"a"', '"abcd"']),
    ({"type": "string", "minLength": 300, "maxLength": 100000}, ['"' + "é" * 300 + '"', '"' + "x" * 1000 + '"'], ['"' + "x" * 299 + '"']),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 5}, ['"abc"'], ['"abcdef"', '""']),
    ({"type": "string", "pattern": "(?i)^ab?$"}, ['"a"', '"Ab"'], ['"xa"', '"abc"']),
    ({"type": "string", "pattern": 'a\\\\"b'}, [json.dumps('xa\\"b\n')], ['"ab"']),
    ({"type": "string", "pattern": "^(\\w+|x\\d)$", "minLength": 2}, ['"ab"', '"x1"'], ['"a"', '"é1"']),
    ({"type": "integer"}, ["0", "-1", "12"], ["01", "1.5", "-0"]),
    ({"type": "integer", "minimum": 3, "maximum": 1205}, ["3", "9", "10", "999", "1000", "1205"], ["2", "1206", "0003", "20000"]),
    ({"type": "integer", "exclusiveMinimum": -17, "exclusiveMaximum": 5}, ["-16", "-9", "0", "4"], ["-17", "5", "-20", "-160"]),
    ({"type": "integer", "minimum": 2.5, "maximum": 4.5}, ["3", "4"], ["2", "5"]),
    ({"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}, ["0", "-1", "9" * 18, "-" + "9" * 18], ["9" * 19, "-" + "9" * 19]),
    ({"type": "integer", "minimum": -9.5e17, "maximum": 9.5e17}, ["95" + "0" * 16, "-95" + "0" * 16], ["9" * 18, "-" + "9" * 18, "95" + "0" * 15 + "1"]),
    ({"type": "integer", "format": "uint8"}, ["0", "255"], ["-1", "256"]), ({"type": "integer", "format": "uint64", "minimum": 0.0}, ["0", "9" * 18], ["-1"]),
    ({"type": "integer", "format": "int32"}, ["-2147483648", "2147483647"], ["2147483648"]), ({"type": "number", "exclusiveMaximum": 999999999999999}, ["999999999999998.9"], ["999999999999999"]),
    ({"type": "integer", "minimum": 9.5e17}, ["95" + "0" * 16, "9" * 18], ["9" * 17, "94" + "9" * 16]),
    ({"type": "integer", "multipleOf": 7, "minimum": -30}, ["7", "14", "-28", "0"], ["15", "-35", "-1"]),
    ({"type": "number", "multipleOf": 5}, ["10", "-5", "0"], ["7", "10.5"]),
    ({"type": "number"}, ["1", "1.5e3", "-0.25", "1E-7"], ["01", ".5", "1.", "NaN"]),
    ({"type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25}, ["2.2499", "2", "-1.5", "-1.50", "0.001"], ["2.25", "2.250", "-1.51", "3", "-2"]),
    ({"type": "number", "minimum": 0.1, "maximum": 0.3}, ["0.1", "0.2", "0.3", "0.30", "0.123456"], ["0.09", "0.31", "0", "1"]),
    ({"type": "number", "exclusiveMinimum": 0}, ["0.5", "3", "1000000"], ["0", "0.0", "-1"]),
    ({"type": "number", "maximum": 0}, ["0", "-1.5", "-0.5"], ["0.1", "1"]),
    ({"type": "number", "exclusiveMaximum": -3}, ["-3.5", "-4", "-100"], ["-3", "-2", "3", "-3.0"]),
    ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
    ({"type": "boolean"}, ["true", "false"], ["null"]),
    ({"enum": [1, "a", None, {"b": [1, 2.5]}, 1e100]}, ["1", '"a"', "null", '{"b":[1, 2.5]}', "1e+100"], ["2", '{"b":[1]}']),
    ({"const": "é\"\n"}, [json.dumps("é\"\n", ensure_ascii=False)], ['"x"']),
    ({"type": "string", "enum": ["a", 1, "bb"], "maxLength": 1}, ['"a"'], ["1", '"bb"']),
    ({"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "integer"}}, "required": ["a"]},
     ['{"a":"x"}', '{"a": "x", "b": 1}', '{\n  "a": "x",\n  "b": 1\n}'], ['{"b":1}', '{"a":"toolong"}', '{"a":1}', "{}"]),
    ({"type": "object", "properties": {c: {"type": "integer"} for c in "abcde"}, "minProperties": 2, "maxProperties": 3},
     ['{"a":1,"e":2}', '{"b":1,"c":2,"d":3}'], ['{"a":1}', '{"a":1,"b":1,"c":1,"d":1}']),
    ({"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": {"type": "null"}},
     ['{"a":true,"b":null}', '{"b":null,"ab":null}', "{}"], ['{"a":null}', '{"b":1}', r'{"\u0061":null}']),
    ({"type": "object"}, ["{}", '{"x":[1,{"y":null}]}'], ["[]"]),
    ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
    ({"type": "object", "patternProperties": {"^s_": {"type": "string"}, "^n": {"type": "number"}}, "additionalProperties": False},
     ['{"s_":"x"}', '{"n":1}', "{}"], ['{"x":1}', '{"s_":1}']),
    ({"type": "object", "patternProperties": {"a": {"type": "integer"}, "b": {"minimum": 5, "type": "integer"}}, "additionalProperties": {"type": "null"}},
     ['{"a":1}', '{"ab":7}', '{"x":null}', '{"b":5}'], ['{"ab":1}', '{"a":null}', '{"x":1}']),
    ({"type": "object", "additionalProperties": True, "propertyNames": {"pattern": "^[a-c]$"}, "maxProperties": 2}, ['{"a":1}', "{}"], ['{"d":1}', '{"a":1,"b":2,"c":3}']),
    ({"required": ["a"], "type": "object"}, ['{"a":1}', '{"a":1,"b":2}'], ["{}"]),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}, ["[true,false]", "[true, true, true]"], ["[true]", "[true,true,true,true]", "[]"]),
    ({"type": "array", "minItems": 1}, ["[1]", '["a",{"b":[]}]'], ["[]"]),
    ({"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}, "minItems": 40, "maxItems": 1000000}, ["[" + "1," * 49 + "1]"], ["[" + "1," * 38 + "1]"]),
    ({"prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": False}, ["[]", "[null]", "[null,true]"], ["[null,true,1]", "[1]"]),
    ({"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "minItems": 2}, ["[null,1]", "[null, 1, 2]"], ["[null]", "[null,null]"]),
    ({"type": "array", "items": {"enum": ["a", "b", 1, 1.0]}, "uniqueItems": True, "minItems": 1}, ['["a"]', '["b","a"]', '[1, "b", "a"]'], ["[]", '["a","a"]', '["a","b",1,"b"]']),
    ({"$defs": {"t": {"type": "string", "enum": ["x", "yy", "z"], "maxLength": 1}}, "type": "array", "items": {"$ref": "#/$defs/t"}, "uniqueItems": True}, ["[]", '["z","x"]'], ['["x","x"]', '["yy"]']),
    ({"items": {"type": "boolean"}, "uniqueItems": True, "maxItems": 5}, ["[true,false]", "[false]"], ["[true,true]"]),
    ({"$defs": {"n": NODE}, "$ref": "#/$defs/n"}, ['{"v":1,"next":{"v":2,"next":null}}'], ['{"v":1}']),
    ({"definitions": {"a/b~c d": {"type": "null"}}, "$ref": "#/definitions/a~1b~0c%20d"}, ["null"], ["1"]),
    ({"$defs": {"x": {"$anchor": "here", "type": "null"}}, "$ref": "#here"}, ["null"], ["1"]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"x": {"$id": "#here", "type": "null"}}, "$ref": "#here"}, ["null"], ["1"]),
    ({"$defs": {"const": {"$anchor": "here", "type": "null"}, "x": {"$id": "own", "type": "integer"}}, "prefixItems": [{"$ref": "#here"}, {"$ref": "#/$defs/x"}], "minItems": 2}, ["[null,3]"], ["[3,null]"]),
    ({"type": "object", "propertyNames": {"const": "ab", "enum": ["ab", "c"]}}, ["{}", '{"ab":1}'], ['{"c":1}', '{"a":1}']),
    ({"anyOf": [{"type": "integer", "minimum": 10}, {"type": "string", "maxLength": 1}]}, ["10", '"a"'], ["9", '"ab"']),
    ({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"], "anyOf": [{"properties": {"k": {"const": "a"}}}, {"properties": {"k": {"const": "b"}, "z": {"type": "null"}}}]},
     ['{"k":"a"}', '{"k":"b","z":null}'], ['{"k":"c"}']),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}, ['"a"', "1", "null"], ["true"]),
    ({"oneOf": [{"type": "object", "properties": {"t": {"const": "x"}, "n": {"type": "integer"}}, "required": ["t"]},
                {"type": "object", "properties": {"t": {"const": "y"}}, "required": ["t"]}]}, ['{"t":"x","n":1}', '{"t":"y"}'], ['{"t":"z"}']),
    ({"oneOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": True}, "required": ["b"]}]}, ['{"a":1}', '{"b":[]}'], ['{"a":1,"b":1}', "1", "{}"]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}, "a": {"minimum": 3}}, "required": ["b"]}]},
     ['{"a":3,"b":"x"}', '{"b":""}'], ['{"a":2,"b":"x"}', '{"a":3}']),
    ({"allOf": [{"maximum": 10}, {"minimum": 8}], "type": "integer"}, ["8", "10"], ["7", "11"]),
    (True, ["1", '{"a":[null]}'], ["nul"]),
    ({"type": "number", "multipleOf": 0.25, "minimum": -1, "maximum": 2}, ["0.25", "-1", "-0.5", "2.00", "1.5"], ["0.2", "0.251", "2.25", "-1.25"]),
    ({"type": "integer", "multipleOf": 2.5}, ["5", "-10", "0"], ["2", "-7"]),
    ({"type": "integer", "maximum": (1 << 54) + 1}, ["18014398509481980", "-5"], ["18014398509481988"]),
    ({"type": "object", "properties": {"a": {"not": {}}, "b": {"type": "null"}}}, ["{}", '{"b":null}'], ['{"a":1}']),
    ({"type": "integer", "minimum": 0, "maximum": 5, "not": {"enum": [1, 2, "x"]}}, ["0", "3", "5"], ["1", "2", "6"]),
    ({"type": ["string", "null", "boolean"], "not": {"enum": [None, True, "a"]}}, ['"b"', '""', "false"], ['"a"', "null", "true"]),
    ({"type": "string", "maxLength": 4, "not": {"pattern": "^a"}}, ['"ba"', '""'], ['"ab"', '"bcdef"']),
    ({"not": {"type": ["string", "array", "object"], "minLength": 2}}, ["1", "null", '"a"'], ['"ab"', "[1]"]),
    ({"type": "object", "properties": {"a": True, "b": True}, "not": {"required": ["a", "b"]}}, ["{}", '{"a":1}', '{"b":1}'], ['{"a":1,"b":1}']),
    ({"not": {"anyOf": [{"type": "string"}, {"minimum": 3}]}}, ["2", "-1.5"], ['"a"', "3", "null"]),
    ({"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "x": {"type": "integer"}}, "required": ["k"],
      "if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"properties": {"x": False}}},
     ['{"k":"a","x":1}', '{"k":"b"}'], ['{"k":"a"}', '{"k":"b","x":1}']),
    ({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"maximum": 3}}, ["10", "20", "3", "-7"], ["11", "4"]),
    # look-ahead: as pydantic writes a Decimal, zod a duration and an email, and people passwords
    ({"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}, ['"1.5"', '"-007"', '".5"'], ['"."', '"-"', '""', '"1.2.3"']),
    ({"type": "string", "pattern": r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$"},
     ['"P3W"', '"P1Y2D"', '"PT5.5S"', '"P1DT1M"'], ['"P"', '"PT"', '"P1YT"', '"P1W2D"']),
    ({"type": "string", "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"},
     ['"a.b@c.de"', '"x@y-z.org"'], ['".a@b.de"', '"a..b@c.de"', '"a@b"']),
    ({"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{4,}$", "maxLength": 100}, ['"aB1c"', '"1234X"'], ['"abcd"', '"AB1"', '"abc1"']),
    ({"type": "string", "pattern": r"x(?=y)|(?:a(?!b)|c)$"}, ['"xyz"', '"qa"', '"c"'], ['"x"', '"xab"', '"ab"']),
    # letters are counted beside the automaton
    ({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083}, ['"https://a.b/%s"' % ("x" * n) for n in (0, 500, 2070)], ['"https://a.b/%s"' % ("x" * 2080), '"x"']),
    ({"type": "string", "pattern": "^(ab|é\n)*$", "minLength": 30, "maxLength": 301}, ['"%s"' % ("ab" * 15), '"%s"' % ("é\\n" * 150)], ['"%s"' % ("ab" * 14), '"%s"' % ("ab" * 151)]),
    ({"type": "string", "pattern": "^[a-z]+[.][0-9]{3}$", "minLength": 100}, ['"%s.123"' % ("q" * n) for n in (96, 1000)], ['"%s.123"' % ("q" * 95)]),
    ({"type": "object", "additionalProperties": {"type": "null"}, "properties": {"aaa": {"type": "null"}}, "propertyNames": {"pattern": "^a+$", "maxLength": 200}},
     ['{"aa":null,"%s":null}' % ("a" * 200)], ['{"%s":null}' % ("a" * 201), '{"b":null}']),
    ({"type": "array", "items": {"type": "string"}, "maxItems": 50000}, ["[]", '["a","b"]', "[" + '"",' * 49999 + '""]'], ["[" + '"",' * 50000 + '""]']),
    ({"title": "t", "description": "d", "default": 3, "examples": [1], "$comment": "c", "deprecated": True, "x-any": 1, "$schema": "https://json-schema.org/draft/2020-12/schema"}, ["1"], [""]),
    ({"minimum": 3}, ["3", "3.5"], ["2"]),
    ({"type": "object", "properties": {c: {"type": "integer"} for c in "abc"}, "dependentRequired": {"a": ["b", "c"], "b": ["c"]}},
     ["{}", '{"c":1}', '{"b":1,"c":2}', '{"a":1,"b":2,"c":3}'], ['{"a":1}', '{"b":1}', '{"a":1,"b":2}']),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}, "required": ["b"]}}},
     ['{"b":3}', '{"a":1,"b":null}'], ['{"a":1}', '{"a":1,"b":3}']),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"], "b": {"minProperties": 2}}},
     ["{}", '{"a":1,"b":2}'], ['{"a":1}', '{"b":1}']),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "allOf": [{"properties": {"b": {"type": "null"}}}], "required": ["b"], "unevaluatedProperties": False},
     ['{"a":null,"b":null}', '{"b":null}'], ['{"b":null,"c":null}']),
]


@pytest.mark.parametrize("schema,yes,no", SCHEMAS, ids=[json.dumps(s[0])[:60] for s in SCHEMAS])
def test_schema(tool, schema, yes, no):
    assert tool.strict(schema) == "ok"
    valid = validator(schema)
    for text in yes:
        assert valid.is_valid(json.loads(text)), text
        assert tool.text(text) == "yes", text
    for text in no:
        assert tool.text(text) != "yes", text
    for seed in range(8):
        text = tool.walk(seed)
        assert text is None or valid.is_valid(json.loads(text)), text


REFUSED = [
    ({"$ref": "#"}, "schema at #: this schema applies itself"), ({"allOf": [{"$ref": "#"}]}, "applies itself"), ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "applies itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "schema at #/$defs/a: this schema applies itself"),
    ({"properties": {"a": {"not": {"items": {"type": "string"}}}}}, "schema at #/properties/a, not: is not enforced"),
    ({"if": {"items": {}}, "then": {"minItems": 1}}, "schema at #, if: is not enforced"), ({"not": {}}, "schema at #, not: no value is left"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"items": {"enum": list(range(9))}, "uniqueItems": True}, "at most 8 values"),
    ({"items": {"enum": [1], "uniqeItems": 1}, "uniqueItems": True}, "schema at #/items, uniqeItems: this keyword is not known"), ({"type": "array", "contains": {}}, "contains"), ({"dependentRequired": 3}, "dependentRequired: expected"),
    ({"minLengh": 3}, "schema at #, minLengh: this keyword is not known"), ({"type": "string", "pattern": "("}, "schema at #, pattern: regular expression, offset 0"),
    ({"type": "string", "pattern": "(a)\\1"}, "a back-reference"), ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "alternatives 0 and 1"), (False, "schema at #: false allows no value"),
    ({"type": "strin"}, "there is no type 'strin'"), ({"$ref": "http://x"}, "points out of this document"), ({"$ref": "#/a"}, "nothing is at '/a'"), ("{", "not JSON: line 1, column 1"),
    ({"type": "integer", "minimum": 5, "maximum": 4}, "no number is within"),
    ({"type": "number", "exclusiveMinimum": 1e-7, "exclusiveMaximum": 99999999999}, "bounds with 7 digits after the point"), ({"minimum": 1e-20, "exclusiveMaximum": 0.1}, "bounds with 20 digits"),
    ({"type": "string", "const": 1}, "no value of it"), ({"type": "string", "minLength": 3, "maxLength": 2}, "no string is long enough"),
    ({"type": "number", "multipleOf": 0.00123457}, "multipleOf"), ({"type": "object", "allOf": [{"unevaluatedProperties": False}]}, "unevaluatedProperties"), ({"type": "array", "minItems": -1}, "minItems: expected"),
    ({"type": "object", "additionalProperties": True, "minProperties": 3}, "minProperties"), ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no type is allowed"), ({"allOf": {}}, "allOf: expected an array"),
    ({"$id": "http://x/r", "$defs": {"b": {"type": "integer"}, "a": {"$id": "own", "$defs": {"b": {"type": "string"}}, "$ref": "#/$defs/b"}}, "$ref": "#/$defs/a"},
     "schema at #/$defs/a, $ref: within a schema that has an $id of its own"), ({"$defs": {"a": {"$id": "own", "$anchor": "k"}}, "$ref": "#k"}, "there is no $anchor 'k'"),
    ({"$defs": {"a": {"$anchor": "k"}, "b": {"$anchor": "k"}}, "$ref": "#k"}, "more than one $anchor 'k'"), ({"$defs": {"a": {"const": {"$anchor": "k"}}}, "$ref": "#k"}, "there is no $anchor 'k'"),
    ({"oneOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": True}, "required": ["b"]}], "format": "date"}, "alternatives 0 and 1"),
    ({"type": ["array", "object"], "oneOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": True}, "required": ["b"]}]}, "alternatives 0 and 1"),
    ({"type": "object", "required": ["b"], "oneOf": [{"properties": {"a": True}, "required": ["a"]}, {"properties": {"b": True}, "required": ["b"]}]}, "alternatives 0 and 1"),
    ({"oneOf": [{"properties": {"a": True}, "allOf": [{"required": ["b"]}]}, {"properties": {"b": True}, "required": ["b"]}]}, "alternatives 0 and 1"),
    ({"allOf": [{"const": {"a": 1}}], "unevaluatedProperties": False}, "schema at #, unevaluatedProperties: is not enforced beside"),
    ({"dependencies": {"a": {"properties": {"a": {}}}}, "unevaluatedProperties": False}, "unevaluatedProperties: is not enforced beside dependencies"),
    ({"anyOf": [False]}, "schema at #: false allows no value"), ({"allOf": [{"minimum": 1}, {"items": False, "anyOf": [False]}]}, "schema at #/allOf/1: false allows"),
    ({"type": "object", "properties": {"a": 3}}, "schema at #/properties/a: a schema is an object"), ({"enum": 3}, "enum: expected"), ({"required": True}, "required"), ({"$dynamicRef": "#"}, "dynamic"),
]


@pytest.mark.parametrize("schema,message", REFUSED, ids=[f"{json.dumps(s)[:50]}" for s, _ in REFUSED])
def test_refused_schema(tool, schema, message):
    answer = tool.strict(schema)
    assert answer[0] == "!" and message in answer, answer
    assert message in tool.schema(schema)            # refused as well, or a note with these words


FORMATS = {
    "date": (r"\d{4}-\d\d-\d\d", ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-04-31", "0000-01-01", "2024-13-01"]),
    "time": (r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", ["23:59:59Z", "00:00:00.5+01:00"], ["24:00:00Z", "12:00:00"]),
    "date-time": (r"\d{4}-\d\d-\d\dT.+", ["2024-02-29T23:59:59Z"], ["2024-02-29 23:59:59Z"]),
    "uuid": (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    "email": (r"[^@ ]+@[^@ ]+\.[a-zA-Z]+", ["a.b+c@example.org"], ["a@", "@b.c", "a b@c.de"]),
    "ipv4": (r"\d+(\.\d+){3}", ["255.0.10.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (r"[0-9a-fA-F:]+", ["::1", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8"], [":::", "1::2::3", "12345::"]),
    "uri": (r"[A-Za-z][A-Za-z0-9+.-]*:.+", ["https://example.org/a?b=c#d", "mailto:a@b.c"], ["//x", "example", "http://a b"]),
    "uri-reference": (r".*", ["/a/b?c", "https://example.org"], ["a b"]),
    "hostname": (r"[A-Za-z0-9.-]+", ["example.org", "a-b.c"], ["-a", "a..b"]),
    "duration": (r"P.+", ["P1Y2M3D", "PT36H", "P4W", "P1DT12H"], ["P", "PT", "1D"]),
    "json-pointer": (r"(/.*)*", ["", "/a~1b/0"], ["a", "/~2"]),
}


@pytest.mark.parametrize("name", FORMATS)
def test_format(tool, name):
    shape, yes, no = FORMATS[name]
    assert tool.schema({"type": "string", "format": name}) == "ok"
    for text in yes:
        assert tool.text(json.dumps(text)) == "yes", text
    for text in no:
        assert tool.text(json.dumps(text)) != "yes", text
    for seed in range(10):
        text = tool.walk(seed)
        if text is not None:
            assert re.fullmatch(shape, json.loads(text), re.DOTALL), text
            if name == "date":
                time.strptime(json.loads(text), "%Y-%m-%d")
            if name in ("ipv4", "ipv6"):
                __import__("ipaddress").ip_address(json.loads(text))


def random_schema(rng, depth):
    """a schema, and a function that makes a value that it accepts"""
    kind = rng.choice(["string", "integer", "number", "boolean", "null", "enum", "const"] + ["object", "array", "anyOf", "allOf", "ref"] * (depth > 0))
    text = lambda n, letters="ab é\"\\\n😀": "".join(rng.choice(letters) for _ in range(n))
    if kind == "string":
        lo = rng.randint(0, 4)
        hi = lo + rng.randint(0, 40)
        if rng.random() < 0.3:
            return {"type": "string", "pattern": "^[a-c]*d?$", "minLength": lo, "maxLength": hi}, lambda: text(rng.randint(lo, hi), "abc")
        return {"type": "string", "minLength": lo, "maxLength": hi}, lambda: text(rng.randint(lo, hi))
    if kind == "integer":
        lo = rng.randint(-1500, 1500)
        hi = lo + rng.randint(0, 5000)
        return {"type": "integer", "minimum": lo, "maximum": hi}, lambda: rng.randint(lo, hi)
    if kind == "number":
        lo = round(rng.uniform(-20, 20), rng.randint(0, 3))
        hi = round(lo + rng.uniform(0.01, 30), 3)
        return {"type": "number", "minimum": lo, "maximum": hi}, lambda: min(hi, max(lo, round(rng.uniform(lo, hi), rng.randint(0, 5)))) + 0.0
    if kind == "boolean":
        return {"type": "boolean"}, lambda: rng.random() < 0.5
    if kind == "null":
        return {"type": "null"}, lambda: None
    if kind in ("enum", "const"):
        values = [rng.choice([text(2), rng.randint(-5, 500), 2.5, None, True, [1, "x"], {"q": {}}]) for _ in range(3)]
        return ({"enum": values}, lambda: rng.choice(values)) if kind == "enum" else ({"const": values[0]}, lambda: values[0])
    if kind == "object":
        parts = {rng.choice("abcdefghij") + str(i): random_schema(rng, depth - 1) for i in range(rng.randint(0, 4))}
        required = [k for k in parts if rng.random() < 0.5]
        schema = {"type": "object", "properties": {k: s for k, (s, _) in parts.items()}, "required": required}
        extra = rng.random() < 0.4
        more = random_schema(rng, 0)
        schema["additionalProperties"] = more[0] if extra else False

        def make():
            out = {k: m() for k, (_, m) in parts.items() if k in required or rng.random() < 0.5}
            if extra and rng.random() < 0.5:
                out["other " + text(2)] = more[1]()
            return out
        return schema, make
    if kind == "array":
        item, make = random_schema(rng, depth - 1)
        prefix = [random_schema(rng, depth - 1) for _ in range(rng.choice([0, 0, 2]))]
        lo = rng.randint(0, 4)
        hi = lo + rng.randint(0, 4)
        schema = {"type": "array", "items": item, "minItems": lo, "maxItems": hi}
        if prefix:
            schema["prefixItems"] = [s for s, _ in prefix]
        return schema, lambda: [prefix[i][1]() if i < len(prefix) else make() for i in range(rng.randint(lo, hi))]
    if kind == "anyOf":
        options = [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]
        return {"anyOf": [s for s, _ in options]}, lambda: rng.choice(options)[1]()
    if kind == "allOf":
        schema, make = random_schema(rng, depth - 1)
        return {"allOf": [schema, True, {"title": "x"}]}, make
    return {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}, "required": ["next"]}, lambda: {"next": {"l": {"l": {}}}}


def test_random_schemas(tool, sanitized):
    for seed in range(60 if sanitized else 250):
        rng = random.Random(seed)
        schema, make = random_schema(rng, 3)
        schema = {"$defs": {"list": {"type": "object", "properties": {"l": {"$ref": "#/$defs/list"}}}}, **schema}
        assert tool.schema(schema) == "ok", (seed, schema)
        valid = validator(schema)
        for k in range(6):
            value = make()
            assert valid.is_valid(value), (seed, schema, value)
            for separators in ((",", ":"), (", ", ": "), None):
                text = json.dumps(value, ensure_ascii=False, separators=separators) if separators else json.dumps(value, ensure_ascii=False, indent=2)
                assert tool.text(text) == "yes", (seed, json.dumps(schema), text)
        for k in range(3):
            text = tool.walk(seed * 10 + k, 120)
            assert text is None or valid.is_valid(json.loads(text)), (seed, json.dumps(schema), text)


# ---- speed ------------------------------------------------------------------------------------------------------------

PERSON = {"type": "array", "items": {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 100}, "bio": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10}, "kind": {"enum": ["person", "robot", "other"]}}, "required": ["name", "bio", "age", "tags", "kind"]}}


def test_masks_of_a_large_vocabulary_are_quick(built_tool, shared_dir, sanitized):
    vocab = shared_dir / "vocabs" / "ggml-vocab-llama-bpe.gguf"
    if not vocab.exists():
        pytest.skip(f"no {vocab}")
    for attempt in range(3):        # a busy machine slows even processor time down
        tool = Tool(built_tool("grammar_tool", "WEFT_GRAMMAR_TOOL"), vocab)
        assert tool.schema(PERSON) == "ok"
        means = []
        for seed in range(12):
            tool.walk(seed, 300)
            figures = tool.ask(b"time\n")
            setup, mean = (float(re.search(rf"{name} ([\d.]+) ms", figures)[1]) for name in ("setup", "mean"))
            means.append(mean)
        tool.close()
        if sanitized or (setup < 1000 and sum(means) / len(means) < 0.4):       # 2 % of a token that takes 20 ms
            return
    pytest.fail(f"{figures}; means in ms: {means}")


# ---- the command ------------------------------------------------------------------------------------------------------

def test_run_generates_what_the_schema_says(run_weft, tinypy):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["name", "n"]}
    for seed in range(3):
        done = run_weft(["run", "-m", tinypy, "-p", "x = ", "-n", "200", "-s", seed, "-j", json.dumps(schema)])
        assert done.returncode == 0, done.err
        assert validator(schema).is_valid(json.loads(done.out)), done.out


def test_run_says_what_is_not_enforced(run_weft, tinypy):
    done = run_weft(["run", "-m", tinypy, "-p", "a", "-n", "300", "-j", '{"type":"array","items":{"type":"boolean"},"format":"odd","wide":1,"contains":{}}'])
    assert done.returncode == 0 and all(isinstance(x, bool) for x in json.loads(done.out)), done.out
    assert re.findall(r"warning: schema at #, (\w+)", done.err) == ["wide", "contains"], done.err       # a format of strings says nothing of an array


def test_run_with_a_grammar_or_a_regex(run_weft, tinypy, tmp_path):
    path = tmp_path / "g.gbnf"
    path.write_text('root ::= "yes" | "no"\n')
    assert run_weft(["run", "-m", tinypy, "-p", "a", "--grammar-file", path]).out in ("yes", "no")
    assert re.fullmatch(r"[a-c]{3}-\d", run_weft(["run", "-m", tinypy, "-p", "a", "--regex", r"[a-c]{3}-\d"]).out)


@pytest.mark.parametrize("args,status,message", [
    (["--regex", "(a"], 1, "--regex: regular expression, offset 0"), (["--grammar", "root ::= x"], 1, "--grammar: line 1: rule 'x' is not defined"),
    (["-j", '{"minLength":-1}'], 1, "--json-schema: schema at #, minLength"), (["-j", "{}", "--regex", "a"], 2, "more than once"),
    (["--grammar-file", "/nonexistent"], 1, "/nonexistent"), (["-j", "{}", "--ignore-eos"], 2, "--ignore-eos")])
def test_run_refuses(run_weft, tinypy, args, status, message):
    done = run_weft(["run", "-m", tinypy, "-p", "a", *args])
    assert done.returncode == status and message in done.err and not done.out, done.err


# bounds between which there are numbers, and one of these; what the texts must be like
FAR = [
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-7}, "0.00000005", True),
    ({"type": "number", "exclusiveMinimum": 1e-7, "exclusiveMaximum": 1.1e-7}, "0.000000105", True),
    ({"type": "number", "minimum": -1e-5, "exclusiveMaximum": 0}, "-0.00001", True),
    ({"type": "number", "exclusiveMinimum": -1e-9, "exclusiveMaximum": 0}, "-0.0000000005", True),
    ({"type": "number", "minimum": 1e20, "maximum": 1e21}, "5" + "0" * 20, False),
    ({"type": "number", "minimum": 1e20}, "5" + "0" * 20, False),
    ({"type": "number", "maximum": -1e16}, "-5" + "0" * 16, False),
    ({"type": "integer", "minimum": 10**18, "maximum": 2 * 10**18}, "1" + "5" * 18, False),
    ({"type": "integer", "maximum": -(10**18)}, "-1" + "5" * 18, False),
    ({"type": "number", "minimum": 1e-300, "maximum": 1e-299}, None, False),
]


@pytest.mark.parametrize("schema, one, enforced", FAR, ids=lambda x: json.dumps(x) if isinstance(x, dict) else "")
def test_bounds_that_are_near_or_far(tool, schema, one, enforced):
    """Numbers lie within them: what a grammar does not enforce is a note, in strict mode an error, and never "matches nothing"."""
    said = tool.schema(schema)
    assert said[0] != "!" and ("is enforced" in said or "not enforced" in said) != enforced, said
    assert one is None or tool.text(one) == "yes"
    for seed in range(5):
        text = tool.walk(seed)
        assert text is None or not enforced or validator(schema).is_valid(json.loads(text)), text
    assert (tool.strict(schema)[0] == "!") == (not enforced)


@pytest.mark.parametrize("schema", [{"type": "number", "minimum": 2, "maximum": 1}, {"type": "integer", "minimum": 0.2, "maximum": 0.8},
                                    {"type": "integer", "minimum": 2e18, "maximum": 1e18}, {"type": "number", "exclusiveMinimum": 1e20, "maximum": 1e20}], ids=json.dumps)
def test_bounds_with_nothing_between(tool, schema):
    assert tool.schema(schema)[0] == "!"
