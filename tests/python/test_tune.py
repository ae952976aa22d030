"""weft tune, BEAM and weft cache: what is found is kept and changes no bit, whatever happens to the cache."""
import json
import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import time

import pytest

STATES = {"small", "known", "not_run", "no_gain", "dropped", "better"}
ROW = {"name", "role", "plan", "count", "share", "state", "before_us", "after_us", "tried", "compiled", "wrong", "opts", "why", "cut_short"}
LAYOUT = {"weight", "role", "layout", "state", "share", "ratio"}
LAYOUTS = ("rows", "file", "tiles2", "tiles4")
PROMPT = "def main():\n    for i in range(10):\n        print(i)\n"


@pytest.fixture(scope="module")
def tuned(run_weft, tinypy, tmp_path_factory):
    """A cache folder that a tuning filled, what it said, and its seconds: more where a busy machine lets fewer than two kernels be searched in two."""
    def fill(budget):
        folder = tmp_path_factory.mktemp("tuned")
        folder.chmod(0o700)
        return folder, tune(run_weft, tinypy, folder, budget=budget), budget
    return with_more_time(2, fill, lambda found: len(searched_of(found[1])) >= 2)


def with_more_time(budget, search, is_enough):
    """What search(seconds) found: it gets eight times the seconds, up to twice, where a busy machine let it try too little."""
    for seconds in (budget, 8 * budget, 64 * budget):
        found = search(seconds)
        if is_enough(found):
            break
    return found


def searched_of(result):
    return [k for k in result["kernels"] if k["state"] in ("no_gain", "dropped", "better")]


def tune(run_weft, model, cache, *args, budget=2, **env):
    done = run_weft(["tune", "-m", model, "--beam", 2, "--budget", budget, "--json", "-c", 256, *args], env={"WEFT_CACHE": cache, **env})
    assert done.returncode == 0, done.err
    result = json.loads(done.out)
    assert set(result) == {"seconds", "token_us", "chunk_us", "token_bytes", "limit_gb_s", "chunk", "kernels", "layouts"}
    assert all(set(w) == LAYOUT and w["state"] in {"known", "not_tried", "same", "dropped", "better"} and w["layout"] in LAYOUTS for w in result["layouts"])
    assert all(set(k) == ROW and k["state"] in STATES for k in result["kernels"])
    return result


def logprobs(run_weft, model, cache, prompt=("-p", PROMPT), **env):
    done = run_weft(["run", "-m", model, *prompt, "-n", 8, "--temp", 0, "--json", "--top-logprobs", 3, "-c", 256], env={"WEFT_CACHE": cache, **env})
    assert done.returncode == 0, done.err
    return done.out, done.err


def list_cache(run_weft, cache, *args):
    done = run_weft(["cache", "list", "--json", *args], env={"WEFT_CACHE": cache})
    assert done.returncode == 0, done.err
    return json.loads(done.out)


def test_finds_and_keeps(tuned, run_weft, tinypy):
    folder, first, _ = tuned
    plans = {k["plan"] for k in first["kernels"]}
    assert plans == {"token", "prompt"}
    searched = searched_of(first)
    assert len(searched) >= 2 and all(k["tried"] > 0 for k in searched)
    for k in first["kernels"]:
        assert k["state"] != "better" or (k["opts"] and k["after_us"] < k["before_us"])
        assert k["state"] != "not_run" or k["why"]
    for us in (first["token_us"], first["chunk_us"]):
        assert us[1] <= us[0] * 1.001
    assert sum(k["share"] for k in first["kernels"]) == pytest.approx(2, rel=1e-3)
    tunings = [e for e in list_cache(run_weft, folder) if e["kind"] == "tuning"]
    layouts = [w for w in first["layouts"] if w["state"] != "not_tried"]
    assert layouts and len(tunings) == len(searched) + len(layouts) and all(e["sound"] and e["current"] for e in tunings)


def test_second_run_reuses(tuned, run_weft, tinypy):
    folder, first, _ = tuned
    known = {(k["plan"], k["role"]) for k in searched_of(first)}
    began = time.time()
    second = tune(run_weft, tinypy, folder, budget=.1)
    assert known <= {(k["plan"], k["role"]) for k in second["kernels"] if k["state"] == "known"}
    assert time.time() - began < 20


