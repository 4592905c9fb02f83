"""`KerasEstimator` and the model that it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from rueda.spark.common import checks, params
from rueda.spark.common.backend import Backend
from rueda.spark.common.estimator import Schedule, SharedEstimator
from rueda.spark.common.prediction import Predictor, SharedModel
from rueda.spark.keras.files import from_bytes, to_bytes

_KERAS: dict[str, tuple[Any, str]] = {
    "custom_objects": ({}, "classes and functions that the model and its optimizer name"),
    "checkpoint_callback": (None, "a BestModelCheckpoint; what it saves becomes the model that fit returns"),
    "backend_env": ({}, "variables for the ranks"),
    "tensorflow_dataset_prefetch_buffer_size": (None, "has no effect"),
}


def _serialized(serialize: Any, kind: type, value: Any) -> Any:
    """Objects of Keras in a form that every rank can revive; names and functions stay as they are."""
    if isinstance(value, (list, tuple)):
        return [_serialized(serialize, kind, one) for one in value]
    return serialize(value) if isinstance(value, kind) else value


def packed_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with the model as the content of a file."""
    return {**values, "model": to_bytes(values["model"])} if "model" in values else dict(values)


def unpacked_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that `packed_model` got."""
    if "model" not in values:
        return dict(values)
    return {**values, "model": from_bytes(values["model"], values.get("custom_objects") or {})}


@params.with_params({**params.SHARED, **_KERAS})
class KerasEstimator(SharedEstimator):
    """Trains a Keras 3 model on the rows of a DataFrame, with `rueda.keras` on `num_proc` ranks.

    model: need not be compiled. optimizer: a Keras optimizer, or its name; its hyperparameters count, and
    not its state. loss, metrics: as for `model.compile`. callbacks: Keras callbacks, for all ranks; those
    that only write files (TensorBoard, CSVLogger, ModelCheckpoint) for rank 0, and their files are copied
    into the run's folder of the store. The ranks use the Keras backend of the driver. A column is reshaped to
    the input that it is for.

    >>> estimator = KerasEstimator(num_proc=2, store=Store.create("/data"), model=model, optimizer="adam",
    ...                            loss="mse", feature_cols=["x"], label_cols=["y"], epochs=3)
    >>> estimator.fit(df).transform(df).select("y", "y__output").show()
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    def _check(self) -> None:
        super()._check()
        self._required("optimizer", "loss")
        checks.check_kind("model", self.getOrDefault("model"), keras.Model, "a keras.Model")
        if any(isinstance(one, keras.callbacks.BackupAndRestore) for one in self.getOrDefault("callbacks")):
            raise ValueError(
                "callbacks has BackupAndRestore, with which each rank would go on from an epoch of its own; "
                "leave it out: fit saves after each epoch, and goes on from there with the same run_id."
            )

    def _packed(self, values: dict[str, Any]) -> dict[str, Any]:
        packed = packed_model(values)
        if "optimizer" in values:
            packed["optimizer"] = keras.optimizers.serialize(keras.optimizers.get(values["optimizer"]))
        for name, module, kind in (
            ("loss", keras.losses, keras.losses.Loss),
            ("metrics", keras.metrics, keras.metrics.Metric),
        ):
            if name in values:
                packed[name] = _serialized(module.serialize, kind, values[name])
        return packed

    @classmethod
    def _unpacked(cls, values: dict[str, Any]) -> dict[str, Any]:
        return unpacked_model(values)

    def _train(self, backend: Backend, schedule: Schedule) -> Any:
        from rueda.spark.keras.training import Recipe, train

        get = self.getOrDefault
        recipe = Recipe(
            schedule=schedule,
            model=to_bytes(get("model")),
            optimizer=keras.optimizers.serialize(keras.optimizers.get(get("optimizer"))),
            loss=_serialized(keras.losses.serialize, keras.losses.Loss, get("loss")),
            loss_weights=get("loss_weights"),
            metrics=_serialized(keras.metrics.serialize, keras.metrics.Metric, get("metrics")),
            custom_objects=get("custom_objects"),
            label_shapes=get("label_shapes"),
            compression=get("gradient_compression"),
            callbacks=get("callbacks"),
            checkpoint_callback=get("checkpoint_callback"),
            verbose=get("verbose"),
        )
        variables = {"KERAS_BACKEND": keras.backend.backend(), **get("backend_env")}
        content, history = backend.run(train, args=(recipe,), env=variables)[0]
        return KerasModel(
            model=from_bytes(content, get("custom_objects")),
            history=history,
            run_id=schedule.run_id,
            feature_columns=get("feature_cols"),
            label_columns=get("label_cols"),
            label_types=schedule.label_types,
            custom_objects=get("custom_objects"),
        )


@params.with_params({**params.MODEL, "custom_objects": ({}, "classes and functions that the model names")})
class KerasModel(SharedModel):
    """A trained Keras model. `transform(df)` adds a column of predictions for each output: of the label's
    type, or vectors of Spark ML if the label is one or an output has several values for a row. `getModel()`
    returns the Keras model, `getHistory()` a list for each number, with an entry for each epoch.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    def _packed(self, values: dict[str, Any]) -> dict[str, Any]:
        return packed_model(values)

    @classmethod
    def _unpacked(cls, values: dict[str, Any]) -> dict[str, Any]:
        return unpacked_model(values)

    def _loader(self) -> Callable[[], Predictor]:
        content, objects = to_bytes(self.getOrDefault("model")), self.getOrDefault("custom_objects")
        backend = keras.backend.backend()
        return lambda: load_predictor(content, objects, backend)


def load_predictor(content: bytes, custom_objects: Any, backend: str) -> Predictor:
    """The predictions of a saved model."""
    os.environ.setdefault("KERAS_BACKEND", backend)
    from rueda.spark.keras.training import input_shapes, shaped

    model = from_bytes(content, custom_objects)
    shapes = input_shapes(model)

    def predict(features: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        inputs = (
            [shaped(array, shape) for array, shape in zip(features, shapes)] if shapes else list(features)
        )
        found = model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
        return [np.asarray(one) for one in (found if isinstance(found, (list, tuple)) else [found])]

    return predict
