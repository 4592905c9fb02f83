"""The collectives on arrays and pytrees, inside and outside jit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from rueda import _core, epochs, operations
from rueda import numpy as host
from rueda.compression import wire_of
from rueda.in_flight import let_end
from rueda.jax.compression import Compression, Compressor
from rueda.jax.naming import name_in_program, name_of_call
from rueda.jax.primitive import WORDS, CollectiveSpec, collective, finish_step, from_engine, start
from rueda.numpy.arrays import DTYPES
from rueda.operations import check_compression, members_of_group
from rueda.policy import OPS, Average, Sum, check_factors, check_name, check_op, root_rank_of
from rueda.process_sets import ProcessSet, global_process_set

__all__ = ["allgather", "allreduce", "alltoall", "broadcast", "grouped_allreduce", "reducescatter"]


def describe(what: int, process_set: ProcessSet, **settings: Any) -> CollectiveSpec:
    """A spec without names. Raises where this rank cannot take part."""
    epochs.require()
    set_id = operations.process_set_id(process_set, "Collective")
    ranks = process_set.rank(), process_set.size()
    return CollectiveSpec(what, (), process_set, set_id, ranks[0] or 0, ranks[1] or 1, **settings)


def is_traced(leaves: list[Any]) -> bool:
    """Whether any of the values is abstract: under jit, grad or vmap."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _flatten(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """(path, leaf) of every leaf, and the structure that puts leaves together again."""
    return jax.tree_util.tree_flatten_with_path(tree)


# Arrays that are only moved may have types that the engine cannot add: their bits travel as another type.
_MOVED = (_core.BROADCAST, _core.ALLGATHER, _core.ALLTOALL)
_AS_SIGNED = {"uint32": jnp.int32, "uint64": jnp.int64}


def _encode(leaf: Any, what: int, label: str) -> tuple[Any, Callable[[Any], Any]]:
    """An array that can be sent, and a function that gives a result the type of the leaf again."""
    kind = getattr(leaf, "dtype", None)
    if what in _MOVED and kind is not None and jnp.issubdtype(kind, jax.dtypes.prng_key):
        random = jax.random.key_impl(leaf)
        array, decode = _encode(jax.random.key_data(leaf), what, label)
        return array, lambda result: jax.random.wrap_key_data(decode(result), impl=random)
    try:
        array = jnp.asarray(leaf)
    except TypeError as error:
        raise ValueError(
            f"{label}: {type(leaf).__name__} is not an array ({error}); leave it out of the tree."
        ) from None
    signed = _AS_SIGNED.get(array.dtype.name) if what in _MOVED else None
    if signed is not None:
        return lax.bitcast_convert_type(array, signed), lambda result: lax.bitcast_convert_type(
            result, array.dtype
        )
    if array.dtype.name not in DTYPES:
        raise ValueError(
            f"{label}: no collective takes the type {array.dtype.name} here; convert the array, for instance "
            f"to float32 or int32."
        )
    return array, lambda result: result


def _apply(tree: Any, name: str | None, spec: CollectiveSpec) -> Any:
    """The collective on every leaf; names are `name` and the path of the leaf in the tree."""
    paths, leaves, rebuild = _sendable(tree, name, spec)
    return rebuild(_collect(paths, leaves, name, spec)) if leaves else tree


def _sendable(
    tree: Any, name: str | None, spec: CollectiveSpec
) -> tuple[list[str], list[Any], Callable[[list[Any]], Any]]:
    """The paths of the leaves, arrays that can be sent for them, and what makes a tree of results."""
    check_name(name)
    with_paths, structure = _flatten(tree)
    paths = [jax.tree_util.keystr(path) for path, _ in with_paths]
    label = f"{WORDS[spec.what]} of {name or 'an array'}"
    encoded = [_encode(leaf, spec.what, label + path) for path, (_, leaf) in zip(paths, with_paths)]

    def rebuild(results: list[Any]) -> Any:
        return structure.unflatten([decode(result) for (_, decode), result in zip(encoded, results)])

    return paths, [array for array, _ in encoded], rebuild


def _collect(paths: list[str], leaves: list[Any], name: str | None, spec: CollectiveSpec) -> list[Any]:
    """The results of arrays that can be sent. Their names are `name` and a path each."""
    if is_traced(leaves):
        tracer = next(leaf for leaf in leaves if is_traced([leaf]))
        name = name_of_call(tracer) if name is None else name_in_program(name, tracer)
        _core.c_text(name, "name")
        named = replace(spec, names=tuple(name + path for path in paths))
        results: list[Any] = collective.bind(*leaves, spec=named)
        return results
    names = [None if name is None else name + path for path in paths]
    return [jnp.asarray(result) for result in _run_eagerly(spec, names, leaves)]


def exchange(named: list[tuple[str, Any]], prefix: str, spec: CollectiveSpec) -> list[Any]:
    """The results for arrays that have the names `prefix` and these, in the same order."""
    if not named:
        return []
    return _collect([name for name, _ in named], [array for _, array in named], prefix, spec)


def _run_eagerly(spec: CollectiveSpec, names: list[str | None], leaves: list[Any]) -> list[Any]:
    return finish_step(spec, _start_eagerly(spec, names, leaves))


def _start_eagerly(spec: CollectiveSpec, names: Sequence[str | None], leaves: list[Any]) -> list[int]:
    handles: list[int] = []
    try:
        for name, leaf in zip(names, leaves):
            handles.append(start(spec, name, leaf))
    except Exception:
        let_end(handles)  # their names are free again
        raise
    return handles


def allreduce(
    tree: Any,
    name: str | None = None,
    op: int = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    compression: type[Compressor] = Compression.none,
) -> Any:
    """Reduces arrays over all ranks of a process set; the same bits on every rank.

    tree: an array or a pytree of arrays, equal in structure, shapes and types on all ranks. name: what ranks
    are matched by, together with the path of each leaf; None takes the line of code that calls (inside jit)
    or counts calls (outside). op: Average (default), Sum, Adasum, Min, Max or Product; the
    result is postscale · op(prescale · array). Works inside and outside jit, under grad and vmap (Sum and
    Average are differentiable: the transpose of a sum over ranks is a sum over ranks). Raises ValueError for
    arguments this rank can judge; when ranks disagree or are lost HorovodInternalError, inside jit
    jax.errors.JaxRuntimeError or, where several arrays are awaited at once, ValueError; all name the array
    and the ranks.

    >>> import jax, jax.numpy as jnp, rueda.jax as hvd
    >>> hvd.init()
    >>> jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.ones(3))  # Array([n, n, n])
    """
    check_op(op, OPS, "allreduce")
    prescale, postscale = check_factors(prescale_factor, postscale_factor)
    spec = describe(_core.ALLREDUCE, process_set, op=op, prescale=prescale, postscale=postscale)
    return _reduce(tree, name, spec, compression)


def _spec_of_step(terms: tuple[int, float, float], process_set: ProcessSet, step: int) -> CollectiveSpec:
    op, prescale, postscale = terms
    return describe(_core.ALLREDUCE, process_set, op=op, prescale=prescale, postscale=postscale, step=step)


def reduce_gradients(
    tree: Any,
    name: str,
    terms: tuple[int, float, float],
    process_set: ProcessSet,
    compression: type[Compressor],
    step: int,
) -> Any:
    """allreduce of all gradients of a step. Tells the timeline that it has ended, also inside jit.

    terms: (op, prescale, postscale). step: the number of what steps, such as the optimizer; 0: nothing does.
    """
    return _reduce(tree, name, _spec_of_step(terms, process_set, step), compression)


def start_reducing(
    tree: Any,
    name: str,
    terms: tuple[int, float, float],
    process_set: ProcessSet,
    compression: type[Compressor],
    step: int,
) -> Callable[[], Any]:
    """Starts what reduce_gradients does, with concrete arrays. The function waits, and returns the result."""
    sent, spec, decode = _compressed(tree, _spec_of_step(terms, process_set, step), compression)
    paths, leaves, rebuild = _sendable(sent, name, spec)
    handles = _start_eagerly(spec, [name + path for path in paths], leaves)
    return lambda: decode(rebuild([jnp.asarray(result) for result in finish_step(spec, handles)]))


def _reduce(tree: Any, name: str | None, spec: CollectiveSpec, compression: type[Compressor]) -> Any:
    sent, spec, decode = _compressed(tree, spec, compression)
    return decode(_apply(sent, name, spec))


def _compressed(
    tree: Any, spec: CollectiveSpec, compression: type[Compressor]
) -> tuple[Any, CollectiveSpec, Callable[[Any], Any]]:
    """What travels, how, and what makes a tree like the given one of what arrives."""
    if compression is Compression.none:
        return tree, spec, lambda reduced: reduced
    check_compression(compression)
    leaves = jax.tree_util.tree_leaves(tree)
    is_plain = jax.default_backend() == "cpu" and all(jnp.result_type(x) == jnp.float32 for x in leaves)
    if wire := wire_of(compression, spec.op, is_plain):
        return tree, replace(spec, wire=wire), lambda reduced: reduced
    pairs = [compression.compress(jnp.asarray(leaf)) for leaf in leaves]
    structure: Any = jax.tree_util.tree_structure(tree)

    def decode(reduced: Any) -> Any:
        arrays = zip(jax.tree_util.tree_leaves(reduced), pairs)
        return structure.unflatten([compression.decompress(array, context) for array, (_, context) in arrays])

    return structure.unflatten([array for array, _ in pairs]), spec, decode


def grouped_allreduce(arrays: Any, *arguments: Any, **settings: Any) -> list[Any]:
    """Reduces several arrays together; a list in the same order. Otherwise as allreduce.

    Each array is sent as soon as it is computed, and all are awaited at once.

    >>> a, b = hvd.grouped_allreduce([a, b], op=hvd.Sum)
    """
    members = members_of_group(arrays, "array", isinstance(arrays, str))
    reduced: list[Any] = allreduce(list(members), *arguments, **settings)
    return reduced


def allgather(tree: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the arrays of all ranks along dimension 0, in rank order of the process set.

    tree: an array [rows, …] or a pytree of such. Outside jit the rows may differ between ranks; inside they
    must be equal, since shapes are fixed when the program is compiled. Errors as for allreduce.

    >>> hvd.allgather(jnp.array([hvd.rank()]))  # Array([0, …, n - 1])
    """
    return _apply(tree, name, describe(_core.ALLGATHER, process_set))