def test_goes_on(tuned, run_weft, tinypy):
    """A search that time ended says so, is not repeated in the same time, and goes on when there is much more."""
    folder, first, seconds = tuned
    cut = {(k["plan"], k["role"], k["name"]) for k in first["kernels"] if k["cut_short"]}
    listed = [e for e in list_cache(run_weft, folder) if e["kind"] == "tuning"]
    assert cut and len([e for e in listed if e["cut_s"] > 0]) >= len(cut)
    # kernels share the time as they measure now, on a busy machine up to several times more or less than before
    again = tune(run_weft, tinypy, folder, "--no-prompt", budget=seconds / 8)
    assert not any(k["tried"] for k in again["kernels"] if k["state"] != "not_run" and (k["plan"], k["role"], k["name"]) in cut)
    more = tune(run_weft, tinypy, folder, "--no-prompt", budget=3 * seconds)
    assert any(k["tried"] for k in more["kernels"] if (k["plan"], k["role"]) in {c[:2] for c in cut})


def test_same_bits(tuned, run_weft, tinypy):
    """With tunings or without: the same text, and the same log-probabilities to the last digit."""
    assert logprobs(run_weft, tinypy, tuned[0])[0] == logprobs(run_weft, tinypy, "off")[0]


def test_beam_variable(run_weft, tinypy, cache_dir):
    """BEAM=N searches when a model is loaded; the next run finds the results, and compiles nothing."""
    few = ["-v", "--ids", "1,2,3"]                # no plan for prompts is made: half the work
    plain = logprobs(run_weft, tinypy, "off", few)[0]
    assert logprobs(run_weft, tinypy, cache_dir, few, BEAM=1, BEAM_SKIP_MS=1)[0] == plain
    assert any(e["kind"] == "tuning" for e in list_cache(run_weft, cache_dir))
    text, err = logprobs(run_weft, tinypy, cache_dir, few)
    assert text == plain and " 0 kernels" in err


@pytest.mark.parametrize("way", ["background", "always", "now"])
def test_tune_variable(run_weft, tinypy, cache_dir, tmp_path, way):
    """WEFT_TUNE: tokens and log-probabilities are what they are without, and the figures say what came of it. (tests/engine/test_online_tuner.c has it find something.)"""
    stats = tmp_path / "stats"

    def run(cache, **env):
        done = run_weft(["run", "-m", tinypy, "--ids", "1,2,3", "-n", 150, "--temp", 0, "--json", "--top-logprobs", 3, "-c", 256, "--stats", stats], env={"WEFT_CACHE": cache, **env})
        assert done.returncode == 0, done.err
        return done.out

    plain = run("off")
    assert json.loads(stats.read_text())["tune_state"] is None
    assert run(cache_dir, WEFT_TUNE=way, BEAM_SKIP_MS=1) == plain
    figures = json.loads(stats.read_text())
    assert figures["tune_better"] <= figures["tune_tried"] and figures["tune_cost"] < .03
    assert (figures["tune_state"] is None) == (way == "now")
    if way == "now":
        assert any(e["kind"] == "tuning" for e in list_cache(run_weft, cache_dir))


@pytest.mark.parametrize("env, words", [({"NOOPT": "1"}, "NOOPT"), ({"DEV": "REF"}, "no kernels to tune"), ({"WEFT_CACHE": "off"}, "cache is off")])
def test_nothing_to_tune(run_weft, tinypy, cache_dir, env, words):
    done = run_weft(["tune", "-m", tinypy, "-c", "256"], env={"WEFT_CACHE": cache_dir, **env})
    assert done.returncode == 1 and words in done.err


@pytest.mark.parametrize("args", [[], ["-m", "x", "--beam", "0"], ["-m", "x", "--beam", "65"], ["-m", "x", "--budget", "0"], ["-m", "x", "--budget", "nan"], ["-m", "x", "extra"]])
def test_bad_tune(run_weft, args):
    assert run_weft(["tune", *args]).returncode == 2


# ---- the cache command ---------------------------------------------------------------------------------------------------


def test_export_import(tuned, run_weft, tinypy, cache_dir, tmp_path):
    folder, first, _ = tuned
    path = tmp_path / "tunings.json"
    assert run_weft(["cache", "export", path], env={"WEFT_CACHE": folder}).returncode == 0
    data = json.loads(path.read_text())
    assert data["weft_tunings"] == 1 and data["tunings"]
    assert all(set(t) == {"name", "role", "opts", "before_us", "after_us", "cut_s", "machine", "compiler", "ir"} for t in data["tunings"])
    done = run_weft(["cache", "import", path], env={"WEFT_CACHE": cache_dir})
    assert done.returncode == 0 and f"{len(data['tunings'])} tuning" in done.err
    again = run_weft(["cache", "export", "-"], env={"WEFT_CACHE": cache_dir})
    key = lambda t: (t["name"], t["ir"])
    assert sorted(json.loads(again.out)["tunings"], key=key) == sorted(data["tunings"], key=key)
    known = [k for k in tune(run_weft, tinypy, cache_dir, budget=.1)["kernels"] if k["state"] == "known"]
    assert known
    assert logprobs(run_weft, tinypy, cache_dir)[0] == logprobs(run_weft, tinypy, "off")[0]


