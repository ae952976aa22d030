"""The folder rule: each folder of src/ uses only the folders to its left, and a few things live in one place only.

`problems` looks at a tree and says what breaks the rule; the tests hold Weft's own tree to it, and then break a small tree
in every way, so that a checker that sees nothing does not pass.
"""
import collections
import re
import subprocess
import sys

import pytest

ORDER = ["base", "graph", "model", "schedule", "codegen", "compile", "render", "device", "text", "grammar", "chat", "media", "engine", "serve", "app"]
BESIDE = {("model", other) for other in ("schedule", "codegen", "compile", "render", "device")}  # the first knows nothing of the second, nor the other way round
MAX_LINES = 1000
GENERATED = {"device/code_version.h", "engine/rows_version.h", "engine/cpu_profile_files.h", "serve/page_files.h", "app/commit.h"}  # headers that the build makes

INCLUDE = re.compile(r'^\s*#\s*(?:include|import)\s*"([^"]+)"', re.M)
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(|\bextern\s+char\s*\*\*\s*environ\b")
INTRINSICS = re.compile(r"\b(?:\w*mmintrin|immintrin|x86intrin|arm_neon|arm_sve)\.h\b|\b__builtin_ia32\w*|\b_mm(?:256|512)?_\w+")
STATIC_FUNCTION = re.compile(r"^static\s[^;={}()]*?\b(\w+)\s*\(", re.M)
SYSTEM = re.compile(r"/(?:linux|macos|windows|other)/")  # folders of systems: a file there takes the place of the one above
SYSTEM_ASKED = re.compile(r"^\s*#.*\b(?:__linux__|__APPLE__|_WIN32|_WIN64|__MINGW32__)\b", re.M)
SYSTEM_FILES = {"src/base/os.h", "src/base/embed.h"}
HINT = re.compile(r"\bt_contiguous\s*\(|\bOP_CONTIGUOUS\b")
COMMENT_OR_TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)


# What gives other results after setlocale; src/base/plain.h has the functions in their place.  The command itself has no locale.
OF_LOCALES = re.compile(r"(?<![\w.>])(?:strto(?:d|f|ld)|ato[f]|vs?n?printf|vsscanf|strn?casecmp|strcasestr|strcoll|strxfrm|strftime|is(?:alnum|alpha|digit|space|upper|lower|"
                        r"print|punct|cntrl|xdigit|graph|blank)|to(?:upper|lower)|json_dump\w*|json_loads|json_loadb|json_loadf|json_load_\w+)\s*\(")
REAL = re.compile(r"""(?<![\w.>])(?:snprintf|sprintf|[sf]?scanf)\s*\([^;"]*(?:"(?:\\.|[^"\\\n])*"\s*(?:PRI\w+\s*)?)*?"(?:\\.|[^"\\\n])*(?<!%)%[-+ #0-9.*]*l?[aefgAEFG]""")
WITHOUT_LOCALES = {"base/plain.c", "base/plain.h", "base/json.c"}


def without_comments(text):
    return COMMENT_OR_TEXT.sub(lambda m: "\n" * m.group().count("\n") if m.group()[0] == "/" else m.group(), text)


def problems(root):
    """What in root/src and root/include breaks the rule, one line each."""
    found = []
    src = root / "src"
    for folder in sorted(p.name for p in src.iterdir() if p.is_dir()):
        if folder not in ORDER:
            found.append(f"src/{folder}: not a folder of the design")
    for folder in ORDER:
        if not any((src / folder / f"{folder}.{kind}").exists() for kind in "ch"):
            found.append(f"src/{folder}: no file is named after it")
    for path in sorted(p for top in (src, root / "include") for p in top.rglob("*") if p.suffix in (".c", ".h", ".m")):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        code = without_comments(text)
        folder = path.relative_to(src).parts[0] if src in path.parents else None
        if text.count("\n") > MAX_LINES:
            found.append(f"{name}: {text.count(chr(10))} lines, more than {MAX_LINES}")
        if not text.lstrip().startswith(("//", "/*")):
            found.append(f"{name}: does not open with a comment that says what it is for")
        if GETENV.search(code) and name != "src/base/env.c":
            found.append(f"{name}: reads the environment, which only src/base/env.c may")
        if SYSTEM_ASKED.search(code) and not SYSTEM.search(name) and name not in SYSTEM_FILES:
            found.append(f"{name}: asks for the system, which is for src/base/os.h and folders of systems")
        if INTRINSICS.search(code) and folder != "render":
            found.append(f"{name}: machine intrinsics, which only src/render/ may name")
        if folder == "model":
            found += [f"{name}:{n}: stores a value, and no comment on it or above says why" for n in hints_without_reason(text)]
        for included in INCLUDE.findall(code):
            trouble = include_problem(root, folder, included)
            if trouble:
                found.append(f"{name}: includes \"{included}\": {trouble}")
    return found


