"""Packages: .deb and .rpm of the build, equal when made twice, clean for lintian, and installed, run and purged in a Debian root."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

def names(build):
    """Of the .deb files, in order; the reference is made where doxygen is."""
    return ["libweft-dev", "libweft0.1"] + ["weft-doc"] * (build / "reference").exists() + ["weft"]


@pytest.fixture(scope="module")
def package(build, repo, tmp_path_factory):
    """Makes packages of a kind of what is built, once more at each call; the folder."""
    if os.environ.get("WEFT_SANITIZED"):
        pytest.skip("packages are made of the build without sanitizers")

    def make(kind):
        out = tmp_path_factory.mktemp(kind)
        done = subprocess.run([repo / "scripts/package.sh", kind, "--dir", build, "--out", out], capture_output=True, text=True)
        if "is missing (Debian's package" in done.stderr:
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stdout + done.stderr
        return out
    return make


@pytest.fixture(scope="module")
def debs(package):
    return package("deb")


def contents(folder, pattern):
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


def test_debs_are_equal_when_made_twice(package, debs, build):
    first, second = contents(debs, "*.deb"), contents(package("deb"), "*.deb")
    assert [name.split("_")[0] for name in first] == names(build) and first == second


def test_rpms_are_equal_when_made_twice(package, build):
    first, second = contents(package("rpm"), "*.rpm"), contents(package("rpm"), "*.rpm")
    assert len(first) == len(names(build)) and first == second


def test_lintian_finds_nothing(debs):
    if not shutil.which("lintian"):
        pytest.skip("no lintian (Debian's package lintian)")
    # the build of the tests has the prefix /usr/local, and so no folder of the processor family's for weft.pc
    done = subprocess.run(["lintian", "--fail-on", "error,warning", "--suppress-tags", "pkg-config-unavailable-for-cross-compilation", *debs.glob("*.deb")], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout, done.stdout


def test_what_the_command_needs(debs):
    """Libraries that are linked are required, and that of the server; LLVM is recommended, since what is in the kernel cache runs without it."""
    def field(name):
        return subprocess.run(["dpkg-deb", "-f", next(debs.glob("weft_*.deb")), name], capture_output=True, text=True).stdout
    assert "libc6" in field("Depends") and "libsqlite3-0" in field("Depends") and "llvm" not in field("Depends")
    assert "libmicrohttpd12 (>= 0.9.75) | libmicrohttpd12t64 (>= 0.9.75)" in field("Depends").strip().split(", ")
    assert "libllvm19" in field("Recommends") and "libcurl4" in field("Recommends")


def test_what_the_rpms_need(package):
    """rpm reads in the packages what a system has to install with them, and what it is asked to."""
    folder = package("rpm")
    if not shutil.which("rpm"):
        pytest.skip("no rpm (Debian's package rpm)")

    def told(name, what="--recommends"):
        done = subprocess.run(["rpm", "-qp", what, next(folder.glob(f"{name}-[0-9]*.rpm"))], capture_output=True, text=True, check=True)
        return set(done.stdout.split())
    assert told("weft") == {"llvm-libs", "libcurl", "ca-certificates"}
    assert told("libweft0.1") == {"llvm-libs"} and told("libweft-devel") == set()
    assert "libmicrohttpd.so.12()(64bit)" in told("weft", "--requires") and "libmicrohttpd.so.12()(64bit)" not in told("libweft0.1", "--requires")


# ---- in a Debian root ------------------------------------------------------------------------------------------------

def mirror():
    """The Debian mirror of this machine, by its own apt."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm"],
                          capture_output=True, text=True)
    return (done.stdout.split() or ["http://deb.debian.org/debian"])[0]


@pytest.fixture(scope="module")
def root(weft):
    """A Debian 12 root, made once in the build folder; tests write into a layer over it."""
    release = Path("/etc/os-release")
    if not release.exists() or "VERSION_CODENAME=bookworm\n" not in release.read_text():
        pytest.skip("the packages of this system are not for Debian 12")
    if os.geteuid() or not shutil.which("debootstrap"):
        pytest.skip("a Debian root needs root and debootstrap")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("this container allows no mounts of its own")
    folder = Path(os.environ.get("WEFT_DEBIAN_ROOT") or Path(weft).parent / "roots" / "bookworm")
    if not (folder / "usr/bin/apt-get").exists() or (folder / "debootstrap").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
        # mounts of its own: those of a debootstrap that is ended half-way end with it, and the folder can be removed
        done = subprocess.run(["unshare", "-m", "debootstrap", "--variant=minbase", "bookworm", folder, mirror()], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"debootstrap failed: {done.stdout.strip().splitlines()[-1:]}")
    return folder