@pytest.mark.parametrize("form", ["q4_0", "f16"])
def test_layouts(run_weft, shared_dir, cache_dir, tmp_path, form):
    """Every weight in another layout, as a tuning may say: the same bits, behind a prompt and behind tokens, and other kernels.
    Plain floats keep the layout of the rules in place of the file's, in which their sums would have another order."""
    model = shared_dir / "models" / f"tinypy-{form}.gguf"
    got = LAYOUTS if form == "q4_0" else ("rows", "rows", *LAYOUTS[2:])
    rows = with_more_time(.3, lambda seconds: tune(run_weft, model, cache_dir, "--no-prompt", budget=seconds)["layouts"],
                          lambda rows: any(w["state"] != "not_tried" for w in rows))
    exported = json.loads(run_weft(["cache", "export", "-"], env={"WEFT_CACHE": cache_dir}).out)
    mine = [t for t in exported["tunings"] if t["name"].startswith("weight ")]
    assert {t["name"] for t in mine} == {w["weight"] for w in rows if w["state"] != "not_tried"} and mine
    want, kernels = logprobs(run_weft, model, "off")[0], set()
    for layout in range(len(LAYOUTS)):
        for t in mine:
            t["opts"] = f"LAYOUT(0, {layout})"
        path = tmp_path / "layouts.json"
        path.write_text(json.dumps({**exported, "tunings": mine}))
        assert run_weft(["cache", "clear"], env={"WEFT_CACHE": cache_dir}).returncode == 0
        assert run_weft(["cache", "import", path], env={"WEFT_CACHE": cache_dir}).returncode == 0
        assert logprobs(run_weft, model, cache_dir)[0] == want
        kernels.add(tuple(sorted(e["name"] for e in list_cache(run_weft, cache_dir) if e["kind"] in ("kernel", "filling"))))
        assert all(w["state"] == "known" and w["layout"] == got[layout] for w in tune(run_weft, model, cache_dir, "--no-prompt", budget=.1)["layouts"] if w["weight"] in {t["name"] for t in mine})
    assert len(kernels) >= 3
    for bad in (f"LAYOUT(0, {len(LAYOUTS)})", "UPCAST(0, 2)", "LAYOUT(0, 1) LAYOUT(0, 1)"):
        path.write_text(json.dumps({**exported, "tunings": [{**mine[0], "opts": bad}]}))
        done = run_weft(["cache", "import", path], env={"WEFT_CACHE": cache_dir})
        assert done.returncode == 1 and "layout" in done.err


def change(data, key, value):
    data["tunings"][0][key] = value
    return json.dumps(data)


