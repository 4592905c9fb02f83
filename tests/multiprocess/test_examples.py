"""The scripts of examples/ on the data they are written for, started as a user does."""

import importlib.util
import os
import subprocess
import sys

import pytest
from harness import ROOT, library
from launch_support import RUEDA, run_script

DATA = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
SESSION = ["--steps", "120"]
SHORT = ["--epochs", "1", "--steps", "60"]

pytestmark = pytest.mark.skipif(
    not os.path.exists(DATA), reason="Debian's package dataset-fashion-mnist is not installed"
)


@pytest.mark.parametrize(
    ("script", "arguments", "least"),
    [
        ("tensorflow/fashion_mnist.py", ["--steps", "60"], 45),
        ("tensorflow/fashion_mnist_session.py", [*SESSION, "--checkpoints", "ck"], 45),
        ("keras/fashion_mnist.py", [*SHORT, "--checkpoints", "ck"], 45),
        ("jax/fashion_mnist.py", SHORT, 45),
        ("pytorch/elastic.py", ["--epochs", "1", "--images", "7000"], 45),
        ("pytorch/less_memory_or_traffic.py", SHORT, 45),
        *(
            pytest.param(
                "pytorch/less_memory_or_traffic.py",
                [*SHORT, "--method", method],
                45,
                marks=pytest.mark.thorough,
            )
            for method in ("local", "diloco")
        ),
    ],
)
def test_ranks_learn_and_stay_equal(script, arguments, least, tmp_path):
    framework = script.partition("/")[0].replace("pytorch", "torch")
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"there is no {framework}")
    said = run_script(2, tmp_path, ROOT / "examples" / script, *arguments)
    reached = float(said.rpartition("test accuracy ")[2].split(" %")[0])
    assert reached > least, said
    assert "DIFFERENT" not in said


def test_the_convergence_check_pairs_each_method_with_plain(tmp_path):
    pytest.importorskip("torch")
    options = ["--methods", "sharded", "--seeds", "4", "--ranks", "2", "--epochs", "1", "--images", "512"]
    command = [sys.executable, str(ROOT / "bench/convergence/run.py"), *options]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "RUEDA_BIN": RUEDA,
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=150, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *_, plain, sharded = done.stdout.splitlines()
    assert plain.startswith("| plain | ") and "| +0.00 | +0.00 | +0.00 |" in plain
    assert sharded == plain.replace("plain", "sharded"), "the same bits give the same accuracy"


@pytest.mark.thorough("keras")
@pytest.mark.parametrize(
    ("script", "arguments"),
    [("tensorflow/fashion_mnist_session.py", SESSION), ("keras/fashion_mnist.py", SHORT)],
)
def test_the_original_listings_run_by_either_import_name(script, arguments, tmp_path):
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("there is no tensorflow")
    source = (ROOT / "examples" / script).read_text()
    assert source.count("import horovod.") == 1
    other = tmp_path / "listing.py"
    other.write_text(source.replace("import horovod.", "import rueda."))
    said = run_script(1, tmp_path, other, *arguments)  # two ranks run it by the other name
    assert float(said.rpartition("test accuracy ")[2].split(" %")[0]) > 45, said
