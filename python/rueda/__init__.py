"""rueda: data-parallel collectives. Import a front end, for instance `import rueda.torch as hvd`."""

from __future__ import annotations

from rueda.run import run

__version__ = "0.1.0"

__all__ = ["__version__", "run"]
