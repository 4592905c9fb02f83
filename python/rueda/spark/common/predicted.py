"""The types of predictions: that of the label where a row has one value, else vectors of Spark ML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

Array = np.ndarray[Any, Any]
# Bits of the labels that are whole numbers, by Spark's names of their types.
_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SCALARS = {*_WHOLE, "boolean", "float", "double"}


@dataclass(frozen=True)
class Output:
    """One column of predictions. kind: a type by Spark's name; "vector" is that of Spark ML."""

    name: str
    kind: str

    def passed_type(self) -> Any:
        """Spark's type in which it comes from Python: vectors come as arrays, which Arrow knows."""
        from pyspark.sql import types

        names = {"tinyint": "Byte", "smallint": "Short", "int": "Integer", "bigint": "Long"}
        if self.kind == "vector":
            return types.ArrayType(types.DoubleType())
        return getattr(types, f"{names.get(self.kind, self.kind.capitalize())}Type")()

    def as_arrow(self, array: Array) -> Any:
        """The predictions [rows, …] as a column of that type, several values in row-major order. Whole
        numbers are rounded, and null where there is no number; a boolean is true from one half on.
        """
        import pyarrow

        rows = array.shape[0]
        if self.kind == "vector":
            width = int(np.prod(array.shape[1:]))
            flat = pyarrow.array(array.reshape(-1).astype(np.float64))
            ends = pyarrow.array(np.arange(rows + 1, dtype=np.int32) * width)
            return pyarrow.ListArray.from_arrays(ends, flat)
        values = array.reshape(rows).astype(np.float64)
        if self.kind == "boolean":
            return pyarrow.array(values >= 0.5)
        if self.kind not in _WHOLE:
            return pyarrow.array(values.astype(np.float32 if self.kind == "float" else np.float64))
        bits = _WHOLE[self.kind]
        # What is too large becomes the largest float64 that the type holds.
        most = np.nextafter(2.0 ** (bits - 1), 0) if bits == 64 else 2.0 ** (bits - 1) - 1
        whole = np.clip(np.rint(np.nan_to_num(values)), -(2.0 ** (bits - 1)), most)
        return pyarrow.array(whole.astype(f"int{bits}"), mask=np.isnan(values))


def outputs(
    names: Sequence[str], shapes: Sequence[tuple[int, ...]], labels: Sequence[Optional[str]]
) -> list[Output]:
    """The columns of these names. shapes: of one prediction; labels: Spark's names of the labels' types, None
    if one is not known.
    """
    found = []
    for name, shape, label in zip(names, shapes, [*labels, *[None] * len(names)]):
        is_vector = int(np.prod(shape)) != 1 or (label or "").startswith(("array", "vector"))
        found.append(Output(name, "vector" if is_vector else label if label in _SCALARS else "double"))
    return found