IMAGE = r"""
set -e
container=$(buildah from scratch)
at=$(buildah mount $container)
cp -a {root}/. $at/
rm -rf $at/etc/apt/sources.list $at/etc/apt/sources.list.d
cp -r /etc/apt/sources.list* /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d $at/etc/apt/
mkdir -p $at/usr/share/keyrings $at/etc/ssl/certs
cp /usr/share/keyrings/* $at/usr/share/keyrings/
cp /etc/ssl/certs/ca-certificates.crt $at/etc/ssl/certs/
buildah commit -q $container weft-base
exec 3>&1 >&2
{repo}/scripts/package.sh image --dir {build} --base localhost/weft-base --llvm "" --tag weft:test >/dev/null
container=$(buildah from weft:test)
echo "user: $(buildah inspect --format '{{{{.OCIv1.Config.User}}}} {{{{.OCIv1.Config.Cmd}}}}' $container)" >&3
echo "version: $(buildah run $container -- weft --version)" >&3
echo "ids: $(buildah run -v {models}:/models:ro $container -- weft tokenize -m /models/{model} -p 'def ' --ids)" >&3
"""


def test_an_image_of_the_packages(build, repo, tinypy, run_weft, tmp_path, request):
    """The recipe of packaging/, built on the Debian root: its user may read models, and the command runs."""
    if os.environ.get("WEFT_SANITIZED"):
        pytest.skip("packages are made of the build without sanitizers")
    if not os.environ.get("WEFT_TEST_IMAGE"):
        pytest.skip("WEFT_TEST_IMAGE is not set: making an image needs buildah and takes a minute, so CI does not")
    root = request.getfixturevalue("root")
    (tmp_path / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n')
    tmp_path.chmod(0o755)
    models = tmp_path / "models"
    models.mkdir()
    shutil.copy(tinypy, models / "tinypy.gguf")
    script = IMAGE.format(root=root, repo=repo, build=build, models=models, model="tinypy.gguf")
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=540,
                          env={**os.environ, "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"), "BUILDAH_ISOLATION": "chroot"})
    if "is missing (Debian's package" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip(f"the image needs a program or a package that cannot be had here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert re.match(r"weft \d+\.\d+\.\d+", told["version"])
    assert told["user"].startswith("10001 [weft serve")
    assert told["ids"] == run_weft(["tokenize", "-m", tinypy, "-p", "def ", "--ids"]).out.strip()


STUBS = """
let any = { out = ""; lib = ""; libllvm.lib = ""; };
in (import %s { pkgs = {
  lib = { concatMapStringsSep = s: f: l: builtins.concatStringsSep s (map f l); cleanSource = x: x; makeLibraryPath = l: "";
          licenses.mit = "MIT"; platforms.linux = "linux"; };
  stdenv.mkDerivation = x: x;
} // builtins.listToAttrs (map (name: { inherit name; value = any; }) [ %s ]); })
"""


def test_the_nix_expression(repo, tmp_path):
    """Nix reads it, with packages that only have names: the version is the header's."""
    if not shutil.which("nix-instantiate"):
        pytest.skip("no nix-instantiate (Debian's package nix-bin)")
    path = repo / "packaging/nix/default.nix"
    names = " ".join(f'"{name}"' for name in sorted(set(re.findall(r"pkgs\.([\w-]+)", path.read_text()))))
    env = {**os.environ, "NIX_STATE_DIR": str(tmp_path / "var"), "NIX_STORE_DIR": str(tmp_path / "store"), "HOME": str(tmp_path)}
    for extra in [[], ["-A", "meta"]]:
        done = subprocess.run(["nix-instantiate", "--eval", "--strict", "--json", *(extra or ["-A", "version"]), "-E", STUBS % (path, names)],
                              capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        assert extra or re.fullmatch(r'"\d+\.\d+\.\d+"', done.stdout.strip())


def test_the_formula(repo):
    if not shutil.which("ruby"):
        pytest.skip("no ruby (Debian's package ruby)")
    done = subprocess.run(["ruby", "-c", repo / "packaging/homebrew/weft.rb"], capture_output=True, text=True)
    assert done.stdout.strip() == "Syntax OK", done.stderr


SCRIPT = r"""
set -e
exec 3>&1 >&2
export DEBIAN_FRONTEND=noninteractive HOME=/root
install_them="apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root"
apt-get update -qq -o APT::Sandbox::User=root || { echo "no packages" >&3; exit 77; }
find / -xdev -not -path '/proc/*' -not -path '/var/*' | sort >/tmp/before
$install_them /in/*.deb
echo "version: $(weft --version)" >&3
status=0; weft doctor --json >/tmp/doctor || status=$?
echo "doctor without LLVM: $status $(grep -c '"state": "fix"' /tmp/doctor) $(grep -c 'libmicrohttpd 0' /tmp/doctor)" >&3
echo "uninstall: $(weft uninstall | grep -c '^  apt purge weft$')" >&3
echo "reference: $(test -e /in/weft-doc_*.deb && ls /usr/share/doc/weft-doc/html/index.html 2>&1)" >&3
echo "library: $(ldconfig -p | grep -c 'libweft.so.0.1')" >&3
$install_them libllvm19
echo "text: $(weft run /in/model.gguf -p 'def ' -n 8 --temp 0 --no-bos | tr '\n' '|')" >&3
echo "doctor: $(weft doctor | grep -c '^ok *LLVM')" >&3
apt-get purge -y -qq $(dpkg-query -W -f '${Package} ' 'weft*' 'libweft*')
rm -r $HOME/.cache/weft
find / -xdev -not -path '/proc/*' -not -path '/var/*' | sort >/tmp/after
echo "left: $(comm -13 /tmp/before /tmp/after | grep -i weft | tr '\n' ' ')" >&3
echo "left below /var: $(find /var -name '*weft*' | tr '\n' ' ')" >&3
"""


def test_installed_run_and_purged(root, debs, tinypy, run_weft, tmp_path):
    """A bare root: apt installs the packages, the command says that LLVM is missing, then runs; purge leaves nothing behind."""
    (tmp_path / "in").mkdir()
    for deb in debs.glob("*.deb"):
        shutil.copy(deb, tmp_path / "in")
    shutil.copy(tinypy, tmp_path / "in" / "model.gguf")
    outside = rf"""
set -e
mkdir {tmp_path}/layer
mount -t tmpfs none {tmp_path}/layer || exit 77
mkdir {tmp_path}/layer/upper {tmp_path}/layer/work {tmp_path}/layer/root
cd {tmp_path}/layer/root
mount -t overlay overlay -o lowerdir={root},upperdir={tmp_path}/layer/upper,workdir={tmp_path}/layer/work {tmp_path}/layer/root || exit 77
cd {tmp_path}/layer/root
mkdir in
mount --bind {tmp_path}/in in || exit 77
mount -t proc proc proc || exit 77
mount --rbind /dev dev || exit 77
cp /etc/resolv.conf etc/resolv.conf
rm -rf etc/apt/sources.list etc/apt/sources.list.d
cp -r /etc/apt/sources.list* /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d etc/apt/
mkdir -p usr/share/keyrings etc/ssl/certs
cp /usr/share/keyrings/* usr/share/keyrings/
cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/
exec chroot . /bin/bash -c "$SCRIPT"
"""
    done = subprocess.run(["unshare", "-m", "bash", "-c", outside], capture_output=True, text=True, timeout=540,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "SCRIPT": SCRIPT,
                               **{k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}})
    if done.returncode == 77:
        pytest.skip(f"a root cannot be entered here, or has no packages: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    here = run_weft(["run", tinypy, "-p", "def ", "-n", "8", "--temp", "0", "--no-bos"]).out
    assert re.match(r"weft \d+\.\d+\.\d+", told["version"])
    assert told["doctor without LLVM"] == "1 1 1" and told["doctor"] == "1" and told["uninstall"] == "1" and told["library"] == "1"
    assert told["reference"] == ("/usr/share/doc/weft-doc/html/index.html" if list(debs.glob("weft-doc_*")) else "")
    assert told["text"].rstrip("|") == here.rstrip("\n").replace("\n", "|")
    assert told["left"].strip() == "" and told["left below /var"].strip() == ""
