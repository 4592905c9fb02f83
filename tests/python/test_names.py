"""The distribution is `rueda-train`, the import `rueda`. On PyPI the bare name is another project's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_wheel  # noqa: E402 (found in tools)

# What a command installs, up to a comment or the end of the quotation; and a list of requirements.
INSTALLS = re.compile(
    r"(?:\b(?:pip3?|uv|pipx|poetry|conda|mamba)\b.*?\b(?:install|add|download)\b|^dependencies = )([^#`]*)"
)
# The name alone, with extras or a version, or on a file.
BARE = re.compile(r"(?<![\w./@-])rueda(?:(?=\[)|(?=[=<>~!]=)|(?=[-_](?:\*|\d|…))|(?=['\"`,;]|\s*$|\s+&&))")


# They tell of the old name, or of the stranger.
LEFT_OUT = {"tests/python/test_names.py", "tests/python/test_distribution.py"}


def texts() -> Iterator[Tuple[Path, str]]:
    """The tracked files that are text."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if not name or name in LEFT_OUT or not path.is_file():
            continue
        try:
            yield Path(name), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def installs_the_bare_name(line: str) -> bool:
    """Whether a command or a requirement in this line would fetch PyPI's `rueda`."""
    return any(BARE.search(what) for what in INSTALLS.findall(line))


@pytest.mark.parametrize(
    "line",
    [
        "pip install rueda",
        "    pip install 'rueda[spark]'        # on the driver",
        "said = f\"{found}: pip install 'rueda[ray]'.\"",
        "pip install rueda-*.whl && pip install --no-deps ./compat/horovod",
        "run `pip install rueda-….whl` first",
        "RUN pip install --no-cache-dir torch rueda==0.1.0",
        "uv add rueda",
        'dependencies = ["rueda", "cloudpickle"]',
        "pip install -U rueda  # newer",
    ],
)
def test_the_search_finds_the_bare_name(line: str) -> None:
    assert installs_the_bare_name(line)


@pytest.mark.parametrize(
    "line",
    [
        "pip install 'rueda-train[spark]'",
        "pip install rueda_train-*.whl",
        "reinstall rueda, or set RUEDA_BIN",
        "pip uninstall rueda",
        "rueda run -np 2 python train.py",
        'dependencies = ["rueda-train", "cloudpickle"]',
    ],
)
def test_the_search_leaves_other_lines_alone(line: str) -> None:
    assert not installs_the_bare_name(line)


def test_nothing_installs_the_bare_name() -> None:
    found: List[str] = []
    for path, text in texts():
        for number, line in enumerate(text.splitlines(), 1):
            if installs_the_bare_name(line):
                found.append(f"{path}:{number}: {line.strip()}")
    assert found == []


def test_no_file_of_a_distribution_has_the_bare_name() -> None:
    """rueda-0.1.0.dist-info, rueda-*.whl: names that `rueda-train` does not make."""
    stale = re.compile(r"(?<![\w.-])rueda-(?:\*|…|\d[\w.*-]*)\S*(?:whl|dist-info|\.data|\.tar\.gz)")
    found = [f"{path}: {name}" for path, text in texts() for name in stale.findall(text)]
    assert found == []


def test_the_two_distributions_agree() -> None:
    table = build_wheel.project()
    assert table["name"] == "rueda-train"
    alias = (ROOT / "compat/horovod/pyproject.toml").read_text()
    assert '"rueda-train"' in alias and '"rueda",' not in alias
