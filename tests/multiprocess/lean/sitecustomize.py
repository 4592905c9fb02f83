"""Python runs this first where the folder is in PYTHONPATH: for ranks that compile nothing and draw nothing.

An optimizer of PyTorch imports PyTorch's compiler, only to keep it away: as much time as importing PyTorch
takes, in each rank. Keras imports matplotlib if it is there. An interpreter that ends collects what its
modules have made, which takes a third of that time.
"""

import atexit
import gc
import importlib
import sys


class NotYet:
    """torch._dynamo, until somebody wants more of it than to be left alone."""

    __spec__ = None

    def graph_break(self, msg=""):
        pass

    def disable(self, fn=None, *args, **kwargs):
        return fn if fn is not None else lambda given: given

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        if sys.modules.get("torch._dynamo") is self:
            del sys.modules["torch._dynamo"]
        return getattr(importlib.import_module("torch._dynamo"), name)

    def __setattr__(self, name, value):  # the import of a submodule
        setattr(importlib.import_module("torch._dynamo"), name, value)


atexit.register(gc.freeze)  # the first to be registered is the last to be called
sys.modules["torch._dynamo"] = NotYet()  # type: ignore[assignment]
sys.modules["matplotlib"] = None  # type: ignore[assignment]
