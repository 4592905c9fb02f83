"""Rules about the Python packages: who may know whom, import cycles, and who may name C symbols."""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List, Optional, Set, Tuple

from cycles import check_cycles
from source import Finding, Source

ROOT = "python/"
# The front ends, and what each uses: numpy for host memory, and for Keras other frameworks.
# tf.keras is Keras on TensorFlow. Its package lies below rueda.tensorflow. Those below rueda.spark are
# estimators, and the data service in Spark's tasks.
FOUNDATIONS: Dict[str, Set[str]] = {
    "numpy": set(),
    "torch": set(),
    "tensorflow": set(),
    "jax": {"numpy"},
    "keras": {"jax", "numpy", "tensorflow", "torch"},
    "tensorflow.keras": {"keras", "numpy", "tensorflow"},
    "spark.torch": {"torch"},
    "spark.keras": {"keras", "numpy", "tensorflow.keras"},
    "spark.tensorflow": {"tensorflow"},
}
# These load front ends: the one for a given object, or all in order to inspect them.
LOADERS = {ROOT + "rueda/front_ends.py", ROOT + "rueda/doctor.py"}
DYNAMIC = re.compile(r"rueda(\.\w+)+")  # a string that is the name of a module, as importlib takes it


def module_of(path: str) -> str:
    """The dotted name of the module in this file."""
    return path.removeprefix(ROOT).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def front_end_of(module: str) -> Optional[str]:
    """The front end to which a module belongs; None if all of them share it."""
    inner = module.split(".")[1:]
    for length in (2, 1):
        name = ".".join(inner[:length])
        if name in FOUNDATIONS and len(inner) >= length:
            return name
    return None


def imports(source: Source) -> Iterator[Tuple[int, str]]:
    """(line, module or name in one) of each import, those in functions and through importlib included."""
    for node in ast.walk(ast.parse("\n".join(source.lines))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Constant) and DYNAMIC.fullmatch(str(node.value)):
            yield node.lineno, str(node.value)


def check_edges(source: Source) -> Iterator[Finding]:
    mine = front_end_of(module_of(source.path))
    for number, target in imports(source):
        other = front_end_of(target)
        if mine and other and other != mine and other not in FOUNDATIONS[mine]:
            sentence = f"front ends {mine} and {other} must not know each other."
            yield Finding(source.path, number, "layer", sentence)
        if mine is None and other and source.path not in LOADERS:
            sentence = f"modules that all front ends share must not know {other}."
            yield Finding(source.path, number, "layer", sentence)


def check_symbols(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.lines, 1):
        if source.path != ROOT + "rueda/_core.py" and re.search(r"\.rueda_[a-z_]+\b", line):
            yield Finding(source.path, number, "c-symbols", "only _core.py names symbols of librueda.so.")


def check_imports(sources: List[Source]) -> Iterator[Finding]:
    """No module imports itself through others."""
    known = {module_of(s.path): s for s in sources}

    def targets(module: str) -> Iterator[Tuple[str, int, str]]:
        for number, target in imports(known[module]):
            while target and target not in known:
                target = target.rpartition(".")[0]  # a name in a module
            if target and target != module:
                yield known[module].path, number, target

    yield from check_cycles(known, targets, "import-cycle")


def check(sources: List[Source]) -> Iterator[Finding]:
    mine = [s for s in sources if s.path.startswith(ROOT + "rueda/") and s.is_python]
    for source in mine:
        yield from check_symbols(source)
        yield from check_edges(source)
    yield from check_imports(mine)
