"""What `rueda doctor` asks of Python: versions, and whether a front end works.

``python -m rueda.doctor`` looks without importing any framework; ``python -m rueda.doctor torch`` imports one
front end and runs an allreduce in a single-process job. The last line of the output is JSON: `facts` (name to
text), `broken` and `advice` (sentences), and without an argument `frameworks`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]

FRONT_ENDS = ("numpy", "torch", "tensorflow", "jax", "keras")


def look() -> Answer:
    """Python, this package, and which frameworks are installed."""
    import rueda
    from rueda import distribution

    folder = distribution.package_folder()
    facts = {"python": f"{platform.python_version()}, {sys.executable}"}
    facts["package rueda"] = f"{getattr(rueda, '__version__', 'of unknown version')}, {folder}"
    facts["package horovod"] = _who_owns_horovod()
    found = [name for name in FRONT_ENDS if importlib.util.find_spec(name) is not None]
    for name in FRONT_ENDS:
        if name not in found:
            facts[name] = "not installed"
    advice = []
    if facts["package horovod"] == "another package":
        advice.append(
            "`import horovod` finds a package that is not rueda's; uninstall horovod to run scripts through "
            "the alias package"
        )
    problem = distribution.problem(folder, sys.path)
    other = distribution.namesake(folder, sys.path)
    if other and not problem:
        advice.append(
            f"the distributions {distribution.NAME} and {other} own the same folder, and uninstalling one "
            f"breaks the other: run `pip uninstall {distribution.OTHER}`, then {distribution.AGAIN}"
        )
    return {"facts": facts, "broken": [problem] if problem else [], "advice": advice, "frameworks": found}


def _who_owns_horovod() -> str:
    spec = importlib.util.find_spec("horovod")
    if spec is None or not spec.submodule_search_locations:
        return "not installed"
    source = Path(spec.submodule_search_locations[0]) / "torch" / "__init__.py"
    return "rueda's alias" if source.exists() and "rueda" in source.read_text() else "another package"


def try_front_end(name: str) -> Answer:
    """Imports the front end for a framework, which loads its plugin, and runs its self-test."""
    version = _version(name)
    try:
        said, advice = SELF_TESTS[name]()
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        return {"facts": {name: version}, "broken": [f"rueda.{name} does not work: {text}"], "advice": []}
    facts = {name: f"{version}, rueda.{name} works"}
    facts.update({f"{name}, {key}": text for key, text in said.items()})
    return {"facts": facts, "broken": [], "advice": advice}


def _version(name: str) -> str:
    for distribution in (name, f"{name}-cpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "of unknown version"


Tested = tuple[dict[str, str], list[str]]


def _expect(is_right: bool, what: str) -> None:
    if not is_right:
        raise RuntimeError(f"{what} gave a wrong result; reinstall rueda")


def _test_numpy() -> Tested:
    import numpy

    import rueda.numpy as hvd

    hvd.init()
    _expect(bool((hvd.allreduce(numpy.ones(3), op=hvd.Sum) == 1).all()), "allreduce")
    return {}, []


def _test_torch() -> Tested:
    import torch

    import rueda.torch as hvd
    from rueda.torch import arena

    hvd.init()
    _expect(torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.ones(3)), "allreduce")
    why = arena.install() or arena.try_out()
    state = arena.state()
    wanted = "" if state.why != arena.OFF else "; RUEDA_TORCH_ARENA=1 turns it on"
    if why:
        return {"arena": f"unavailable: {why}"}, []
    return {"arena": f"passes its self-test{wanted}"}, []


def _test_tensorflow() -> Tested:
    import tensorflow as tf

    import rueda.tensorflow as hvd

    hvd.init()
    _expect(bool(tf.reduce_all(hvd.allreduce(tf.ones(3), op=hvd.Sum) == 1)), "allreduce")
    plugin = importlib.import_module("rueda.tensorflow.plugin")
    if plugin.is_async():
        return {"operations": "asynchronous"}, []
    sentence = (
        "operations of rueda.tensorflow block TensorFlow's threads here: run them in the same order on "
        "all ranks, or use TensorFlow 2.16 to 2.21"
    )
    return {"operations": "blocking"}, [sentence]


def _test_jax() -> Tested:
    import jax
    import jax.numpy as jnp

    import rueda.jax as hvd

    hvd.init()
    total = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(3))
    _expect(bool((total == 1).all()), "allreduce within jit")
    return {}, []


def _test_keras() -> Tested:
    import keras

    import rueda.keras as hvd

    hvd.init()
    hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    return {"backend": str(keras.backend.backend())}, []


SELF_TESTS: dict[str, Callable[[], Tested]] = {
    "numpy": _test_numpy,
    "torch": _test_torch,
    "tensorflow": _test_tensorflow,
    "jax": _test_jax,
    "keras": _test_keras,
}


def main(arguments: list[str]) -> int:
    """Prints the answer; 2 for a name that is no front end."""
    if len(arguments) > 1 or not set(arguments) <= set(SELF_TESTS):
        print(f"usage: python -m rueda.doctor [{'|'.join(FRONT_ENDS)}]", file=sys.stderr)
        return 2
    answer = try_front_end(arguments[0]) if arguments else look()
    print("\n" + json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
