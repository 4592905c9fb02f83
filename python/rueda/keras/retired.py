"""Arguments of older Keras that scripts still pass."""

from __future__ import annotations

import functools
from typing import Any

import keras

# It asked Keras 2.0 not to use a path for the step that ignored wrapped optimizers. Keras 3 has one path.
_WITHOUT_EFFECT = ("experimental_run_tf_function",)


def accept() -> None:
    """Makes Model.compile accept arguments that no longer mean anything. Done once per process."""
    # Patched where it is defined, not on Model, because loading compiles only models with the trainer's own.
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