def broadcast(
    tree: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns root's arrays on every rank.

    tree: an array or a pytree of arrays, equal in structure, shapes and types on all ranks. root_rank: a
    world rank, also within a process set. Under grad only root receives a gradient. Errors as for allreduce.

    >>> key = hvd.broadcast(jax.random.key_data(jax.random.key(seed)), root_rank=0)
    """
    return _apply(tree, name, describe(_core.BROADCAST, process_set, root_rank=root_rank_of(root_rank)))


def reducescatter(
    tree: Any,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces arrays over all ranks and returns this rank's slice along dimension 0.

    tree: an array [rows, …] or a pytree of such, equal on all ranks. Rank r of n receives rows // n rows, one
    more if r < rows % n, consecutive in rank order. op: Average (default) or Sum. Errors as for allreduce.

    >>> hvd.reducescatter(jnp.ones((4, 2)), op=hvd.Sum)  # 2 ranks: [2, 2], all 2.0
    """
    check_op(op, (Average, Sum), "reducescatter")
    prescale, postscale = check_factors(prescale_factor, postscale_factor)
    factors = {"prescale": prescale, "postscale": postscale}
    return _apply(tree, name, describe(_core.REDUCESCATTER, process_set, op=op, **factors))


def alltoall(
    array: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends slices of an array to all ranks and returns what they sent here, in rank order.

    array: [rows, …], rows / n for each rank. splits, outside jit only: rows for each rank; the result is then
    (output, received splits int32 [n]). Errors as for allreduce.

    >>> hvd.alltoall(jnp.arange(4))  # 2 ranks: Array([0, 1, 0, 1]) on rank 0
    """
    spec = describe(_core.ALLTOALL, process_set)
    if splits is None:
        return _apply(array, name, spec)
    if is_traced([array, splits]):
        raise ValueError(
            "alltoall: splits give results of a size that is not known when the program is compiled; leave "
            "them out or call alltoall outside jit."
        )
    output, received = host.alltoall(array, splits, name, process_set)
    return jnp.asarray(from_engine(output)), jnp.asarray(received)