BAD = {
    "no JSON": (lambda d: "{", "line 1"),
    "an array": (lambda d: "[]", "not a file of tunings"),
    "another form": (lambda d: json.dumps({**d, "weft_tunings": 2}), "form 2"),
    "no name": (lambda d: json.dumps({**d, "tunings": [{k: v for k, v in d["tunings"][0].items() if k != "name"}]}), "tunings[0]: 'name'"),
    "an unknown op": (lambda d: change(d, "opts", "FASTER(1, 2)"), "opts"),
    "two lines": (lambda d: change(d, "opts", "heuristic\nus 1 1"), "opts"),
    "another machine": (lambda d: change(d, "machine", "llvm z80 tune= bits=8"), "made for"),
    "no IR": (lambda d: change(d, "ir", ["nonsense"]), "ir"),
    "no kernel": (lambda d: change(d, "ir", ["%0 = CONST.idx 4"]), "not a kernel"),
    "IR as numbers": (lambda d: change(d, "ir", [1, 2]), "no text"),
    "a negative time": (lambda d: change(d, "before_us", -1), "before_us: -1"),
    "a long time": (lambda d: change(d, "after_us", 1e12), "after_us: 1e+12"),
    "a search of years": (lambda d: change(d, "cut_s", 1e300), "cut_s: 1e+300"),
    "a long name": (lambda d: change(d, "name", "x" * 500), "name: 'xxx"),
    "a role of two lines": (lambda d: change(d, "role", "a\nb"), "role: 'a"),
    "a long compiler": (lambda d: change(d, "compiler", "9" * 40), "compiler: '999"),
    "a time that is none": (lambda d: change(d, "after_us", "fast"), "no number"),
    "a NUL": (lambda d: change(d, "role", "a\0b"), "line 1"),
    "bad after good": (lambda d: json.dumps({**d, "tunings": d["tunings"] + [1]}), "'name'"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_import(tuned, run_weft, cache_dir, tmp_path, what):
    """Refused with a sentence, and nothing of the file is added."""
    spoil, words = BAD[what]
    data = json.loads(run_weft(["cache", "export", "-"], env={"WEFT_CACHE": tuned[0]}).out)
    data["tunings"].sort(key=lambda t: t["name"].startswith("weight "))
    path = tmp_path / "bad.json"
    path.write_text(spoil(data))
    done = run_weft(["cache", "import", path], env={"WEFT_CACHE": cache_dir})
    assert done.returncode == 1 and words in done.err, done.err
    assert list_cache(run_weft, cache_dir) == []


def test_hostile_lists(tuned, run_weft, tinypy, cache_dir, tmp_path):
    """Lists that do not suit their kernel are not used: the same bits, no crash."""
    data = json.loads(run_weft(["cache", "export", "-"], env={"WEFT_CACHE": tuned[0]}).out)
    seed = random.Random(1)
    kinds = ["UPCAST", "UNROLL", "LANES", "LOCAL", "GROUP", "GROUPTOP", "THREAD", "LOOP", "TC", "SWAP", "BLOCKS", "SEPARATE", "ORDER", "DESCRIPTOR", "LAYOUT", "PREFETCH"]
    data["tunings"] = [t for t in data["tunings"] if not t["name"].startswith("weight ")]
    for t in data["tunings"]:
        own = t["opts"] if t["opts"] != "heuristic" else ""
        t["opts"] = " ".join([own] + [f"{seed.choice(kinds)}({seed.randrange(6)}, {seed.choice([0, 2, 3, 8, 64, 1024])})" for _ in range(seed.randrange(1, 5))]).strip()
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(data))
    assert run_weft(["cache", "import", path], env={"WEFT_CACHE": cache_dir}).returncode == 0
    assert logprobs(run_weft, tinypy, cache_dir)[0] == logprobs(run_weft, tinypy, "off")[0]


def test_clear(tuned, run_weft, cache_dir):
    copy_of(tuned, cache_dir)
    kinds = lambda: {e["kind"] for e in list_cache(run_weft, cache_dir)}
    assert {"kernel", "tuning"} <= kinds()
    assert run_weft(["cache", "clear", "--tunings"], env={"WEFT_CACHE": cache_dir}).returncode == 0
    assert "kernel" in kinds() and "tuning" not in kinds()
    assert run_weft(["cache", "clear"], env={"WEFT_CACHE": cache_dir}).returncode == 0
    assert list_cache(run_weft, cache_dir) == []


def test_a_cache_of_a_month(tuned, run_weft, sanitized, cache_dir, tmp_path):
    """60 MB beside the tunings: more than SQLite sorts without a file of its own, which Landlock would refuse, and less memory than that."""
    path = copy_of(tuned, cache_dir)
    def command(*args, status=0):
        done = run_weft(["cache", *args], env={"WEFT_CACHE": cache_dir}, preexec_fn=None if sanitized else lambda: resource.setrlimit(resource.RLIMIT_DATA, (40 << 20, 40 << 20)))
        assert done.returncode == status, done.err
        return done.out
    tunings, exported = command("list", "--tunings").splitlines()[:-1], command("export", "-")
    kept = int(command("list").splitlines()[-1].split()[0])
    with sqlite3.connect(path) as db:
        db.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
                   " INSERT INTO kernel SELECT i, CAST('kernel ' || i AS BLOB), randomblob(60000), 0, 1700000000 - i * 2500, 'v' FROM n")
    assert path.stat().st_size > 60_000_000
    rows = command("list").splitlines()
    assert rows[-1].startswith(f"{kept + 1000} entries, ") and rows[-1].endswith(", 1000 damaged")
    times = [re.search(r" KiB  ([\d: -]{16}) ", line)[1] for line in rows[:-1]]
    assert times == sorted(times)
    assert command("list", "--tunings").splitlines()[:-1] == tunings and command("export", "-") == exported
    assert len(command("verify", status=1).splitlines()) == 1001
    (tmp_path / "t.json").write_text(exported)
    command("clear", "--tunings")
    assert len(command("list", "--tunings").splitlines()) == 1
    command("import", tmp_path / "t.json")
    by_kernel = lambda text: sorted(json.loads(text)["tunings"], key=lambda t: (t["name"], t["ir"]))
    assert by_kernel(command("export", "-")) == by_kernel(exported)
    command("clear")
    assert command("list").startswith("0 entries") and path.stat().st_size < 100_000


