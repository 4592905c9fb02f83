"""Names of Horovod that rueda does not have: importing a module, or using a class or function, says in one
sentence what to use instead.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import Any

_RUN = "start jobs with horovod.run, horovodrun or `rueda run`"
_SPARK = "use horovod.spark.run"
_RAY = "use horovod.ray.RayExecutor"
_ESTIMATORS = "use the estimators of horovod.spark.torch and horovod.spark.keras"
ELASTIC = "elastic jobs are those of `rueda run --min-np`"

# What to do instead of importing a module or one below it.
_MODULES: dict[str, str] = {
    "horovod._keras": "use horovod.keras or horovod.tensorflow.keras",
    "horovod.mxnet": "MXNet is retired; use horovod.torch, horovod.tensorflow or horovod.keras",
    "horovod.runner.elastic.registration": _RUN,
    "horovod.runner.elastic.rendezvous": _RUN,
    "horovod.runner.common.service": _RUN,
    "horovod.runner.common.util.network": _RUN,
    "horovod.runner.common.util.tiny_shell_exec": "use the subprocess module",
    "horovod.runner.driver": _RUN,
    "horovod.runner.task": _RUN,
    "horovod.runner.task_fn": _RUN,
    "horovod.runner.run_task": "use horovod.run, which brings the results of a function itself",
    "horovod.runner.mpi_run": "use `rueda run --mpi`",
    "horovod.runner.js_run": "jsrun can start the ranks itself: see docs/run.md of rueda",
    "horovod.runner.doc_run": _RUN,
    "horovod.runner.util.cache": _RUN,
    "horovod.runner.util.lsf": "`rueda run` reads the hosts of an LSF job itself",
    "horovod.runner.util.remote": "`rueda run` reaches hosts by ssh itself",
    "horovod.ray.adapter": _RAY,
    "horovod.ray.driver_service": _RAY,
    "horovod.ray.elastic_v2": "use horovod.ray.RayExecutor with min_workers",
    "horovod.ray.strategy": _RAY,
    "horovod.ray.utils": _RAY,
    "horovod.spark.lightning": "use Lightning in the function of horovod.spark.run, or horovod.spark.torch",
    "horovod.spark.conf": _SPARK,
    "horovod.spark.driver": _SPARK,
    "horovod.spark.gloo_run": _SPARK,
    "horovod.spark.host_discovery": "use horovod.spark.run_elastic",
    "horovod.spark.mpi_run": _SPARK,
    "horovod.spark.mpirun_rsh": _SPARK,
    "horovod.spark.task.task_service": _SPARK,
    "horovod.spark.task.task_info": "use horovod.spark.task.get_available_devices",
    "horovod.spark.common.cache": _ESTIMATORS,
    "horovod.spark.common.constants": _ESTIMATORS,
    "horovod.spark.common.datamodule": _ESTIMATORS,
    "horovod.spark.common.params": "parameters are keywords and setters of the estimators",
    "horovod.spark.common.serialization": _ESTIMATORS,
    "horovod.spark.data_loaders": "use horovod.data",
    "horovod.spark.keras.bare": _ESTIMATORS,
    "horovod.spark.keras.datamodule": _ESTIMATORS,
    "horovod.spark.keras.optimizer": _ESTIMATORS,
    "horovod.spark.keras.remote": _ESTIMATORS,
    "horovod.spark.keras.tensorflow": _ESTIMATORS,
    "horovod.spark.keras.util": _ESTIMATORS,
    "horovod.spark.torch.datamodule": _ESTIMATORS,
    "horovod.spark.torch.remote": _ESTIMATORS,
    "horovod.spark.torch.util": _ESTIMATORS,
}


def sentence(name: str, instead: str) -> str:
    """Why a name is not there, and what to do."""
    return f"rueda has no {name}: {instead}."


def absent(name: str, instead: str = _RUN) -> type:
    """Stands for a class or a function; using it raises NotImplementedError in one sentence."""
    short = name.rpartition(".")[2]

    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(sentence(name, instead))

    return type(short, (), {"__new__": refuse, "__doc__": sentence(name, instead), "__module__": __name__})


class _Refusing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last, so it only sees modules that nobody else has."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name in _MODULES else None

    def exec_module(self, module: Any) -> None:
        name = module.__name__
        raise ModuleNotFoundError(sentence(name, _MODULES[name]), name=name)


def install() -> None:
    """Lets `import` say what to use instead."""
    if not any(isinstance(finder, _Refusing) for finder in sys.meta_path):
        sys.meta_path.append(_Refusing())
