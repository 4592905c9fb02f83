"""The wheel as a user meets it: one file, a bare environment, no compiler, no framework."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import List, Set

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import setup_extras  # noqa: E402 (found in tools)
import wheel_metadata  # noqa: E402


def call(command: List[object], **how: object) -> subprocess.CompletedProcess:
    """Runs a command to its end, without the variables that would let it see this repository."""
    env = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("PYTHON", "RUEDA_", "HOROVOD_", "VIRTUAL_ENV"))
    }
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=400, env=env, **how)


def succeed(command: List[object], **how: object) -> str:
    done = call(command, **how)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel built from the tree as it is now (the objects come from build/release)."""
    folder = tmp_path_factory.mktemp("dist")
    succeed([sys.executable, ROOT / "tools" / "build_wheel.py", folder])
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory) -> Path:
    """bin/ of an environment with pip and the wheel, nothing else; installed with no compiler in PATH."""
    folder = tmp_path_factory.mktemp("venv")
    succeed([sys.executable, "-m", "venv", folder])
    command = [folder / "bin" / "pip", "install", "--no-index", "--no-deps", "-q", wheel]
    done = subprocess.run(
        [str(word) for word in command], env={"PATH": "", "HOME": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_there_is_one_wheel_for_every_python_3(wheel):
    assert re.fullmatch(r"rueda_train-0\.1\.0-py3-none-manylinux_2_\d+_x86_64\.whl", wheel.name)


def test_the_tag_names_the_glibc_that_is_needed(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    tagged = int(re.search(r"manylinux_2_(\d+)", wheel.name)[1])
    newest = 0
    for binary in (*tmp_path.glob("rueda/lib/*.so"), tmp_path / "rueda_train-0.1.0.data/scripts/rueda"):
        table = succeed(["objdump", "-T", binary])
        newest = max([newest, *(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", table))])
    assert tagged == max(newest, 17)


def test_the_binaries_need_glibc_alone(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    libraries = sorted(tmp_path.glob("rueda/lib/*.so"))
    names = ["librueda.so", "librueda_jax.so", "librueda_tensorflow.so", "librueda_torch.so"]
    assert [path.name for path in libraries] == names
    alone = [path for path in libraries if path.name in ("librueda.so", "librueda_tensorflow.so")]
    for binary in (*alone, tmp_path / "rueda_train-0.1.0.data/scripts/rueda"):
        needed = set(re.findall(r"NEEDED\s+(\S+)", succeed(["objdump", "-p", binary])))
        assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, binary.name


def test_the_plugins_need_the_library_beside_them_and_glibc(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for name in ("librueda_jax.so", "librueda_torch.so"):
        table = succeed(["objdump", "-p", tmp_path / "rueda/lib" / name])
        needed = set(re.findall(r"NEEDED\s+(\S+)", table))
        assert needed <= {"librueda.so", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
        assert re.search(r"(RUNPATH|RPATH)\s+\$ORIGIN\n", table)


def test_record_lists_every_file_with_its_hash_and_size(wheel):
    archive = zipfile.ZipFile(wheel)
    assert archive.testzip() is None
    listed = {}
    for line in archive.read("rueda_train-0.1.0.dist-info/RECORD").decode().splitlines():
        name, digest, size = line.rsplit(",", 2)
        listed[name] = (digest, size)
    assert set(listed) == set(archive.namelist())
    for name, (digest, size) in listed.items():
        if name.endswith("RECORD"):
            continue
        data = archive.read(name)
        kind, _, value = digest.partition("=")
        assert kind == "sha256" and urlsafe_b64decode(value + "==") == hashlib.sha256(data).digest()
        assert int(size) == len(data)


SYSTEM = {"arpa", "linux", "net", "netinet", "sys"}


def included_libraries() -> Set[str]:
    """The first folders in `#include <folder/…>` and `#include "folder/…"` that are not ours."""
    files = [file for file in (ROOT / "src").rglob("*") if file.suffix in (".h", ".cc")]
    found = {
        name for file in files for name in re.findall(r'^#include [<"](\w+)/', file.read_text(), re.MULTILINE)
    }
    return found - SYSTEM - {folder.name for folder in (ROOT / "src").iterdir()}


def test_what_is_linked_is_listed_with_version_and_licence(wheel):
    archive = zipfile.ZipFile(wheel)
    listing = json.loads(archive.read("rueda_train-0.1.0.dist-info/sboms/rueda.cdx.json"))
    assert listing["bomFormat"] == "CycloneDX"
    assert listing["metadata"]["component"]["purl"] == "pkg:pypi/rueda-train@0.1.0"
    linked = {component["name"]: component for component in listing["components"]}
    names = {"CLI": "CLI11", "hwy": "highway", "nlohmann": "nlohmann-json"}
    included = {names.get(folder, folder) for folder in included_libraries()}
    assert set(linked) == included | {"libstdc++", "libyaml"}  # the header yaml.h is in no folder
    assert linked["openssl"]["version"].startswith("3.") and linked["fmt"]["licenses"]
    texts = archive.read("rueda_train-0.1.0.dist-info/licenses/linked/openssl.txt")
    assert b"Apache" in texts


def test_the_metadata_is_what_a_package_index_takes(wheel):
    parsing = pytest.importorskip("packaging.metadata")
    raw = zipfile.ZipFile(wheel).read("rueda_train-0.1.0.dist-info/METADATA")
    found = parsing.Metadata.from_email(raw, validate=True)  # raises if a field is wrong, missing or unknown
    assert (found.name, str(found.version)) == ("rueda-train", "0.1.0")
    assert found.license_expression == "Apache-2.0"
    assert "LICENSE" in found.license_files and found.summary and found.keywords
    assert found.description_content_type == "text/markdown"
    labels = "Development Status", "Intended Audience", "Operating System", "Topic"
    for label in labels:
        assert any(one.startswith(f"{label} :: ") for one in found.classifiers), label
    assert not any(one.startswith("License :: ") for one in found.classifiers), "the expression says it"


def test_every_python_that_is_claimed_is_allowed_and_tested(wheel):
    text = zipfile.ZipFile(wheel).read("rueda_train-0.1.0.dist-info/METADATA").decode()
    claimed = re.findall(r"^Classifier: Programming Language :: Python :: (3\.\d+)$", text, re.MULTILINE)
    assert claimed == [version for version in VERSIONS if "/" not in version]
    assert f"Requires-Python: >={claimed[0]}\n" in text


def test_the_page_has_no_link_into_the_repository(wheel):
    text = zipfile.ZipFile(wheel).read("rueda_train-0.1.0.dist-info/METADATA").decode()
    _, _, page = text.partition("\n\n")
    assert page.startswith("# rueda\n") and "docs/install.md" in page
    assert not re.search(r"\]\((?!https?://)", page)


def test_links_become_what_they_name():
    readme = "# x\n\nRead [the guide](docs/a.md), [it](https://a.org/b).\n\n![A curve](docs/a.svg)\n"
    page = wheel_metadata.page(readme)
    assert page.startswith("# x\n") and "Read the guide, [it](https://a.org/b)." in page
    assert "\nA curve: docs/a.svg\n" in page


def test_the_command_is_executable_in_the_archive(wheel):
    info = zipfile.ZipFile(wheel).getinfo("rueda_train-0.1.0.data/scripts/rueda")
    assert (info.external_attr >> 16) & 0o111 == 0o111


def test_no_path_of_the_build_machine_is_inside(wheel):
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        assert str(ROOT).encode() not in archive.read(name), name


def test_the_same_tree_gives_the_same_wheel(wheel, tmp_path):
    succeed([sys.executable, ROOT / "tools" / "build_wheel.py", tmp_path])
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_import_needs_no_framework(bare):
    assert succeed([bare / "python", "-c", "import rueda; print(rueda.__version__)"]).strip() == "0.1.0"


def test_the_command_says_its_version(bare):
    assert "0.1.0" in succeed([bare / "rueda", "--version"])


def install(layout: str, wheel: Path, bare: Path, folder: Path) -> List[Path]:
    """Installs the wheel; returns the folders of the command and of the package."""
    if layout == "target":
        command = [bare / "python", "-m", "pip", "install", "--no-index", "--no-deps", "-q"]
        succeed([*command, "--target", folder, wheel])
        return [folder / "bin", folder]
    packages = folder / layout.split()[0] / "python3.9" / layout.split()[1]
    zipfile.ZipFile(wheel).extractall(packages)
    (scripts,) = packages.glob("*.data/scripts")
    shutil.move(scripts, folder / "bin")
    (folder / "bin" / "rueda").chmod(0o755)
    return [folder / "bin", packages]


LAYOUTS = ["target", "lib64 site-packages", "lib dist-packages"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_command_and_package_find_one_another_in_every_layout(wheel, bare, tmp_path, layout):
    scripts, packages = install(layout, wheel, bare, tmp_path / "D")
    library = packages / "rueda" / "lib" / "librueda.so"
    report = succeed([scripts / "rueda", "doctor", "--no-python"])
    assert f", {library}\n" in report, report
    succeed([scripts / "rueda", "bench", "allreduce", "-np", 2, "--sizes", "4K"])
    linked = tmp_path / "rueda"
    linked.symlink_to(scripts / "rueda")
    assert f", {library}\n" in succeed([linked, "doctor", "--no-python"])
    ask = (
        f"import sys; sys.path.insert(0, {str(packages)!r}); import runpy; sys.argv[1:] = ['--version']; "
        "runpy.run_module('rueda', run_name='__main__')"
    )
    # In front of the command of the environment, which is another installation.
    find = f"import sys; sys.path.insert(0, {str(packages)!r}); from rueda.run import find_command as find; "
    assert succeed([bare / "python", "-c", find + "print(find())"]).strip() == str(scripts / "rueda")
    assert "0.1.0" in succeed([bare / "python", "-c", ask])


def test_python_m_rueda_is_the_command(bare):
    assert succeed([bare / "python", "-m", "rueda", "--version"]) == succeed([bare / "rueda", "--version"])
    refused = call([bare / "python", "-m", "rueda", "no-such-command"])
    assert refused.returncode == 2 and "no-such-command" in refused.stderr


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_front_end_without_its_framework_is_one_sentence(bare, framework):
    done = call([bare / "python", "-c", f"import rueda.{framework}"])
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ") and "pip install" in last and framework in last


WORLD_OF_ONE = """
import sys
sys.path.insert(0, sys.argv[1])
from ctypes import addressof, c_float
from rueda import _core, operations
from rueda.basics import basics
from rueda.process_sets import global_process_set
basics.init()
data = (c_float * 3)(1, 2, 3)
call = operations.Call(_core.ALLREDUCE, _core.FLOAT32, (3,), addressof(data), addressof(data))
_, handle = operations.submit([call], global_process_set, lambda number, index: "x", "Allreduce")
operations.wait(handle)
print(basics.size(), list(data))
"""


# Two ranks that `rueda run` has started, four threads each: without a GIL they submit at the same time.
TWO_RANKS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from ctypes import addressof, c_double
from rueda import _core, operations
from rueda.basics import basics
from rueda.process_sets import global_process_set
basics.init()
sums = {}
def reduce(thread):
    for step in range(50):
        data = (c_double * 8)(*[basics.rank() + thread + step] * 8)
        call = operations.Call(_core.ALLREDUCE, _core.FLOAT64, (8,), addressof(data), addressof(data))
        name = f"{thread}.{step}"
        _, handle = operations.submit([call], global_process_set, lambda number, index: name, "Allreduce")
        operations.wait(handle)
        sums[thread, step] = list(data)
threads = [threading.Thread(target=reduce, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for (thread, step), sum in sums.items():
    assert sum == [1 + 2 * (thread + step)] * 8, (thread, step, sum)
print(f"rank {basics.rank()} of {basics.size()}: {len(sums)} right")
basics.shutdown()
"""

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
# Paths of other interpreters to run as well, with ":" between them: free-threaded ones, for example.
VERSIONS += [path for path in os.environ.get("RUEDA_TEST_PYTHONS", "").split(":") if path]


def find_python(version: str) -> str:
    """An interpreter of that version: of pyenv, in PATH, or the one that `make setup` unpacks. Or a path."""
    if "/" in version:
        return version
    kept = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    named = shutil.which(f"python{version}")  # pyenv's names in PATH may be empty shims
    unpacked = [setup_extras.python_program()] if version == setup_extras.PYTHON else []
    for python in [*reversed(kept), *([named] if named else []), *unpacked]:
        if Path(python).exists() and call([python, "-c", "import ctypes"]).returncode == 0:
            return str(python)
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_can_run_a_single_process_job(unpacked, version):
    said = succeed([find_python(version), "-W", "error", "-S", "-c", WORLD_OF_ONE, unpacked])
    assert said == "1 [1.0, 2.0, 3.0]\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_can_be_two_ranks_with_threads(unpacked, bare, version):
    ranks = [find_python(version), "-W", "error", "-S", "-c", TWO_RANKS, unpacked]
    lines = succeed([bare / "rueda", "run", "-np", "2", "--no-prefix", *ranks]).splitlines()
    assert sorted(lines) == [f"rank {rank} of 2: 200 right" for rank in range(2)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_python_reads_every_module(unpacked, version):
    parse = "[ast.parse(path.read_bytes()) for path in pathlib.Path(sys.argv[1]).rglob('*.py')]"
    succeed([find_python(version), "-W", "error", "-c", f"import ast, pathlib, sys; {parse}", unpacked])


def test_the_binaries_use_no_symbol_of_python(unpacked):
    """So the wheel's tag is py3-none: it fits every version, with and without a GIL."""
    for binary in (*unpacked.glob("rueda/lib/*.so"), unpacked / "rueda_train-0.1.0.data/scripts/rueda"):
        missing = {
            line.split()[-1] for line in succeed(["nm", "-D", "--undefined-only", binary]).splitlines()
        }
        assert missing and not [name for name in missing if re.match(r"_?Py[A-Z_]", name)], binary.name


@pytest.mark.skipif(shutil.which("cmake") is None or shutil.which("g++") is None, reason="no cmake or no g++")
@pytest.mark.parametrize("where", ["wheel", "build tree"])
def test_find_package_builds_the_cpp_example(bare, tmp_path, where):
    if where == "wheel":
        hint = f"-DCMAKE_PREFIX_PATH={succeed([bare / 'python', '-m', 'rueda.cmake_dir']).strip()}"
    else:
        hint = f"-Drueda_DIR={ROOT / 'build' / 'release'}"
    succeed(["cmake", "-S", ROOT / "examples" / "cpp", "-B", tmp_path, hint])
    succeed(["cmake", "--build", tmp_path])
    alone = succeed([tmp_path / "softmax_regression"])
    assert float(alone.split()[-2]) > 95
    together = succeed([bare / "rueda", "run", "-np", "2", tmp_path / "softmax_regression"])
    assert float(together.split()[-2]) > 95
