"""Adds the predictions of a model to a DataFrame, batch by batch through Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

import numpy as np
from pyspark.ml import Model

from rueda.spark.common import params
from rueda.spark.common.checks import check_types, check_whole
from rueda.spark.common.data import as_array
from rueda.spark.common.predicted import Output, outputs
from rueda.spark.common.reading import check_columns, to_numpy
from rueda.spark.common.saving import Saved

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
    labels: Sequence[Optional[str]] = ()  # Spark's names of the labels' types, where they are known


def batches(addition: Addition, columns: Sequence[Output], arriving: Iterable[Any]) -> Iterator[Any]:
    """Record batches without the helper columns and with the predictions."""
    import pyarrow

    predict = None
    for whole in arriving:
        for begin in range(0, whole.num_rows, addition.batch_size):
            predict = predict or addition.load()
            batch = whole.slice(begin, addition.batch_size)
            own = batch.num_columns - len(addition.features)
            inputs = [to_numpy(name, batch.column(own + i)) for i, name in enumerate(addition.features)]
            found = [column.as_arrow(array) for column, array in zip(columns, predict(inputs))]
            kept = [batch.column(i) for i in range(own)]
            names = [*batch.schema.names[:own], *addition.names]
            yield pyarrow.RecordBatch.from_arrays([*kept, *found], names)


def add_predictions(frame: Any, addition: Addition) -> Any:
    """The DataFrame with the columns `addition.names`. A prediction of the first row tells their types."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql.functions import col
    from pyspark.sql.types import StructField, StructType

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
    columns = outputs(addition.names, _shapes(frame.select(*helpers), addition), addition.labels)
    fields = [StructField(column.name, column.passed_type()) for column in columns]
    schema = StructType([*frame.schema.fields, *fields])

    def run(arriving: Iterable[Any]) -> Iterator[Any]:
        return batches(addition, columns, arriving)

    added = frame.select("*", *helpers).mapInArrow(run, schema)
    for column in columns:
        if column.kind == "vector":
            added = added.withColumn(column.name, array_to_vector(col(f"`{column.name}`")))
    return added


def _shapes(helpers: Any, addition: Addition) -> list[tuple[int, ...]]:
    import pyarrow

    first = helpers.first()
    if first is None:
        return [(1,)] * len(addition.names)  # nothing will be predicted
    inputs = [to_numpy(name, pyarrow.array([value])) for name, value in zip(addition.features, first)]
    found = [tuple(output.shape[1:]) for output in addition.load()(inputs)]
    if len(found) != len(addition.names):
        raise ValueError(
            f"The model has {len(found)} outputs, but {len(addition.names)} columns are to hold them."
        )
    return found


class SharedModel(Saved, Model):  # type: ignore[misc]
    """The base of `TorchModel` and `KerasModel`."""

    param_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        params.start(self, values)

    def _loader(self) -> Callable[[], Predictor]:
        """Makes the predictor on an executor."""
        raise NotImplementedError

    def getOutputCols(self) -> list[str]:
        """The columns that transform adds: those that were set, else LABEL__output for each label."""
        names = self.getOrDefault("output_cols")
        return list(names or [f"{label}__output" for label in self.getOrDefault("label_columns") or []])

    def _transform(self, dataset: Any) -> Any:
        get = self.getOrDefault
        check_whole("batch_size", get("batch_size"), 1)
        kinds = {**dict(dataset.dtypes), **(get("label_types") or {})}
        labels = [kinds.get(label) for label in get("label_columns") or []]
        addition = Addition(
            self._loader(), get("feature_columns"), self.getOutputCols(), get("batch_size"), labels
        )
        return add_predictions(dataset, addition)
