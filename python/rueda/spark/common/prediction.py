"""Adds the predictions of a model to a DataFrame, batch by batch through Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pyspark.ml import Model

from rueda.spark.common import params
from rueda.spark.common.checks import check_types, check_whole
from rueda.spark.common.data import as_array
from rueda.spark.common.reading import check_columns, to_numpy

Array = np.ndarray[Any, Any]
# Features in, one array [rows, …] per output column out.
Predictor = Callable[[Sequence[Array]], Sequence[Array]]
_FEATURE = "__rueda_feature_"


@dataclass(frozen=True)
class Addition:
    """What is added to the rows. load: makes the predictor, once in each Python worker's task."""

    load: Callable[[], Predictor]
    features: Sequence[str]  # their columns, of which helpers follow those of the rows
    names: Sequence[str]
    batch_size: int


def output_column(array: Array) -> Any:
    """One prediction per row: a number if it is one, else a list of float32 in row-major order."""
    import pyarrow

    rows = array.shape[0]
    width = int(np.prod(array.shape[1:]))
    if width == 1:
        return pyarrow.array(array.reshape(rows).astype(np.float64))
    flat = pyarrow.array(array.reshape(-1).astype(np.float32))
    return pyarrow.ListArray.from_arrays(pyarrow.array(np.arange(rows + 1, dtype=np.int32) * width), flat)


def batches(addition: Addition, arriving: Iterable[Any]) -> Iterator[Any]:
    """Record batches without the helper columns and with the predictions."""
    import pyarrow

    predict = None
    for whole in arriving:
        for begin in range(0, whole.num_rows, addition.batch_size):
            predict = predict or addition.load()
            batch = whole.slice(begin, addition.batch_size)
            own = batch.num_columns - len(addition.features)
            inputs = [to_numpy(name, batch.column(own + i)) for i, name in enumerate(addition.features)]
            columns = [batch.column(i) for i in range(own)] + [output_column(one) for one in predict(inputs)]
            yield pyarrow.RecordBatch.from_arrays(columns, [*batch.schema.names[:own], *addition.names])


def add_predictions(frame: Any, addition: Addition) -> Any:
    """The DataFrame with the columns `addition.names`. A prediction of the first row tells their types."""
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructField, StructType

    features = addition.features
    check_columns(frame.columns, features)
    check_types(dict(frame.dtypes), features)
    taken = [name for name in addition.names if name in frame.columns]
    if taken:
        raise ValueError(
            f"The data have a column {', '.join(taken)} already; choose others with setOutputCols."
        )
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    helpers = [as_array(name, kinds[name]).alias(f"{_FEATURE}{i}") for i, name in enumerate(features)]
    schema = StructType(list(frame.schema.fields))
    for shape in _shapes(frame.select(*helpers), addition):
        kind = DoubleType() if int(np.prod(shape)) == 1 else ArrayType(FloatType())
        schema = StructType([*schema.fields, StructField(addition.names[len(schema) - len(kinds)], kind)])

    def run(arriving: Iterable[Any]) -> Iterator[Any]:
        return batches(addition, arriving)

    return frame.select("*", *helpers).mapInArrow(run, schema)


def _shapes(helpers: Any, addition: Addition) -> list[tuple[int, ...]]:
    first = helpers.first()
    if first is None:
        return [(1,)] * len(addition.names)  # nothing will be predicted
    inputs = []
    for name, value in zip(addition.features, first):
        if value is None or (isinstance(value, list) and None in value):
            raise ValueError(f"The column {name} has nulls; fill or drop them first.")
        array = np.asarray([value])
        inputs.append(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))
    found = [tuple(output.shape[1:]) for output in addition.load()(inputs)]
    if len(found) != len(addition.names):
        raise ValueError(
            f"The model has {len(found)} outputs, but {len(addition.names)} columns are to hold them."
        )
    return found


class SharedModel(Model):  # type: ignore[misc]
    """The base of `TorchModel` and `KerasModel`."""

    param_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        params.start(self, values)

    def _loader(self) -> Callable[[], Predictor]:
        """Makes the predictor on an executor."""
        raise NotImplementedError

    def _transform(self, dataset: Any) -> Any:
        get = self.getOrDefault
        names = get("output_cols") or [f"{label}__output" for label in get("label_columns")]
        check_whole("batch_size", get("batch_size"), 1)
        addition = Addition(self._loader(), get("feature_columns"), list(names), get("batch_size"))
        return add_predictions(dataset, addition)
