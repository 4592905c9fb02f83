"""The parameters of estimators and of the models that they return, as Spark ML has them: each has a getter
and a setter in camel case, such as `setBatchSize`, and a keyword of the constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

try:
    from pyspark.ml.param import Param, Params
except ImportError:
    raise ImportError(
        "The estimators of rueda.spark need pyspark: pip install 'rueda-train[spark]'."
    ) from None

# name: (default, meaning). Estimators of all frameworks have these.
SHARED: dict[str, tuple[Any, str]] = {
    "num_proc": (None, "number of ranks, if there is no backend; default spark.default.parallelism"),
    "backend": (None, "where the ranks run: a SparkBackend or a LocalBackend"),
    "store": (None, "where data, checkpoints and logs are kept"),
    "model": (None, "the model to train"),
    "optimizer": (None, "its optimizer"),
    "loss": (None, "the loss, or one for each label column"),
    "loss_weights": (None, "the weight of each loss"),
    "metrics": (None, "what is computed beside the loss"),
    "sample_weight_col": (None, "the column with the weight of each row"),
    "feature_cols": (None, "the columns that are the inputs of the model, in its order"),
    "label_cols": (None, "the columns that its outputs are compared with, in its order"),
    "validation": (None, "share of rows (0 to 1, drawn at random) or name of a column that is true for them"),
    "callbacks": ([], "what is called after each epoch"),
    "batch_size": (32, "rows per rank and step"),
    "val_batch_size": (None, "the same for validation; default batch_size"),
    "epochs": (1, "passes over the data, those before a resumed checkpoint included"),
    "verbose": (1, "0: no lines; 1: one line per epoch, from rank 0"),
    "random_seed": (0, "of the order of rows, of the split, and of each rank's random numbers"),
    "shuffle": (True, "whether the order of rows changes in each epoch"),
    "partitions_per_process": (None, "Parquet files per rank; default: the partitions of the DataFrame"),
    "run_id": (None, "names checkpoints and logs; training continues from the last checkpoint of this id"),
    "train_steps_per_epoch": (None, "steps of an epoch; default: as many as every row once takes"),
    "validation_steps_per_epoch": (None, "the same for validation"),
    "transformation_fn": (
        None,
        "called with a pandas DataFrame of rows that were read; returns one of equal length",
    ),
    "train_reader_num_workers": (0, "processes of each rank that read (PyTorch only); 0: the rank itself"),
    "val_reader_num_workers": (0, "the same for validation"),
    "label_shapes": (None, "shapes of the labels, with -1 for the rows"),
    "inmemory_cache_all": (False, "keep the shard in memory, and shuffle it as a whole"),
    "gradient_compression": (None, "compression of gradients, such as hvd.Compression.fp16"),
    "use_gpu": (True, "whether ranks use a GPU, if there is one"),
    # Taken for scripts written for Horovod; there is nothing to choose.
    "data_module": (None, "has no effect"),
    "continuous_cols": (None, "has no effect"),
    "categorical_cols": (None, "has no effect"),
    "reader_pool_type": (None, "has no effect"),
    "mp_start_method": (None, "has no effect"),
    "shuffle_buffer_size": (None, "has no effect"),
    "compress_sparse_cols": (False, "has no effect"),
    "transformation_edit_fields": (None, "has no effect"),
    "transformation_removed_fields": (None, "has no effect"),
}

MODEL: dict[str, tuple[Any, str]] = {
    "model": (None, "the trained model"),
    "feature_columns": (None, "the columns that are its inputs"),
    "label_columns": (None, "the columns that it was trained to predict"),
    "label_types": (None, "their types in Spark, by name; default: those of the data that are transformed"),
    "output_cols": (None, "the columns that transform adds; default LABEL__output"),
    "history": (None, "the numbers of all epochs"),
    "run_id": (None, "of its run"),
    "batch_size": (1024, "rows that are predicted at once"),
    "_metadata": (None, "has no effect"),
}

# What getters and setters of Horovod are called where the words of the parameter are others.
_ALSO = {
    "inmemory_cache_all": "InMemoryCacheAll",
    "train_reader_num_workers": "TrainReaderNumWorker",
    "val_reader_num_workers": "ValReaderNumWorker",
    "shuffle_buffer_size": "ShufflingBufferSize",
    "label_columns": "LabelColoumns",
}


def camel(name: str) -> str:
    """batch_size → BatchSize."""
    return "".join(word.capitalize() for word in name.split("_"))


def with_params(table: Mapping[str, tuple[Any, str]]) -> Callable[[type], type]:
    """A class decorator: the parameters of the table, their getters and their setters."""

    def add(cls: type) -> type:
        for name, (_, meaning) in table.items():
            setattr(cls, name, Param(Params._dummy(), name, meaning))
            for word in {camel(name), _ALSO.get(name, camel(name))}:
                if not hasattr(cls, f"get{word}"):
                    setattr(cls, f"get{word}", _getter(name))
                setattr(cls, f"set{word}", _setter(name))
        made: Any = cls
        made.setParams = _set_params
        made.param_defaults = {name: default for name, (default, _) in table.items()}
        return cls

    return add


def _getter(name: str) -> Callable[[Any], Any]:
    def get(self: Any) -> Any:
        return self.getOrDefault(name)

    get.__doc__ = f"The value of {name}."
    return get


def _setter(name: str) -> Callable[[Any, Any], Any]:
    def set_value(self: Any, value: Any) -> Any:
        return self._set(**{name: value})

    set_value.__doc__ = f"Sets {name}; returns this object."
    return set_value


def _set_params(self: Any, **values: Any) -> Any:
    """Sets parameters by keywords; returns this object. TypeError for unknown names."""
    return self._set(**_known(self, values))


def _known(self: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - set(self.param_defaults))
    if unknown:
        raise TypeError(f"{type(self).__name__} has no parameter {', '.join(unknown)}.")
    return dict(values)


def start(self: Any, values: Mapping[str, Any]) -> None:
    """What a constructor does with its keywords: None means the default. TypeError for unknown names."""
    given = _known(self, values)
    self._setDefault(**self.param_defaults)
    self._set(**{name: value for name, value in given.items() if value is not None})
