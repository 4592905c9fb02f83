"""Calls of XLA's FFI (plugins/jax/xla_ffi.h) by hand, so that handlers for a GPU run where XLA has none."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from typing import Any, Dict, List, Sequence, Tuple

from rueda import _core

_SCALAR, _STRING = 3, 4  # AttributeType
_INT64, _FLOAT64 = 5, 12  # PrimitiveType
FLOAT32, INT32, BFLOAT16 = 11, 4, 16


class ErrorArguments(Structure):
    _fields_ = [("size", c_size_t), ("next", c_void_p), ("message", c_char_p), ("code", c_int32)]


class StreamArguments(Structure):
    _fields_ = [("size", c_size_t), ("next", c_void_p), ("context", c_void_p), ("stream", c_void_p)]


_ErrorCreate = CFUNCTYPE(c_void_p, POINTER(ErrorArguments))
_StreamGet = CFUNCTYPE(c_void_p, POINTER(StreamArguments))


class Api(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("next", c_void_p),
        ("version", c_size_t * 3),  # size, extensions, two ints
        ("internal", c_void_p),
        ("error_create", _ErrorCreate),
        ("not_used", c_void_p * 3),
        ("stream_get", _StreamGet),
    ]


class Buffer(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("next", c_void_p),
        ("dtype", c_int32),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class Buffers(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("next", c_void_p),
        ("count", c_int64),
        ("types", POINTER(c_int32)),
        ("buffers", POINTER(POINTER(Buffer))),
    ]


class Text(Structure):
    _fields_ = [("data", c_char_p), ("bytes", c_size_t)]


class Scalar(Structure):
    _fields_ = [("dtype", c_int32), ("value", c_void_p)]


class Attributes(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("next", c_void_p),
        ("count", c_int64),
        ("types", POINTER(c_int)),
        ("names", POINTER(POINTER(Text))),
        ("values", POINTER(c_void_p)),
    ]


class Frame(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("next", c_void_p),
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int32),
        ("arguments", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    ]


Place = Tuple[int, Tuple[int, ...], int]  # address, shape, PrimitiveType


class Program:
    """What calls handlers on one stream."""

    def __init__(self, stream: int) -> None:
        path = _core.library_path().with_name("librueda_jax.so")
        self._library = ctypes.CDLL(str(path))
        self._message = ""
        self._stream = stream
        self._error_create = _ErrorCreate(self._make_error)
        self._stream_get = _StreamGet(self._give_stream)
        self._api = Api(ctypes.sizeof(Api))
        self._api.error_create, self._api.stream_get = self._error_create, self._stream_get

    def _make_error(self, arguments: Any) -> int:
        self._message = arguments.contents.message.decode()
        return 1

    def _give_stream(self, arguments: Any) -> int:
        assert arguments.contents.context == 77
        arguments.contents.stream = self._stream
        return 0

    def call(self, handler: str, inputs: Sequence[Place], outputs: Sequence[Place], **attributes: Any) -> str:
        """Calls a handler; returns the message of its error, or an empty text."""
        kept: List[Any] = []
        frame = Frame(ctypes.sizeof(Frame), None, ctypes.pointer(self._api), 77, 3)
        frame.arguments = _buffers(inputs, kept)
        frame.results = _buffers(outputs, kept)
        frame.attributes = _attributes(attributes, kept)
        function = self._library[handler]
        function.restype, function.argtypes = c_void_p, [POINTER(Frame)]
        self._message = ""
        failed = function(ctypes.byref(frame))
        assert bool(failed) == bool(self._message)
        return self._message


def _buffers(places: Sequence[Place], kept: List[Any]) -> Buffers:
    pointers = (POINTER(Buffer) * max(1, len(places)))()
    for at, (address, shape, dtype) in enumerate(places):
        dims = (c_int64 * max(1, len(shape)))(*shape)
        buffer = Buffer(ctypes.sizeof(Buffer), None, dtype, address, len(shape), dims)
        pointers[at] = ctypes.pointer(buffer)
        kept += [dims, buffer]
    kept.append(pointers)
    return Buffers(ctypes.sizeof(Buffers), None, len(places), None, pointers)


def _attributes(given: Dict[str, Any], kept: List[Any]) -> Attributes:
    count = len(given)
    types, names = (c_int * count)(), (POINTER(Text) * count)()
    values = (c_void_p * count)()
    for at, (name, value) in enumerate(given.items()):
        key = Text(name.encode(), len(name))
        if isinstance(value, str):
            types[at], holder = _STRING, Text(value.encode(), len(value))
        else:
            number = c_double(value) if isinstance(value, float) else c_int64(value)
            kept.append(number)
            kind = _FLOAT64 if isinstance(value, float) else _INT64
            types[at], holder = _SCALAR, Scalar(kind, ctypes.addressof(number))
        names[at] = ctypes.pointer(key)
        values[at] = ctypes.addressof(holder)
        kept += [key, holder]
    kept += [types, names, values]
    return Attributes(ctypes.sizeof(Attributes), None, count, types, names, values)


def settings(what: int, name: str, **others: Any) -> Dict[str, Any]:
    """The attributes of a start, beside its id."""
    plain = {"op": _core.SUM, "process_set": 0, "root_rank": -1, "prescale": 1.0, "postscale": 1.0}
    return {"what": what, "name": name, **plain, **others}
