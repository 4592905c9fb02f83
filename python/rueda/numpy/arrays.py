"""Arrays as the engine sees them, on the host and on GPUs: types, layout, memory that it allocated."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Union

import numpy as np

from rueda import _core, device, errors, in_flight, operations
from rueda.device import Stream
from rueda.numpy import on_device
from rueda.numpy.on_device import DeviceInput
from rueda.operations import Call, Naming, is_group
from rueda.process_sets import ProcessSet

Array = np.ndarray[Any, Any]
Input = Union[Array, DeviceInput]

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


def as_inputs(values: Sequence[Any]) -> list[Input]:
    """The members of one operation: all of them in host memory, or all on one GPU. Otherwise ValueError."""
    inputs = [as_input(value) for value in values]
    places = {one.stream.device if isinstance(one, DeviceInput) else -1 for one in inputs}
    if len(places) > 1:
        raise ValueError(
            f"The arrays of one operation have to be in one memory, but these are on devices "
            f"{sorted(places)} (-1 is the host); move them to one, or make an operation for each."
        )
    return inputs


def as_input(value: Any) -> Input:
    """The value as a C-contiguous array of a type the engine carries; a view of it where that is possible."""
    on_gpu = on_device.find(value)
    if on_gpu is not None:
        if on_gpu.dtype not in DTYPES:
            known = ", ".join(sorted(DTYPES))
            raise ValueError(f"Arrays of type {on_gpu.dtype} cannot be sent; convert to one of {known}.")
        return on_gpu
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            "Masked arrays cannot be sent, because the mask would be lost; send array.filled(…), or "
            "array.data and np.ma.getmaskarray(array) one after the other."
        )
    array = _as_numpy(value)
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise ValueError(
            f"Arrays of type {array.dtype} cannot be sent; convert to one of {', '.join(sorted(DTYPES))} in "
            f"native byte order."
        )
    # ascontiguousarray would make a scalar one-dimensional.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _as_numpy(value: Any) -> Array:
    if device.is_taken() or not hasattr(value, "__cuda_array_interface__"):
        return np.asarray(value)
    # In the memory of a GPU. JAX's arrays are copied by this; CuPy's refuse; of others numpy makes an object.
    cause = None
    try:
        array = np.asarray(value)
    except Exception as error:
        cause = error
    if cause is not None or array.dtype.hasobject:
        raise ValueError(
            f"This {type(value).__name__} is in the memory of a GPU, where the job cannot take it: "
            f"{device.support().why}; copy it to host memory first."
        ) from cause
    return array


def group(values: Iterable[Any]) -> Sequence[Any]:
    """The members of a grouped operation. TypeError for a single array, which would be taken apart."""
    return operations.members_of_group(
        values, "array", hasattr(values, "__array__") or hasattr(values, "__cuda_array_interface__")
    )


def empty(like: Input, shape: Sequence[int]) -> tuple[Any, int]:
    """A new array of the kind and type of an input, and its address."""
    if isinstance(like, DeviceInput):
        return like.empty(shape)
    array: Array = np.empty(shape, like.dtype)
    return array, array.ctypes.data


def stream_of(inputs: Sequence[Input]) -> Stream | None:
    """The stream in whose order an operation reads and writes; None for host memory."""
    return inputs[0].stream if isinstance(inputs[0], DeviceInput) else None


def calls(what: int, inputs: Sequence[Input], outputs: Sequence[int] = (), **settings: Any) -> list[Call]:
    """One call for each input. outputs: addresses; none where the engine allocates the results. settings: as
    in Call.
    """
    return [
        _call(what, source, address, settings)
        for source, address in zip(inputs, outputs or [0] * len(inputs))
    ]


def _call(what: int, source: Input, output: int, settings: dict[str, Any]) -> Call:
    if not isinstance(source, DeviceInput):
        return Call(what, DTYPES[source.dtype.name], source.shape, source.ctypes.data, output, **settings)
    call = Call(what, DTYPES[source.dtype], source.shape, source.address, output, **settings)
    call.device, call.memory = source.stream.device, _core.DEVICE_MEMORY
    return call


def start_gathering(
    what: int,
    inputs: Sequence[Input],
    naming: Naming,
    process_set: ProcessSet,
    **settings: Any,
) -> int:
    """Submits operations whose results the engine allocates; they have the types of the inputs."""

    def finish(engine_handle: int) -> Any:
        outputs = [from_engine(engine_handle, i, source)[0] for i, source in enumerate(inputs)]
        return outputs if is_group(naming) else outputs[0]

    stream = stream_of(inputs)
    return in_flight.start(calls(what, inputs, **settings), inputs, finish, naming, process_set, stream)


def from_engine(engine_handle: int, index: int, like: Input) -> tuple[Any, operations.Result]:
    """A copy of one result the engine allocated, of the kind and type of an input, and its description."""
    result = operations.result(engine_handle, index)
    array, address = empty(like, result.shape)
    name = like.dtype if isinstance(like, DeviceInput) else like.dtype.name
    size_bytes = on_device.bytes_of(result.shape, name)
    if size_bytes != result.size_bytes:
        raise errors.internal_error(
            f"The engine returned {result.size_bytes} bytes for a result of shape {result.shape} and type "
            f"{name}, which has {size_bytes}; please report this as a bug."
        )
    if isinstance(like, DeviceInput):
        device.copy(like.stream, address, result.address, size_bytes)
    elif size_bytes:
        ctypes.memmove(address, result.address, size_bytes)
    return array, result