@pytest.mark.parametrize("args", [["nothing"], ["export"], ["import"], ["list", "file"], ["clear", "file"]])
def test_bad_cache(run_weft, args):
    assert run_weft(["cache", *args]).returncode == 2


def test_cache_off(run_weft):
    done = run_weft(["cache"], env={"WEFT_CACHE": "off"})
    assert done.returncode == 1 and "off" in done.err


# ---- what may happen to it ------------------------------------------------------------------------------------------------


def copy_of(tuned, cache_dir):
    """A copy of the cache: the database, and the secret to which its entries are bound."""
    (cache_dir / "kernels").mkdir(mode=0o700)
    for name in ["kernels-2.db", "key"]:
        path = cache_dir / "kernels" / name
        path.write_bytes((tuned[0] / "kernels" / name).read_bytes())
        path.chmod(0o600)
    return path.with_name("kernels-2.db")


def test_damaged_entries(tuned, run_weft, tinypy, cache_dir):
    """A tuning with a bit turned is found by verify, and not used."""
    path = copy_of(tuned, cache_dir)
    db = sqlite3.connect(path)
    rows = db.execute("SELECT hash, value FROM kernel WHERE substr(key, 1, 7) = CAST('tuning ' AS BLOB)").fetchall()
    assert rows
    for h, value in rows:
        db.execute("UPDATE kernel SET value = ? WHERE hash = ?", (bytes([value[0] ^ 1]) + value[1:], h))
    db.commit()
    db.close()
    done = run_weft(["cache", "verify"], env={"WEFT_CACHE": cache_dir})
    assert done.returncode == 1 and f"{len(rows)} damaged" in done.out
    assert logprobs(run_weft, tinypy, cache_dir)[0] == logprobs(run_weft, tinypy, "off")[0]


def test_damaged_file(tuned, run_weft, tinypy, cache_dir):
    path = copy_of(tuned, cache_dir)
    data = bytearray(path.read_bytes())
    for at in range(100, len(data), 509):
        data[at] ^= 0x55
    path.write_bytes(data)
    assert run_weft(["cache", "list"], env={"WEFT_CACHE": cache_dir}).returncode in (0, 1)
    assert tune(run_weft, tinypy, cache_dir, budget=.3)["kernels"]


def test_read_only(tuned, run_weft, tinypy, cache_dir):
    """Tunings that somebody else keeps are used; new ones are lost with a warning."""
    path = copy_of(tuned, cache_dir)
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        assert [k for k in tune(run_weft, tinypy, cache_dir, budget=.2)["kernels"] if k["state"] == "known"]
    finally:
        path.parent.chmod(0o700)


def test_killed(run_weft, weft, weft_env, tinypy, cache_dir):
    """kill -9 in the middle of a search: the next run works, and the cache is sound."""
    for ms in (300, 900, 1700):
        p = subprocess.Popen([weft, "tune", "-m", tinypy, "--budget", "3", "-c", "256"], env={**weft_env, "WEFT_CACHE": str(cache_dir)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(ms / 1e3)
        p.send_signal(signal.SIGKILL)
        p.wait()
    assert run_weft(["cache", "verify"], env={"WEFT_CACHE": cache_dir}).returncode == 0
    assert logprobs(run_weft, tinypy, cache_dir)[0] == logprobs(run_weft, tinypy, "off")[0]


def test_two_at_once(run_weft, weft, weft_env, tinypy, cache_dir):
    env = {**weft_env, "WEFT_CACHE": str(cache_dir)}
    both = [subprocess.Popen([weft, "tune", "-m", tinypy, "--beam", "1", "--budget", "1", "-c", "256"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(2)]
    for p in both:
        err = p.communicate(timeout=300)[1]
        assert p.returncode == 0, err
    assert run_weft(["cache", "verify"], env={"WEFT_CACHE": cache_dir}).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
@pytest.mark.parametrize("size", ["64k", "400k"])
def test_full_disk(run_weft, tinypy, cache_dir, size):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", cache_dir], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        done = run_weft(["tune", "-m", tinypy, "--beam", 1, "--budget", .5, "-c", 256, "--json"], env={"WEFT_CACHE": cache_dir})
        assert done.returncode in (0, 1) and (size != "64k" or "full" in done.err)             # 1: not even the kernels fit
        assert run_weft(["run", "-m", tinypy, "-p", PROMPT, "-n", 4], env={"WEFT_CACHE": cache_dir}).returncode == 0
    finally:
        subprocess.run(["umount", cache_dir], check=True)
