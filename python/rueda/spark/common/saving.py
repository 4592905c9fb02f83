"""Saving estimators and models as Spark ML saves its own: `model.write().overwrite().save(path)`, and
`TorchModel.load(path)`; so pipelines that contain them can be saved too.

A folder of Spark's file system: "metadata" has the class, "values" the parameters, pickled. Loading runs code
that is in the pickle: load only what you trust.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import cloudpickle
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)

# Objects of the program that saved, which have no meaning in another one; they are set again after loading.
_OF_THE_PROGRAM = {"backend", "store"}
_PIECE_BYTES = 16 << 20  # of one row, so that no row is too large for Spark


class Saved(MLWritable, MLReadable):  # type: ignore[misc]
    """What estimators and models inherit."""

    def write(self) -> MLWriter:
        """Spark's writer; `save(path)` is short for `write().save(path)`."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """Spark's reader; `load(path)` is short for `read().load(path)`."""
        return _Reader(cls)

    def _packed(self, values: dict[str, Any]) -> dict[str, Any]:
        """Parameters in a form that can be pickled."""
        return values

    @classmethod
    def _unpacked(cls, values: dict[str, Any]) -> dict[str, Any]:
        """What `_packed` got."""
        return values


class _Writer(MLWriter):  # type: ignore[misc]
    def __init__(self, instance: Any) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:
        """Raises TypeError if a parameter cannot be pickled."""
        given = {param.name: value for param, value in self._instance._paramMap.items()}
        values = {name: value for name, value in given.items() if name not in _OF_THE_PROGRAM}
        try:
            content = cloudpickle.dumps(self._instance._packed(values))
        except Exception as error:
            raise TypeError(f"{type(self._instance).__name__} cannot be saved: {error}") from error
        session = self.sparkSession
        DefaultParamsWriter.saveMetadata(self._instance, path, session.sparkContext, paramMap={})
        pieces = [
            (begin // _PIECE_BYTES, bytearray(content[begin : begin + _PIECE_BYTES]))
            for begin in range(0, len(content), _PIECE_BYTES)
        ]
        frame = session.createDataFrame(pieces, "number bigint, piece binary")
        frame.coalesce(1).write.parquet(os.path.join(path, "values"))


class _Reader(MLReader):  # type: ignore[misc]
    def __init__(self, kind: type) -> None:
        super().__init__()
        self._kind: Any = kind

    def load(self, path: str) -> Any:
        session = self.sparkSession
        name = f"{self._kind.__module__}.{self._kind.__name__}"
        metadata = DefaultParamsReader.loadMetadata(path, session.sparkContext, name)
        rows = session.read.parquet(os.path.join(path, "values")).orderBy("number").collect()
        values = self._kind._unpacked(pickle.loads(b"".join(bytes(row["piece"]) for row in rows)))
        instance = self._kind(**values)
        instance._resetUid(metadata["uid"])
        return instance
