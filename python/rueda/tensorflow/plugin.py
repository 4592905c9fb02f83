"""The TensorFlow plugin: finding it, loading it, and running its operations in every mode of TensorFlow."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from rueda import _core

CANNOT_LOAD = "The TensorFlow plugin {path} cannot be used: {why}"
XLA = (
    "{what} cannot be compiled by XLA: call it outside of functions with jit_compile=True, or set "
    "jit_compile=False (for Keras: model.compile(..., jit_compile=False))."
)
_NOT_FOR_NAMES = re.compile("[^a-zA-Z0-9_]")


def plugin_path() -> Path:
    """Where the plugin is: beside librueda.so."""
    return _core.library_path().parent / "librueda_tensorflow.so"


def _load() -> tuple[Any, ctypes.CDLL]:
    path = plugin_path()
    try:
        functions = tf.load_op_library(
            str(path)
        )  # comes first: only this call makes Python functions of operations
        library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL)
    except (tf.errors.OpError, OSError) as error:
        why = f"{error}; reinstall rueda, or build the target rueda_tensorflow beside librueda.so."
        raise ImportError(CANNOT_LOAD.format(path=path, why=why)) from None
    problem = library["rueda_tensorflow_problem"]
    problem.restype = ctypes.c_char_p
    if why := problem().decode():
        raise ImportError(CANNOT_LOAD.format(path=path, why=why))
    return functions, library


functions, _library = _load()


def is_async() -> bool:
    """Whether operations may be run in any order without blocking TensorFlow's threads.

    They may not if the asynchronous kernels of this TensorFlow are not as the plugin knows them, or with
    RUEDA_TENSORFLOW_ASYNC=0. In a program without eager execution this is unknown until the first operation
    has run; the answer is True until then.
    """
    found = int(_library["rueda_tensorflow_is_async"]())
    if found < 0 and os.environ.get("RUEDA_TENSORFLOW_ASYNC") == "0":
        return False
    if found < 0:
        with tf.init_scope():
            if tf.executing_eagerly():
                functions.probe_rueda()
                found = int(_library["rueda_tensorflow_is_async"]())
    return found != 0


class DefaultName(str):
    """A name made up for an operation that the user gave none."""


def run(function: Callable[..., Any], what: str, name: str | None, **arguments: Any) -> Any:
    """Runs or builds one operation and returns its output or outputs.

    what: its type, for messages. name: the name by which ranks match it, which in graphs is the name of the
    node. A name that the user gave holds wherever tf.function puts the node: calls of functions become
    prefixes of node names, which are numbered in the order of the calls.
    """
    _core.c_text(name or "", "name")
    if tf.executing_eagerly():
        return function(tensor_name=name or "", **arguments)
    graph = tf.compat.v1.get_default_graph()
    if control_flow_util.GraphOrParentsInXlaContext(graph):
        raise NotImplementedError(XLA.format(what=what))
    if name and not isinstance(name, DefaultName) and getattr(graph, "outer_graph", None) is not None:
        full = graph.unique_name(name, mark_as_used=False)
        arguments["tensor_name"] = full.rpartition("/")[2] if arguments.get("ignore_name_scope") else full
    outputs = function(name=name, **arguments)
    _let_run_in_any_order(graph, outputs)
    return outputs


def _let_run_in_any_order(graph: Any, outputs: Any) -> None:
    """Takes the operation out of the chain in which tf.function runs stateful operations.

    In the chain an operation waits for the one before it. Ranks whose order differs would wait forever, and
    nothing would overlap with the backward pass. The operation must still run. This is not done inside
    loops, whose rounds use one name one after the other, nor if operations block, because the chain then
    keeps them in order.
    """
    manager = getattr(graph, "experimental_acd_manager", None)
    if manager is None or not is_async() or _is_in_loop(graph):
        return
    first = outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) else outputs
    operation = first if isinstance(first, tf.Operation) else getattr(first, "op", None)
    if operation is not None:
        manager.run_independently(operation)


def mark_step(source: int, reduced: list[Any]) -> list[Any]:
    """Tells the timeline that a step has ended, after `reduced` was computed; also in compiled functions.

    source: as of rueda_mark_step. reduced: tensors, IndexedSlices or None; returned, to be used from here on.
    """
    if tf.executing_eagerly():
        _core.mark_step(source)
        return reduced
    graph = tf.compat.v1.get_default_graph()
    present = [i for i, one in enumerate(reduced) if one is not None]
    with tf.control_dependencies([reduced[i] for i in present]):
        mark = functions.mark_step_rueda(source=source)
    if getattr(graph, "experimental_acd_manager", None) is not None:
        _let_run_in_any_order(graph, mark)
        return reduced
    # In graphs of sessions only what a result needs is run.
    with tf.control_dependencies([mark]):
        last = present[-1]
        return [*reduced[:last], tf.identity(reduced[last]), *reduced[last + 1 :]]


def _is_in_loop(graph: Any) -> bool:
    """Whether the graph is the body of a tf.while_loop, or lies within one."""
    while graph is not None:
        if str(getattr(graph, "name", "")).rpartition("/")[2].startswith("while_body"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def default_name(prefix: str, *tensors: Any) -> str | None:
    """A node's name, made of tensors' names; None if they have none (eager execution)."""
    if tf.executing_eagerly():
        return None
    names = [getattr(tensor, "name", None) for tensor in tensors]
    if not all(isinstance(name, str) for name in names):
        return DefaultName(prefix)
    return DefaultName("_".join([prefix, *(_NOT_FOR_NAMES.sub("_", str(name)) for name in names)]))