def hints_without_reason(text):
    """Lines that ask for a value to be stored whatever costs say, and have no comment of their own or on the line above."""
    lines = [""] + text.splitlines()
    return [n for n in range(1, len(lines)) if HINT.search(lines[n].split("//")[0]) and "//" not in lines[n] + lines[n - 1]]


def include_problem(root, folder, included):
    """Why a file of src/<folder> (None: of include/) may not include this, or None."""
    if folder is None:
        return None if (root / "include" / "weft" / included.removeprefix("weft/")).exists() else "the public headers stand alone"
    if included == "weft.h":
        return None if folder in ("engine", "serve", "app") else "only engine/ (which implements it), serve/ and app/ use the public header"
    other, _, rest = included.partition("/")
    if not rest or other not in ORDER:
        return "not of the form \"folder/name.h\""
    if included not in GENERATED and not (root / "src" / included).exists():
        return "no such file"
    if ORDER.index(other) > ORDER.index(folder):
        return f"{other}/ stands to the right of {folder}/"
    if (folder, other) in BESIDE or (other, folder) in BESIDE:
        return f"{other}/ and {folder}/ stand side by side"
    if folder == "app" and other not in ("app", "base") and included != "serve/serve.h":
        return "app/ uses only weft.h, serve/serve.h and base/"
    if folder == "serve" and other not in ("serve", "base"):
        return "serve/ uses only weft.h and base/"
    return None


def of_locales(root):
    """Where a folder of the library reads or writes as the program's locale says."""
    found = []
    for path in sorted(p for folder in ORDER if folder not in ("serve", "app") for p in (root / "src" / folder).rglob("*") if p.suffix in (".c", ".h", ".m")):
        name = path.relative_to(root / "src").as_posix()
        if name in WITHOUT_LOCALES or SYSTEM.search("/" + name):
            continue
        text = path.read_text(encoding="utf-8")
        bare = re.sub(r"^\s*#define.*", "", without_comments(text), flags=re.M)
        found += [f"src/{name}: {m.group().rstrip('( ')}" for m in OF_LOCALES.finditer(bare)]
        found += [f"src/{name}: {m.group()[:20]}... of a real number" for m in REAL.finditer(text)]
    return found


def shared_names(root):
    """Of each name of a static function that more than one file of root/src defines, the files; those of systems are one file."""
    files = collections.defaultdict(set)
    for path in (p for p in (root / "src").rglob("*") if p.suffix in (".c", ".m")):
        for name in STATIC_FUNCTION.findall(without_comments(path.read_text(encoding="utf-8"))):
            files[name].add(SYSTEM.sub("/", path.relative_to(root / "src").as_posix()))
    return {name: sorted(where) for name, where in files.items() if len(where) > 1}


def test_tree(repo):
    assert problems(repo) == []


def test_static_functions_have_names_of_their_own(repo):
    assert shared_names(repo) == {}, "find a name that says what the function does in terms of its file"


DEFINED = re.compile(r"^(?!(?:\w+ )?static\b|typedef\b|__attribute__)[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)\s*\{", re.M)


