"""Which frameworks this machine has, and what they see. Imports each only when it is asked about."""

from __future__ import annotations

import importlib
import operator
import re
from typing import Any, Callable


def require(front_end: str, what: str, requirement: str, feature: str = "") -> None:
    """Imports the framework of a front end. ImportError that names the cure if it is missing or too old.

    what: what the front end needs, in words ("PyTorch 2.1 or newer"), and requirement: the same for pip
    ("torch>=2.1"). feature: an attribute by which to tell whether it is new enough, in place of its version.
    """
    name, _, least = requirement.partition(">=")
    needs = f"{front_end} needs {what}, but {{}}; install it with `pip install '{requirement}'`."
    try:
        framework = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(needs.format(f"importing {name} failed ({error})")) from error
    if not (_has(framework, feature) if feature else _release(framework.__version__) >= _release(least)):
        raise ImportError(needs.format(f"{name} {framework.__version__} is installed"))


def _has(framework: Any, feature: str) -> bool:
    try:
        operator.attrgetter(feature)(framework)
    except AttributeError:
        return False
    return True


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall("[0-9]+", version)[:2])


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the front end ("torch", …) can be imported."""
    try:
        importlib.import_module(f"rueda.{ext_base_name}")
    except Exception as error:
        if verbose:
            print(f"The front end {ext_base_name} is not available: {error}")
        return False
    return True


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework ("torch", "tensorflow", "jax") sees a GPU; for "keras", whether its backend does.

    The framework is asked, and initialises its GPUs for the answer. False for other names.
    """
    if ext_base_name not in _SEES_GPU or not extension_available(ext_base_name, verbose):
        return False
    return _SEES_GPU[ext_base_name](importlib.import_module(ext_base_name))


def _jax_sees_gpu(jax: Any) -> bool:
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:  # this jax, or this machine, has no such platform
        return False


_SEES_GPU: dict[str, Callable[[Any], bool]] = {
    "torch": lambda torch: bool(torch.cuda.is_available()),
    "tensorflow": lambda tensorflow: bool(tensorflow.config.list_physical_devices("GPU")),
    "jax": _jax_sees_gpu,
    "keras": lambda keras: gpu_available(keras.config.backend()),
}
