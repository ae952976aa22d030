"""weft doctor and weft uninstall: what they say against what the system says, a machine with faults, and the printed commands run."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKS = ["cpu", "threads", "memory", "huge pages", "LLVM", "server", "cache", "models", "devices", "sandbox", "variables"]


def doctor(run_weft, **env):
    done = run_weft(["doctor", "--json"], env=env)
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["fix"] else 0)
    rows = {}
    for row in told["checks"]:
        rows.setdefault(row["check"], []).append((row["state"], row["text"]))
    assert list(rows) == CHECKS                      # each subject once, its lines together
    states = [row["state"] for row in told["checks"]]
    assert (told["fix"], told["slow"]) == (states.count("fix"), states.count("slow"))
    return rows


def states(rows, check):
    return {state for state, _ in rows[check]}


def test_against_the_system(run_weft, weft_env):
    rows = doctor(run_weft)
    kib = int(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text()).group(1))
    gib = float(re.match(r"[\d.]+", rows["memory"][0][1]).group())
    assert abs(gib - kib / 2**20) < 0.06 or "control group" in rows["memory"][0][1]
    cores = int(re.search(r"on (\d+) core", rows["threads"][0][1]).group(1))
    assert 1 <= cores <= len(os.sched_getaffinity(0))
    thp = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if thp.exists():
        setting = re.search(r"\[(\w+)\]", thp.read_text()).group(1)
        assert rows["huge pages"][0][0] == ("slow" if setting == "never" else "ok")
        assert setting == "never" or rows["huge pages"][0][1] == setting
    env = json.loads(run_weft(["env", "--json"]).stdout)["machine"]
    assert (states(rows, "LLVM") == {"ok"}) == (env["llvm"] is not None)
    [(state, text)] = rows["server"]
    assert state == "ok" and re.fullmatch(r"libmicrohttpd \d+\.\d+\.\d+", text)
    assert rows["cache"][0] == ("ok", env["cache"]) and env["cache"].startswith(weft_env["XDG_CACHE_HOME"])


def test_a_line_a_check(run_weft):
    """A line a check, findings that are worse below it, and one at the end that counts them."""
    done = run_weft(["doctor"])
    lines = done.out.splitlines()
    first = [line[6:17].strip() for line in lines[:-1] if line[6:17].strip() and line[:5].strip()]
    assert first == CHECKS and all(len(line) <= 120 for line in lines)
    assert re.fullmatch(r"Nothing has to be done\.|\d+ to fix, \d+ slow\.", lines[-1])


@pytest.mark.parametrize("env, check, state, words", [
    ({"DEV": "CUDA", "LD_LIBRARY_PATH": "/none"}, "devices", "fix", "driver"),
    ({"DEV": "TPU"}, "devices", "fix", "TPU"),
    ({"WEFT_CPU": "pentium"}, "cpu", "fix", "pentium"),
    ({"WEFT_LLVM": "/none.so"}, "LLVM", "fix", "WEFT_LLVM: /none.so: cannot open"),
    ({"WEFT_CPU": "x86-64-v2"}, "cpu", "slow", "unset"),
    ({"WEFT_CACHE": "off"}, "cache", "slow", "unset WEFT_CACHE"),
    ({"WEFT_CACHE": "/dev/null/x"}, "cache", "fix", "WEFT_CACHE"),
    ({"XDG_CACHE_HOME": "", "HOME": ""}, "models", "fix", "HOME"),
    ({"NOOPT": "1"}, "variables", "slow", "NOOPT=1"),
    ({"DEBUG": "9"}, "variables", "fix", "DEBUG"),
    ({"DEV": "NULL"}, "variables", "slow", "DEV=NULL"),
])
def test_a_machine_with_a_fault(run_weft, env, check, state, words):
    if env.get("WEFT_CPU") == "x86-64-v2" and os.uname().machine != "x86_64":
        pytest.skip("instructions of x86-64 on another processor")
    if env.get("DEV") == "CUDA" and os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has what the test wants to be missing")
    rows = doctor(run_weft, **env)
    assert any(s == state and words in text for s, text in rows[check]), rows[check]


def run_without(library, *command, **how):
    """In a namespace in which a library cannot be seen."""
    hide = """for f in $(/sbin/ldconfig -p | grep -o "/[^ ]*$0[^ ]*"); do mount --bind /dev/null "$(realpath "$f")" || exit 77; done
              exec "$@" """
    done = subprocess.run(["unshare", "-rm", "sh", "-c", hide, library, *command], capture_output=True, text=True, **how)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"a library cannot be hidden here: {done.stderr.strip()[:100]}")
    return done


def test_without_llvm(run_weft, weft, weft_env):
    library = json.loads(run_weft(["env", "--json"]).stdout)["machine"]["llvm"]
    if library is None:
        pytest.skip("no LLVM here: test_against_the_system has looked at that")
    done = run_without("libLLVM", weft, "doctor", "--json", env=weft_env)
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and rows["LLVM"]["state"] == "fix" and "libllvm" in rows["LLVM"]["text"]


def test_without_libmicrohttpd(weft, weft_env, tinypy):
    """All but the server works. It says so before it reads the model, which need not be there."""
    done = run_without("libmicrohttpd", weft, "doctor", "--json", env=weft_env)
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    why = "weft serve needs libmicrohttpd, which is not here; Debian and Ubuntu have it as libmicrohttpd12"
    row = rows["server"]
    assert done.returncode == 1 and row["state"] == "fix" and re.fullmatch(rf"{why} \(/\S+: file too short\)", row["text"])  # the loader's own reason
    done = run_without("libmicrohttpd", weft, "serve", "absent.gguf", "--port", "0", env=weft_env, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"weft: error: {row['text']}\n")
    done = run_without("libmicrohttpd", weft, "run", tinypy, "-p", "def ", "-n", "1", env=weft_env, timeout=300)
    assert done.returncode == 0, done.stderr


FUNCTIONS = ("add_connection add_response_header create_response_from_buffer create_response_from_callback destroy_response get_connection_info "
             "get_connection_values is_feature_supported lookup_connection_value queue_response quiesce_daemon resume_connection start_daemon "
             "stop_daemon suspend_connection").split()


@pytest.mark.parametrize("functions, version, why", [
    (FUNCTIONS, "0.9.74", "libmicrohttpd 0.9.74 is too old: weft serve needs 0.9.75 or newer"),
    (FUNCTIONS[1:], "1.0.1", "libmicrohttpd has no MHD_add_connection"),
])
def test_another_libmicrohttpd(weft, weft_env, sanitized, tmp_path, functions, version, why):
    """A library of that name whose functions are not those that are needed."""
    if sanitized or not shutil.which("gcc"):
        pytest.skip("a library is made here, for a program without sanitizers, by gcc")
    source = "".join(f"void MHD_{name}(void) {{}}\n" for name in functions) + f'const char *MHD_get_version(void) {{ return "{version}"; }}\n'
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", tmp_path / "libmicrohttpd.so.12", "-"], input=source, text=True, check=True)
    env = {**weft_env, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([weft, "serve", "absent.gguf", "--port", "0"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"weft: error: {why}\n")


@pytest.fixture
def without_rights():
    """What stands before a command so that modes of files hold for it, for root as well."""
    before = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if before and subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("root cannot give up its rights here (setpriv of util-linux)")
    return before


def test_a_folder_of_models_that_cannot_be_written(weft, weft_env, tmp_path, without_rights):
    """A folder that is there can be read; one that cannot be made is no folder in which 'weft pull' could make anything."""
    def rows(folder):
        done = subprocess.run([*without_rights, weft, "doctor", "--json"], env={**weft_env, "LLAMA_CACHE": str(folder)}, capture_output=True, text=True)
        return [(row["state"], row["text"]) for row in json.loads(done.stdout)["checks"] if row["check"] == "models"]
    closed = tmp_path / "closed"
    closed.mkdir()
    assert rows(closed)[0][0] == "ok" and len(rows(closed)) == 1
    assert rows(closed / "a" / "b") == [("ok", f"none yet; 'weft pull NAME' makes {closed}/a/b")]
    closed.chmod(0o555)
    assert [state for state, _ in rows(closed)] == ["ok", "note"]
    [(state, text)] = rows(closed / "a" / "b")
    assert state == "fix" and f"{closed} cannot be written" in text and "LLAMA_CACHE" in text


# ---- uninstall -------------------------------------------------------------------------------------------------------

def test_uninstall(run_weft, tinypy, tmp_path):
    """Sizes are du's, nothing is removed by the command itself, and the printed commands remove what it shows."""
    home = tmp_path / "a home's folder"
    env = {"HOME": str(home), "XDG_CACHE_HOME": "", "XDG_STATE_HOME": ""}
    state = home / ".local/state/weft"
    models = home / ".cache/weft/models"
    for folder in (state, models):
        folder.mkdir(parents=True)
    (state / "chat_history").write_text("hello\n")
    (models / "a.gguf").write_bytes(Path(tinypy).read_bytes())
    assert run_weft(["run", tinypy, "-p", "def ", "-n", "1"], env=env).returncode == 0
    before = sorted(home.rglob("*"))
    rows = json.loads(run_weft(["uninstall", "--json"], env=env).stdout)
    assert sorted(home.rglob("*")) == before
    mine = [row for row in rows if row["path"].startswith(str(home)) and row["there"]]
    assert {row["what"] for row in mine} == {"kernels", "models", "chat history"}
    for row in mine:
        du = subprocess.run(["du", "-sb", row["path"]], capture_output=True, text=True, check=True).stdout
        folders = sum(p.stat().st_size for p in [Path(row["path"]), *Path(row["path"]).rglob("*")] if p.is_dir())
        assert row["bytes"] == int(du.split()[0]) - folders
    shown = run_weft(["uninstall"], env=env).out
    commands = [row["command"] for row in mine]
    assert all(f"\n  {command}\n" in shown for command in commands)
    for command in commands:
        subprocess.run(command, shell=True, check=True)
    assert [p for p in home.rglob("*") if p.is_file()] == []