def lacking(root):
    """Functions that a file has for one system and the file of that name for another system has not."""
    variants = collections.defaultdict(dict)
    for path in (root / "src").rglob("*.c"):
        name = path.relative_to(root / "src").as_posix()
        code = re.sub(r"^#.*$", "", without_comments(path.read_text(encoding="utf-8")), flags=re.M)
        variants[SYSTEM.sub("/", name)][name] = set(DEFINED.findall(code))
    return [f"{name}: no {function}()" for of in variants.values() for name, has in of.items() for function in sorted(set().union(*of.values()) - has)
            if not (name.endswith("/recv.c") and function in {"recv", "gnutls_record_recv"})]


def test_files_of_systems_have_the_same_functions(repo, tmp_path):
    assert lacking(repo) == []
    for system in ("linux", "other"):
        (tmp_path / "src/base" / system).mkdir(parents=True)
        (tmp_path / "src/base" / system / "x.c").write_text("// x\nint both(void) { return 1; }\nstatic int own(void) { return 1; }\n")
    assert lacking(tmp_path) == []
    with open(tmp_path / "src/base/linux/x.c", "a") as f:
        f.write("void *more(int a,\n           int b) {\n  return 0;\n}\n")
    assert lacking(tmp_path) == ["base/other/x.c: no more()"]


@pytest.fixture
def tree(tmp_path):
    """A small tree that keeps the rule."""
    for folder in ORDER:
        (tmp_path / "src" / folder).mkdir(parents=True)
        (tmp_path / "src" / folder / f"{folder}.h").write_text("// what it is for\n")
    (tmp_path / "src/base/env.c").write_text('// env\n#include <stdlib.h>\nchar *f(void) { return getenv("A"); }\n')
    (tmp_path / "src/graph/rule.c").write_text('// rules; "immintrin.h" and getenv() in a comment are no harm\n#include "base/base.h"\n')
    (tmp_path / "src/app/main.c").write_text('// main\n#include "weft.h"\n#include "base/base.h"\n')
    (tmp_path / "src/serve/http.h").write_text("// http\n")
    (tmp_path / "include/weft").mkdir(parents=True)
    (tmp_path / "include/weft/base.h").write_text("// errors\n")
    (tmp_path / "include/weft/file.h").write_text('// files\n#include "base.h"\n')
    (tmp_path / "include/weft.h").write_text('// public\n#include "weft/base.h"\n')
    return tmp_path


def wrap(repo, *files):
    return subprocess.run([sys.executable, repo / "scripts/wrap.py", "--check", *files], capture_output=True, text=True)


def test_no_line_is_too_long(repo, tmp_path):
    run = wrap(repo)
    assert run.returncode == 0, run.stderr + "scripts/wrap.py wraps them"
    (tmp_path / "x.c").write_text("// x\n" + "int " + "a" * 116 + ";\n")
    run = wrap(repo, tmp_path / "x.c")
    assert run.returncode == 1 and "x.c:2: 121 columns, more than 120" in run.stderr


def test_a_good_tree_passes(tree):
    assert problems(tree) == []


