"""Arguments of older Keras that scripts still pass."""

from __future__ import annotations

import functools
from typing import Any

import keras

# Asked Keras 2.0 not to run the step by a path that knew nothing of wrapped optimizers; Keras 3 has one path.
_WITHOUT_EFFECT = ("experimental_run_tf_function",)


def accept() -> None:
    """Makes Model.compile take arguments that mean nothing any more. Once for the process."""
    # Where it is defined, not on Model: loading compiles a model only where its class has the trainer's own.
    owner = next(one for one in keras.Model.__mro__ if "compile" in vars(one))
    plain = owner.compile
    if getattr(plain, "takes_retired", False):
        return

    @functools.wraps(plain)
    def compile(self: Any, *arguments: Any, **settings: Any) -> Any:
        for name in _WITHOUT_EFFECT:
            settings.pop(name, None)
        return plain(self, *arguments, **settings)

    compile.takes_retired = True  # type: ignore[attr-defined]
    owner.compile = compile
