"""The hook that autograd calls for each gradient: in C where torch shows its tensors to C, else in Python.

`librueda_torch.so` has the hook in C, which does what the one in pending_gradients.py does, without bytecode.
It needs torch's table of C functions for DLPack (torch 2.10). Both notice the same things and leave the same
behind.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import torch

from rueda import _core
from rueda.basics import is_disabled
from rueda.open_operations import open_operations, writing_back
from rueda.torch import arena, pending_gradients
from rueda.torch.pending_gradients import Activity, PendingGradient

Hook = Callable[[torch.Tensor], None]

OFF = "RUEDA_TORCH_C_HOOK=0"
OLD = "this torch has no torch.Tensor.__dlpack_c_exchange_api__, which is there from torch 2.10 on"
NOT_LOADED = (
    "The hook of gradients in C cannot be used ({why}); the one in Python does the same and takes longer. "
    "Reinstall rueda."
)


class Plugin:
    """The functions of librueda_torch.so that make and await gradients."""

    def __init__(self) -> None:
        library = ctypes.PyDLL(str(arena.plugin_path()))  # keeps the GIL, and raises what a function has set
        self.install = library["rueda_torch_install_hooks"]
        self.install.argtypes, self.install.restype = [ctypes.py_object] * 4, ctypes.c_char_p
        self.make = library["rueda_torch_make_hook"]
        self.make.argtypes, self.make.restype = [ctypes.py_object] * 3, ctypes.py_object
        self.await_all = library["rueda_torch_await_gradients"]
        self.await_all.argtypes = [ctypes.py_object, ctypes.c_int]


_lock = threading.Lock()
_plugin: Plugin | None = None
_why: str | None = None  # None: not tried yet


def why_not() -> str:
    """Loads the hook in C, once per process. Returns "", or why the one in Python is used, as a clause."""
    global _plugin, _why
    with _lock:
        if _why is None:
            _plugin, _why = _load()
        return _why


def _load() -> tuple[Plugin | None, str]:
    if is_disabled("TORCH_C_HOOK"):
        return None, OFF
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        return None, OLD
    try:
        plugin = Plugin()
        why = plugin.install(torch.Tensor, exchange, open_operations, writing_back).decode()
    except (OSError, AttributeError) as error:
        why = str(error)
    if not why:
        return plugin, ""
    _core.log(_core.LOG_WARNING, NOT_LOADED.format(why=why))
    return None, why


def make_hook(gradient: PendingGradient, activity: Activity, in_general: Hook) -> Hook:
    """What autograd calls when a gradient is complete; see pending_gradients.make_hook."""
    if why_not():
        return pending_gradients.make_hook(gradient, activity, in_general)
    assert _plugin is not None
    hook: Hook = _plugin.make(pending_gradients.weak_slot(gradient), activity, in_general)
    return hook


def await_all(gradients: list[Any], passes: int) -> bool:
    """Awaits all gradients of a step and makes them ready for so many passes of the next, if each was started
    by a hook. False: something is not usual, and nothing has changed.

    Whatever is raised came from a signal handler and changed nothing: call again.
    """
    return _plugin is not None and bool(_plugin.await_all(gradients, passes))