@pytest.mark.parametrize("path, text, expected", [
    ("src/graph/x.c", '// x\n#include "device/device.h"\n', "device/ stands to the right of graph/"),
    ("src/render/x.c", '// x\n#include "device/code_version.h"\n', "device/ stands to the right of render/"),
    ("src/base/x.h", '// x\n#include "graph/graph.h"\n', "graph/ stands to the right of base/"),
    ("src/device/x.c", '// x\n#include "model/model.h"\n', "model/ and device/ stand side by side"),
    ("src/schedule/x.c", '// x\n#include "model/model.h"\n', "model/ and schedule/ stand side by side"),
    ("src/text/x.c", '// x\n#include "grammar/grammar.h"\n', "grammar/ stands to the right of text/"),
    ("src/app/x.c", '// x\n#include "engine/engine.h"\n', "app/ uses only weft.h"),
    ("src/app/x.c", '// x\n#include "serve/http.h"\n', "app/ uses only weft.h"),
    ("src/serve/x.c", '// x\n#include "engine/engine.h"\n', "serve/ uses only weft.h"),
    ("src/engine/x.c", '// x\n#include "serve/serve.h"\n', "serve/ stands to the right of engine/"),
    ("src/model/x.c", '// x\n#include "weft.h"\n', "only engine/"),
    ("src/model/x.c", '// x\n#include "model.h"\n', "not of the form"),
    ("src/model/x.c", '// x\n#include "../graph/graph.h"\n', "not of the form"),
    ("src/model/x.c", '// x\n  #  include "base/nothing.h"\n', "no such file"),
    ("src/device/x.c", '// x\nchar *f(void) { return getenv ("HOME"); }\n', "reads the environment"),
    ("src/base/x.c", '// x\nchar *f(void) { return secure_getenv("HOME"); }\n', "reads the environment"),
    ("src/device/x.c", "// x\n#include <immintrin.h>\n", "machine intrinsics"),
    ("src/device/x.c", "// x\n#include <arm_neon.h>\n", "machine intrinsics"),
    ("src/codegen/x.c", "// x\nvoid f(void) { __builtin_ia32_pause(); }\n", "machine intrinsics"),
    ("src/codegen/x.c", "// x\nvoid f(void) { a = _mm512_setzero_ps(); }\n", "machine intrinsics"),
    ("src/codegen/x.c", "int a;\n", "does not open with a comment"),
    ("src/codegen/x.c", "// x\n" + "\n" * MAX_LINES, "1001 lines"),
    ("src/kernels/x.c", "// x\n", "not a folder of the design"),
    ("src/device/x.c", '// x\nconst char *s = "//"; char *f(void) { return getenv(s); }\n', "reads the environment"),
    ("src/model/x.c", "// x\nint a;\ntensor *f(graph *g, tensor *x) { return t_contiguous(g, x); }\n", "x.c:3: stores a value"),
    ("src/device/x.c", "// x\n#ifdef _WIN32\n#endif\n", "asks for the system"),
    ("include/weft.h", '// x\n#include "base/base.h"\n', "stand alone"),
])
def test_a_broken_tree_is_seen(tree, path, text, expected):
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text(text)
    found = problems(tree)
    assert len(found) == 1 and expected in found[0], found


def test_a_folder_without_its_file_is_seen(tree):
    (tree / "src/text/text.h").unlink()
    assert problems(tree) == ["src/text: no file is named after it"]


def test_intrinsics_in_render_are_allowed(tree):
    (tree / "src/render/x86.c").write_text('// names _mm512_add_ps in text\nconst char *s = "_mm512_add_ps";\n')
    assert problems(tree) == []


def test_a_hint_with_its_reason_is_allowed(tree):
    (tree / "src/model/x.c").write_text("// x\nint a;\n// many read it\nx = t_contiguous(g, x);\nx = t_contiguous (g, x);  // and this\n// why t_contiguous() is here\n")
    assert problems(tree) == []


def test_the_library_has_no_locale(repo, tree):
    assert of_locales(repo) == []
    (tree / "src/serve").mkdir(exist_ok=True)
    (tree / "src/serve/x.c").write_text("// x\nint a = strtod(x, 0);\n")
    assert of_locales(tree) == []
    lines = ("strtod(x, 0)", "x = isalnum (c)", "vsnprintf(a, b, f, v)", 'snprintf(a, n, "%d %5.2f", 1, x)', 'sscanf(a, "%s " "%lf", x)', "json_dumps(o, 0)", "strcasecmp(a, b)", "atof(a)")
    for line in lines:
        (tree / "src/model/x.c").write_text(f"// x strtod(\nint a;\n{line};\n")
        assert len(of_locales(tree)) == 1, line
    (tree / "src/model/x.c").write_text('// strtod(x)\nplain_strtod(x); s->strtod(x); snprintf(a, n, "%d%%f %s", 1, "x%"); error_set(e, "%g", x);\n')
    assert of_locales(tree) == []


def test_a_shared_name_is_seen(tree):
    (tree / "src/text/x.c").write_text("// x\nstatic int twice(void);\nstatic int twice(void) { return 1; }\n// static int add(void)\n")
    (tree / "src/model/x.c").write_text('// x\nstatic const char *add(void) { return "";\n}\nint f(void) { return twice(); }\n')
    assert shared_names(tree) == {}
    (tree / "src/engine/x.c").write_text("// x\nstatic void *twice(void) { return 0; }\n")
    assert shared_names(tree) == {"twice": ["engine/x.c", "text/x.c"]}
