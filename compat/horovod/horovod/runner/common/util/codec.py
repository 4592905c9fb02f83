"""Objects as text. Load only what comes from somebody you trust: a pickle can run code."""

from __future__ import annotations

import base64
from typing import Any


def dumps_base64(obj: Any, to_ascii: bool = True) -> Any:
    """A pickle of the object in base64: a str, or bytes if not to_ascii."""
    import cloudpickle

    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Any) -> Any:
    """The object."""
    import cloudpickle

    return cloudpickle.loads(base64.b64decode(encoded))