def test_uninstall_of_llama_cpps_folder(run_weft, tmp_path):
    """A folder that another program uses is not Weft's to remove."""
    (tmp_path / "llama.cpp").mkdir()
    rows = json.loads(run_weft(["uninstall", "--json"], env={"XDG_CACHE_HOME": str(tmp_path)}).stdout)
    models = [row for row in rows if row["what"] == "models"]
    assert models[0]["path"] == str(tmp_path / "llama.cpp") and models[0]["command"].startswith("weft rm NAME")


def test_uninstall_of_what_cmake_installed(build, weft_env, tmp_path):
    """The printed commands leave nothing of `cmake --install`, and the program goes last."""
    prefix = tmp_path / "prefix"
    subprocess.run(["cmake", "--install", build, "--prefix", prefix], capture_output=True, check=True)
    rows = json.loads(subprocess.run([prefix / "bin/weft", "uninstall", "--json"], env=weft_env, capture_output=True, text=True, check=True).stdout)
    mine = [row for row in rows if row["path"].startswith(f"{prefix}/")]
    assert mine[0]["what"] == "program" and rows[-len(mine):] == mine
    for row in mine:
        subprocess.run(row["command"], shell=True, check=True)
    assert [path for path in prefix.rglob("*") if not path.is_dir() or path.is_symlink()] == []


def test_uninstall_of_the_service(weft, weft_env, without_rights):
    """A user sees that the service has folders, though only root can look into them; without the links there are none."""
    layout = """mount -t tmpfs none /var/lib && mount -t tmpfs none /var/cache || exit 77
                for folder in lib cache; do mkdir -p /var/$folder/private/weft; chmod 0 /var/$folder/private; done
                ln -s private/weft /var/lib/weft
                exec "$@" """
    done = subprocess.run(["unshare", "-rm" if os.geteuid() else "-m", "sh", "-c", layout, "sh", *(without_rights or ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]), weft, "uninstall", "--json"],
                          env=weft_env, capture_output=True, text=True)
    if not done.stdout:
        pytest.skip(f"folders of the system cannot be replaced here: {done.stderr.strip()[:100]}")
    service = [row for row in json.loads(done.stdout) if row["what"].startswith("service: ") and row["path"].startswith("/var")]
    assert service == [{"what": "service: models, prompts", "path": "/var/lib/private/weft", "bytes": None, "there": True, "command": "rm -r /var/lib/private/weft"}]
