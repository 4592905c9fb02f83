"""bench/ready_times.py: when the gradients of the built-in models are ready."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("ready_times", BENCH / "ready_times.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(name: str) -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads((BENCH / "models" / f"{name}.json").read_text())
    return found


def test_the_files_say_what_the_script_computes() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "ready_times.py"), "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


# What torchvision's documentation states for its weights, in 1e9; a check of the positions of all layers.
@pytest.mark.parametrize(
    ("name", "published"),
    [("resnet50", 4.09), ("resnet101", 7.80), ("vgg16", 15.47), ("vgg19", 19.63), ("inception_v3", 5.71)],
)
def test_multiply_adds_are_those_published(name: str, published: float) -> None:
    # Ours count normalizations, biases and the auxiliary classifier as well.
    assert published <= script().multiply_adds(model(name)) / 1e9 <= 1.01 * published


def test_multiply_adds_of_text_models_are_parameters_by_tokens_and_attention() -> None:
    bert = 12 * (85_054_464 // 12 * 128 + 2 * 128 * 128 * 768)  # without embeddings and pooler
    assert script().multiply_adds(model("bert_base")) == pytest.approx(bert, rel=1e-3)
    gpt2 = 1024 * (124_439_808 - 1024 * 768) + 12 * 2 * 1024 * 1024 * 768  # the output layer is the embedding
    assert script().multiply_adds(model("gpt2")) == pytest.approx(gpt2, rel=1e-3)


def test_multiply_adds_of_googlenet_are_those_of_its_paper() -> None:
    # Szegedy et al. 2014, table 1. Its first row says 34 million, but 7 x 7 x 3 x 64 x 112 x 112 are 118.
    table = sum((118, 360, 128, 304, 73, 88, 100, 119, 170, 54, 71, 1)) * 1e6
    assert script().multiply_adds(model("googlenet")) == pytest.approx(table, rel=0.002)


def test_tensors_of_a_layer_are_ready_together_and_none_before_the_one_in_front() -> None:
    for path in (BENCH / "models").glob("*.json"):
        found = model(path.stem)
        ready, names = found["ready_ms"], [name for name, _ in found["parameters"]]
        assert ready == sorted(ready) and ready[-1] == pytest.approx(found["compute_ms"])
        of = {name: ms for name, ms in zip(names, ready)}
        for name in names:
            weight = name.rpartition(".")[0] + ".weight"
            assert of[name] == of.get(weight, of[name]), name
