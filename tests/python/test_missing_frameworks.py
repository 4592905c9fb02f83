"""Importing a front end whose framework is missing or too old is one sentence that says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys, types
name, version, front_end = sys.argv[1:]
found = None
if version:
    found = types.ModuleType(name)
    found.__version__ = version
    found.Tensor = object
sys.modules[name] = found
try:
    __import__(front_end)
except ImportError as error:
    print(error)
"""

# module, a version too old, front end's words for what it needs, requirement for pip
CASES = [
    ("torch", "2.0.1", "PyTorch 2.1 or newer", "torch>=2.1"),
    ("tensorflow", "2.15.1", "TensorFlow 2.16 or newer", "tensorflow>=2.16"),
    ("keras", "2.15.0", "Keras 3", "keras>=3"),
    ("jax", "0.4.38", "JAX 0.5 or newer", "jax>=0.5"),
]


@pytest.mark.parametrize(("name", "version", "needs", "requirement"), CASES, ids=[case[0] for case in CASES])
def test_what_is_missing_or_too_old_is_named_with_the_cure(name, version, needs, requirement):
    paths = os.pathsep.join(str(ROOT / part) for part in ("python", "compat/horovod"))
    for front_end in (f"rueda.{name}", f"horovod.{name}"):
        if front_end == "horovod.jax":  # Horovod has none
            continue
        for given in ("", version):
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT, name, given, front_end],
                env={**os.environ, "PYTHONPATH": paths},
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            said = done.stdout.strip()
            assert said.startswith(f"rueda.{name} needs {needs}, but "), said
            assert said.endswith(f"; install it with `pip install '{requirement}'`."), said
            assert (f"{given} is installed" if given else f"importing {name} failed") in said


@pytest.mark.parametrize("front_end", ["torch", "tensorflow", "numpy"])
def test_cloudpickle_is_not_needed(front_end):
    script = """
import sys
sys.modules["cloudpickle"] = None
hvd = __import__("rueda." + sys.argv[1], fromlist=["init"])
hvd.init()
assert hvd.allgather_object({"a": 1}) == [{"a": 1}] and hvd.broadcast_object([2]) == [2]
hvd.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, front_end],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
