"""A text that is equal for processes of one host and differs between hosts."""

from __future__ import annotations

import hashlib
import platform

from rueda.ports import host_key


def host_hash(salt: str | None = None) -> str:
    """The name of the host and a digest of its kernel, its network namespace and the salt."""
    name = platform.node()
    text = f"{name}-{host_key()}" + (f"-{salt}" if salt else "")
    return f"{name.partition('.')[0]}-{hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}"
