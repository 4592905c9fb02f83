"""numpy arrays as the engine sees them: types, layout, and memory the engine allocated."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rueda import _core, errors, in_flight, operations
from rueda.operations import Call, Naming, is_group
from rueda.process_sets import ProcessSet

Array = np.ndarray[Any, Any]

# By name: bfloat16 is a type of the package ml_dtypes, which need not be there.
DTYPES: dict[str, int] = {
    "uint8": _core.UINT8,
    "int8": _core.INT8,
    "uint16": _core.UINT16,
    "int16": _core.INT16,
    "int32": _core.INT32,
    "int64": _core.INT64,
    "float16": _core.FLOAT16,
    "bfloat16": _core.BFLOAT16,
    "float32": _core.FLOAT32,
    "float64": _core.FLOAT64,
    "bool": _core.BOOL,
}


def as_input(value: Any) -> Array:
    """The value as a C-contiguous array of a type the engine carries; a view of it where that is possible."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            "Masked arrays cannot be sent, because the mask would be lost; send array.filled(…), or "
            "array.data and np.ma.getmaskarray(array) one after the other."
        )
    array = np.asarray(value)
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise ValueError(
            f"Arrays of type {array.dtype} cannot be sent; convert to one of {', '.join(sorted(DTYPES))} in "
            f"native byte order."
        )
    # ascontiguousarray would make a scalar one-dimensional.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def group(values: Iterable[Any]) -> Sequence[Any]:
    """The members of a grouped operation. TypeError for a single array, which would be taken apart."""
    return operations.members_of_group(values, "array", hasattr(values, "__array__"))


def engine_type(array: Array) -> int:
    """The engine's type of an array that as_input returned."""
    return DTYPES[array.dtype.name]


def calls(what: int, inputs: Sequence[Array], outputs: Sequence[Array] = (), **settings: Any) -> list[Call]:
    """One call for each input. outputs: none where the engine allocates the results; settings: as in Call."""
    addresses = [output.ctypes.data for output in outputs] or [0] * len(inputs)
    return [
        Call(what, engine_type(source), source.shape, source.ctypes.data, address, **settings)
        for source, address in zip(inputs, addresses)
    ]


def start_gathering(
    what: int,
    inputs: Sequence[Array],
    naming: Naming,
    process_set: ProcessSet,
    **settings: Any,
) -> int:
    """Submits operations whose results the engine allocates; they have the types of the inputs."""
    dtypes = [source.dtype for source in inputs]

    def finish(engine_handle: int) -> Any:
        outputs = [from_engine(engine_handle, i, dtype)[0] for i, dtype in enumerate(dtypes)]
        return outputs if is_group(naming) else outputs[0]

    return in_flight.start(calls(what, inputs, **settings), inputs, finish, naming, process_set)


def from_engine(engine_handle: int, index: int, dtype: np.dtype[Any]) -> tuple[Array, operations.Result]:
    """A copy of one result the engine allocated, and its description."""
    result = operations.result(engine_handle, index)
    array = np.empty(result.shape, dtype)
    if array.nbytes != result.size_bytes:
        raise errors.internal_error(
            f"The engine returned {result.size_bytes} bytes for a result of shape {result.shape} and type "
            f"{dtype}, which has {array.nbytes}; please report this as a bug."
        )
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, result.address, array.nbytes)
    return array, result
