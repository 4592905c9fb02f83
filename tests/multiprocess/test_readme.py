"""The Python in README.md and some pages of docs runs as it stands there, on two ranks."""

import functools
import importlib.util
import re

import keras_worlds
import pytest
from harness import ROOT, assert_all_succeed, launch
from nursery import TENSORFLOW, fork, torch_imports

PAGES = ["README.md", "docs/quickstart.md", "docs/compression.md"]
TEXT = "\n".join((ROOT / page).read_text() for page in PAGES)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
IMPORTS = {  # by the module that a block imports first
    "torch": torch_imports(),
    "tensorflow": TENSORFLOW,
    "keras": keras_worlds.imports_of("jax"),
    "jax": torch_imports(),
}


def framework(block):
    return re.match(r"import (\w+)", block)[1]


def test_all_front_ends_are_shown():
    assert {framework(block) for block in BLOCKS} == set(IMPORTS)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{framework(block)}-{i}" for i, block in enumerate(BLOCKS)])
def test_it_runs(block):
    name = framework(block)
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"there is no {name}")
    start = functools.partial(fork, imports=IMPORTS[name])
    assert_all_succeed(launch(2, block, {"JAX_PLATFORMS": "cpu"}, start=start))


def test_the_ten_lines_show_that_the_ranks_are_equal():
    block = next(block for block in BLOCKS if "print(f" in block)
    finished = launch(2, block, start=functools.partial(fork, imports=IMPORTS["torch"]))
    assert_all_succeed(finished)
    shown = [re.search(r"rank (\d) of 2: loss \S+, bias (\S+)", one.output) for one in finished]
    assert [line[1] for line in shown] == ["0", "1"] and shown[0][2] == shown[1][2]
