"""The import name horovod, served by rueda."""

from horovod import _absent
from horovod.runner import run

__version__ = "0.28.1"

__all__ = ["__version__", "run"]

_absent.install()
