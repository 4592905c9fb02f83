"""`KerasEstimator` and the model that it returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rueda.spark.common import checks, params
from rueda.spark.common.backend import Backend
from rueda.spark.common.estimator import SharedEstimator
from rueda.spark.common.prediction import Predictor, SharedModel
from rueda.spark.common.schedule import Schedule
from rueda.spark.keras.files import from_bytes, input_shapes, revive, shaped, to_bytes
from rueda.spark.keras.package import KERAS_3, keras_of, package_of, variables_of

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


def _training(keras: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Optimizer, loss and metrics, those that are given, in a form that every rank can revive."""
    found = {}
    if values.get("optimizer") is not None:
        found["optimizer"] = keras.optimizers.serialize(keras.optimizers.get(values["optimizer"]))
    if "loss" in values:
        found["loss"] = _serialized(keras.losses.serialize, keras.losses.Loss, values["loss"])
    if "metrics" in values:
        found["metrics"] = _serialized(keras.metrics.serialize, keras.metrics.Metric, values["metrics"])
    return found


def packed_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with the model as its package and the content of a file."""
    model = values.get("model")
    return dict(values) if model is None else {**values, "model": (package_of(model), to_bytes(model))}


def unpacked_model(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that `packed_model` got."""
    if values.get("model") is None:
        return dict(values)
    package, content = values["model"]
    return {**values, "model": from_bytes(content, values.get("custom_objects") or {}, package)}


@params.with_params({**params.SHARED, **_KERAS})
class KerasEstimator(SharedEstimator):
    """Trains a model of Keras 3, or of tf_keras, on the rows of a DataFrame, with `rueda.keras` on `num_proc`
    ranks.

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

    def _keras(self) -> Any:
        """The Keras of the model."""
        return keras_of(package_of(self.getOrDefault("model")))

    def _check(self) -> None:
        super()._check()
        self._required("optimizer", "loss")
        keras = self._keras()
        checks.check_kind("model", self.getOrDefault("model"), keras.Model, "a keras.Model")
        if any(isinstance(one, keras.callbacks.BackupAndRestore) for one in self.getOrDefault("callbacks")):
            raise ValueError(
                "callbacks has BackupAndRestore, with which each rank would go on from an epoch of its own; "
                "leave it out: fit saves after each epoch, and goes on from there with the same run_id."
            )

    def _packed(self, values: dict[str, Any]) -> dict[str, Any]:
        return {**packed_model(values), **_training(self._keras(), values)}

    @classmethod
    def _unpacked(cls, values: dict[str, Any]) -> dict[str, Any]:
        found = unpacked_model(values)
        keras = keras_of(package_of(found.get("model")))
        with keras.saving.custom_object_scope(dict(values.get("custom_objects") or {})):
            for name, module in (
                ("optimizer", keras.optimizers),
                ("loss", keras.losses),
                ("metrics", keras.metrics),
            ):
                if name in found:
                    found[name] = revive(module.deserialize, found[name])
        return found

    def _train(self, backend: Backend, schedule: Schedule) -> Any:
        from rueda.spark.keras.training import Recipe, train

        get = self.getOrDefault
        recipe = Recipe(
            schedule=schedule,
            model=to_bytes(get("model")),
            loss_weights=get("loss_weights"),
            **_training(self._keras(), {name: get(name) for name in ("optimizer", "loss", "metrics")}),
            custom_objects=get("custom_objects"),
            label_shapes=get("label_shapes"),
            compression=get("gradient_compression"),
            callbacks=get("callbacks"),
            checkpoint_callback=get("checkpoint_callback"),
            verbose=get("verbose"),
        )
        package = package_of(get("model"))
        variables = {**variables_of(package), **get("backend_env")}
        content, history = backend.run(train, args=(recipe,), env=variables)[0]
        return KerasModel(
            model=from_bytes(content, get("custom_objects"), package),
            history=history,
            run_id=schedule.run_id,
            feature_columns=get("feature_cols"),
            label_columns=get("label_cols"),
            label_types=schedule.label_types,
            custom_objects=get("custom_objects"),
        )


_KERAS_MODEL: dict[str, tuple[Any, str]] = {
    "custom_objects": ({}, "classes and functions that the model names"),
    "_floatx": (None, "has no effect"),
}


@params.with_params({**params.MODEL, **_KERAS_MODEL})
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
        package = package_of(self.getOrDefault("model"))
        backend = variables_of(package)["KERAS_BACKEND"]
        return lambda: load_predictor((package, content), objects, backend)


def load_predictor(saved: tuple[str, bytes], custom_objects: Any, backend: str) -> Predictor:
    """The predictions of a saved model. saved: its Keras, and the content of its file."""
    package, content = saved
    if package == KERAS_3:
        os.environ.setdefault("KERAS_BACKEND", backend)
    model = from_bytes(content, custom_objects, package)
    shapes = input_shapes(model)

    def predict(features: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        inputs = (
            [shaped(array, shape) for array, shape in zip(features, shapes)] if shapes else list(features)
        )
        found = model.predict_on_batch(inputs[0] if len(inputs) == 1 else inputs)
        return [np.asarray(one) for one in (found if isinstance(found, (list, tuple)) else [found])]

    return predict
