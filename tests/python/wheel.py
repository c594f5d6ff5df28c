# SPDX-License-Identifier: MIT
"""The wheel, made of this build's library and installed in an empty environment."""
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

from tap import Skip, case, eq, run, true, work

ROOT = os.environ["ROOT"]
sys.path.insert(0, f"{ROOT}/python")
import build_backend  # noqa: E402
import wheel  # noqa: E402

# By their names in the wheel: libraries of the build have the full version.
BINARIES = {wheel_name: path for path in os.environ["BINARIES"].split(":")
            for wheel_name in wheel.BINARIES if os.path.basename(path).startswith(wheel_name)}


def environment():
    """Return the environment without variables that lead to the source tree."""
    return {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PST_LIBPENSTOCK", "LD_PRELOAD", "LD_LIBRARY_PATH")}


def plain_binaries():
    """Return links to the binaries of this build, with the names that they have in the wheel."""
    if os.uname().machine != "x86_64":
        raise Skip("a wheel is for x86-64")
    if "__asan_init" in wheel.readelf("--dyn-syms", BINARIES["libpenstock.so.0"]):
        raise Skip("a sanitizer's library")
    links = []
    for name, path in BINARIES.items():
        links.append(f"{work}/binaries/{name}")
        if not os.path.lexists(links[-1]):
            os.makedirs(f"{work}/binaries", exist_ok=True)
            os.symlink(path, links[-1])
    return links


def make(out=work):
    return wheel.write(plain_binaries(), out)


@case
def versions_of_glibc():
    lines = "  5: 0 FUNC GLOBAL DEFAULT UND {}@GLIBC_{} (3)\n"
    eq(wheel.too_new(lines.format("open", "2.2.5") + lines.format("dlsym", "2.34")), [])
    eq(wheel.too_new(lines.format("arc4random", "2.36") + lines.format("x", "3.0")),
       ["arc4random (GLIBC_2.36)", "x (GLIBC_3.0)"])


@case
def folders_of_one_machine():
    line = " 0x1d (RUNPATH)   Library runpath: [{}]\n"
    eq(wheel.fixed(line.format("$ORIGIN/../..:$ORIGIN/../lib")), [])
    eq(wheel.fixed(line.format("$ORIGIN/../..:/opt/src:lib")), ["/opt/src", "lib"])


@case
def binaries_fit():
    eq(sorted(map(os.path.basename, plain_binaries())), sorted(wheel.BINARIES))
    for path in plain_binaries():
        wheel.check(path)


def refused(binaries):
    done = subprocess.run([sys.executable, f"{ROOT}/python/wheel.py", *binaries, work],
                          capture_output=True, text=True, check=False, env=environment())
    eq(done.returncode, 1)
    eq([name for name in os.listdir(work) if name.endswith(".whl")], [])
    return done.stderr


@case
def other_binaries_are_refused():
    binaries = plain_binaries()
    true("wheel.py: BINARY... OUT are wanted" in refused(binaries[1:]), "the sentence")
    for name, other, sentence in (("libpenstock.so.0", sys.executable, "has no pst_version"),
                                  ("libpenstock_streamer.so", BINARIES["libpenstock.so.0"],
                                   "has no runai_file_streamer_start"),
                                  ("libpenstock-rados.so", BINARIES["libpenstock-s3.so"],
                                   "needs libcrypto.so.3, libcurl.so.4, which not")):
        os.makedirs(f"{work}/others", exist_ok=True)
        os.symlink(other, f"{work}/others/{name}")
        true(sentence in refused([path if os.path.basename(path) != name
                                  else f"{work}/others/{name}" for path in binaries]), sentence)


@case
def content_is_as_recorded():
    path = make()
    true(re.search(r"/penstock-[0-9.]+-py3-none-manylinux_2_34_x86_64\.whl$", path), path)
    with open(path, "rb") as file:
        first = file.read()
    os.mkdir(f"{work}/again")
    with open(make(f"{work}/again"), "rb") as file:
        true(file.read() == first, "the bytes differ the second time")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        record = archive.read([n for n in names if n.endswith("/RECORD")][0]).decode()
        lines = [line.split(",") for line in record.splitlines()]
        eq([line[0] for line in lines], names)
        for name, digest, size in lines[:-1]:
            content = archive.read(name)
            eq((name, int(size)), (name, len(content)))
            want = hashlib.sha256(content).digest()
            eq(wheel.base64.urlsafe_b64decode(digest.partition("=")[2] + "="), want)
    for name in ("penstock/__init__.py", "penstock/safetensors/__init__.py", "penstock/py.typed",
                 "penstock/vllm.py", "penstock/fastsafetensors.py",
                 *map(wheel.place_of, wheel.BINARIES)):
        true(name in names, f"{name} is missing")


@case
def metadata_is_complete():
    os.mkdir(f"{work}/metadata")
    folder = build_backend.prepare_metadata_for_build_wheel(f"{work}/metadata")
    eq(folder, f"penstock-{wheel.version()}.dist-info")
    with open(f"{work}/metadata/{folder}/METADATA", encoding="utf-8") as file:
        said = email.message_from_file(file)
    eq([said[name] for name in ("Name", "Version", "Author", "License", "Requires-Python")],
       ["penstock", wheel.version(), "The Penstock authors", "MIT", ">=3.9"])
    with open(f"{ROOT}/LICENSE", encoding="utf-8") as file:
        true(said["Author"] in file.read(), "LICENSE names somebody else")
    true("Typing :: Typed" in said.get_all("Classifier"), said)
    true(len(said.get_all("Classifier")) == len(set(said.get_all("Classifier"))), said)
    with open(f"{ROOT}/python/README.md", encoding="utf-8") as file:
        text = file.read()
    eq(said.get_payload(), text)
    # PyPI has no other files to which a link could lead.
    true("](" not in text, "a link to a file")
    with zipfile.ZipFile(make()) as archive:
        for name in os.listdir(f"{work}/metadata/{folder}"):
            with open(f"{work}/metadata/{folder}/{name}", "rb") as file:
                true(archive.read(f"{folder}/{name}") == file.read(), name)


@case
def a_checkout_needs_git():
    if not os.path.exists(f"{ROOT}/.git"):
        raise Skip("a checkout with its .git")
    os.mkdir(f"{work}/none")
    done = subprocess.run([sys.executable, "-c", "import sys, build_backend as b; "
                           "b.build_sdist(sys.argv[1])", f"{work}/none"], cwd=f"{ROOT}/python",
                          capture_output=True, text=True, check=False,
                          env={**environment(), "PATH": work})
    eq((done.returncode, done.stdout, os.listdir(f"{work}/none")), (1, "", []))
    true("install git" in done.stderr and "Traceback" not in done.stderr, done.stderr)


@case
def source_archive():
    if os.path.exists(f"{ROOT}/.git") and not shutil.which("git"):
        raise Skip("git is not installed")
    first, again = f"{work}/sdist", f"{work}/sdist-again"
    os.mkdir(first)
    os.mkdir(again)
    name = build_backend.build_sdist(first)
    base = f"penstock-{wheel.version()}"
    eq(name, f"{base}.tar.gz")
    with tarfile.open(f"{first}/{name}") as archive:
        names = archive.getnames()
        eq(archive.extractfile(f"{base}/PKG-INFO").read(), wheel.metadata())
        eq({entry.mtime for entry in archive}, {0})
        archive.extractall(work)
    for path in ("pyproject.toml", "LICENSE", "dev", "meson.build", "python/build_backend.py",
                 "python/penstock/__main__.py", "include/penstock.h", "src/meson.build"):
        true(f"{base}/{path}" in names, f"{path} is missing")
    eq([path for path in names if path.startswith(f"{base}/build/")], [])
    # Without git, and after a build, the archive is the same.
    os.makedirs(f"{work}/{base}/build/default")
    for path in ("build/default/x", "python/__pycache__/x"):
        os.makedirs(os.path.dirname(f"{work}/{base}/{path}"), exist_ok=True)
        with open(f"{work}/{base}/{path}", "w", encoding="utf-8"):
            pass
    subprocess.run([sys.executable, "-c", "import sys, build_backend as b; "
                    "b.build_sdist(sys.argv[1])", again], check=True,
                   cwd=f"{work}/{base}/python", env=environment())
    with open(f"{first}/{name}", "rb") as one, open(f"{again}/{name}", "rb") as two:
        true(one.read() == two.read(), "the bytes differ")


@case
def an_editable_install_is_refused():
    done = subprocess.run([sys.executable, "-c", "import build_backend as b; "
                           "b.build_editable('.')"], cwd=f"{ROOT}/python", capture_output=True,
                          text=True, check=False, env=environment())
    eq((done.returncode, done.stdout), (1, ""))
    true(f"PYTHONPATH={ROOT}/python" in done.stderr and "Traceback" not in done.stderr,
         done.stderr)


# Print the error of each scheme, then set and get a block.
REACH = """
import os, sys, penstock
from penstock import kv
for name in ("s3://bucket/key", "https://127.0.0.1:1/x", "tier://none/x", "rados://pool/object",
             "psts://127.0.0.1:1/x"):
    try:
        penstock.File(name)
    except penstock.Error as e:
        print(e.strerror)
os.mkdir(sys.argv[1])
store = kv.Store([sys.argv[1]], budget=1 << 24)
space, block = store.space("model"), bytearray(5000)
store.set(space, [b"key"], [b"x" * 5000])
store.get(space, [b"key"], [block])
print(block == b"x" * 5000)
"""


def reach(python):
    """Check that an installed package finds its modules and the store."""
    with open(f"{work}/keys", "w", encoding="utf-8") as file:
        file.write("me:00112233445566778899aabbccddeeff\n")
    os.chmod(f"{work}/keys", 0o600)
    lines = subprocess.run(
        [python, "-c", REACH, f"{work}/store"], capture_output=True, text=True, check=True,
        cwd=work, env={**environment(), "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
                       "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                       "AWS_REGION": "us-east-1", "PST_KEYS": f"{work}/keys"}).stdout.splitlines()
    eq(len(lines), 6)
    # What rados:// lacks here, librados or a configuration, depends on the machine.
    for line, part in zip(lines, ("nothing accepts connections", "nothing accepts connections",
                                  "there is no set none", "", "127.0.0.1:1", "True")):
        true(part in line, line)
        true("libpenstock-" not in line, line)


@case
def installs_into_an_empty_environment():
    path = make()
    place = f"{work}/environment"
    done = subprocess.run([sys.executable, "-m", "venv", place], capture_output=True, text=True,
                          check=False, env=environment())
    if done.returncode:
        raise Skip("python3-venv")
    python = f"{place}/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--no-index", "--quiet",
                    "--disable-pip-version-check", path], check=True, env=environment())
    points = ("import importlib.metadata as m; p = m.entry_points(); "
              "p = p.select(group='vllm.general_plugins') if hasattr(p, 'select') else "
              "p['vllm.general_plugins']; print(*[x.load().__module__ for x in p])")
    eq(subprocess.run([python, "-c", points], capture_output=True, text=True, check=True,
                      env=environment(), cwd=work).stdout, "penstock.vllm\n")
    text = ("import penstock, sys; f = penstock.File(sys.argv[1]); b = bytearray(4); "
            "f.read(b); print(penstock.library_path, penstock.version(), bytes(b).hex(), "
            "len(penstock.doctor()['devices']))")
    told = subprocess.run([python, "-c", text, path], capture_output=True, text=True, check=True,
                          env=environment(), cwd=work).stdout.split()
    true(told[0].startswith(place) and told[0].endswith("/penstock/lib/libpenstock.so.0"), told[0])
    eq(told[1:3], [wheel.version(), "504b0304"])
    said = subprocess.run(["penstock", "info"], capture_output=True, text=True, check=True,
                          env={**environment(), "PATH": f"{place}/bin"}, cwd=work).stdout
    true(f"libpenstock {wheel.version()}, {told[0]}" in said, said)
    reach(python)
    lib = os.path.dirname(told[0])
    probe = subprocess.run([f"{lib}/penstock-gds-probe"], capture_output=True, text=True,
                           check=False, env=environment())
    true(probe.stderr.startswith("Usage: penstock-gds-probe"), probe.stderr)
    text = ("import ctypes, sys; ctypes.CDLL(sys.argv[1]); maps = open('/proc/self/maps'); "
            "print(*{line.split()[-1] for line in maps if 'libpenstock' in line})")
    streamer = f"{lib}/penstock/compat/libpenstock_streamer.so"
    loaded = subprocess.run([python, "-c", text, streamer], capture_output=True, text=True,
                            check=True, env=environment(), cwd=work).stdout.split()
    eq(sorted(loaded), sorted([told[0], streamer]))
    subprocess.run([python, "-m", "pip", "uninstall", "--yes", "--quiet",
                    "--disable-pip-version-check", "penstock"], check=True, env=environment())
    left = [name for name in os.listdir(os.path.dirname(os.path.dirname(
        os.path.dirname(told[0])))) if name.startswith("penstock")]
    eq(left, [])


run()
