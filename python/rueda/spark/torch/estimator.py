"""`TorchEstimator` and the model that it returns."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
import torch

from rueda.spark.common import checks, params
from rueda.spark.common.backend import Backend
from rueda.spark.common.estimator import Schedule, SharedEstimator
from rueda.spark.common.prediction import Predictor, SharedModel
from rueda.spark.torch.batches import as_list, functions
from rueda.spark.torch.training import Recipe, train

_TORCH: dict[str, tuple[Any, str]] = {
    "input_shapes": (None, "shapes of the inputs, with -1 for the rows"),
    "loss_constructors": (None, "functions that make the losses on each rank, instead of loss"),
    "train_minibatch_fn": (None, "what is done with a batch, instead of forward, loss, backward and step"),
    "backward_passes_per_step": (1, "batches whose gradients make one step"),
}


@params.with_params({**params.SHARED, **_TORCH})
class TorchEstimator(SharedEstimator):
    """Trains a PyTorch model on the rows of a DataFrame, with `rueda.torch` on `num_proc` ranks.

    model, optimizer: a module, and an optimizer of its parameters. loss: a function or module of (output,
    labels), or a list with one for each label column. metrics: functions of (output, labels), or a mapping
    from names to them. train_minibatch_fn(model, optimizer, transform_outputs, loss_fn, inputs, labels,
    sample_weights) returns (outputs, loss). callbacks: functions of (epoch, numbers), called on every rank.
    Columns of integers and booleans become int64 tensors, all others float32.

    >>> estimator = TorchEstimator(num_proc=2, store=Store.create("/data"), model=model, optimizer=optimizer,
    ...                            loss=torch.nn.MSELoss(), feature_cols=["x"], label_cols=["y"], epochs=3)
    >>> estimator.fit(df).transform(df).select("y", "y__output").show()
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    def _check(self) -> None:
        super()._check()
        self._required("optimizer")
        get = self.getOrDefault
        if get("loss") is None and get("loss_constructors") is None:
            raise ValueError("TorchEstimator needs loss or loss_constructors.")
        checks.check_kind("model", get("model"), torch.nn.Module, "a torch.nn.Module")
        checks.check_kind("optimizer", get("optimizer"), torch.optim.Optimizer, "a torch.optim.Optimizer")
        for name in ("loss", "loss_constructors"):
            if get(name) is not None:
                checks.check_callables(name, functions(get(name)))
        checks.check_callables("callbacks", get("callbacks"))
        metrics = get("metrics") or []
        checks.check_callables("metrics", list(metrics.values()) if isinstance(metrics, Mapping) else metrics)

    def _train(self, backend: Backend, schedule: Schedule) -> Any:
        get = self.getOrDefault
        recipe = Recipe(
            schedule=schedule,
            model_and_optimizer=cloudpickle.dumps((get("model"), get("optimizer"))),
            loss=functions(get("loss_constructors") or get("loss")),
            makes_loss=get("loss_constructors") is not None,
            loss_weights=get("loss_weights"),
            metrics=get("metrics"),
            shapes=(get("input_shapes"), get("label_shapes")),
            compression=get("gradient_compression"),
            passes=get("backward_passes_per_step"),
            minibatch=get("train_minibatch_fn"),
            callbacks=get("callbacks"),
            workers=(get("train_reader_num_workers"), get("val_reader_num_workers")),
            use_gpu=get("use_gpu"),
            verbose=get("verbose"),
        )
        state, history = backend.run(train, args=(recipe,))[0]
        model = copy.deepcopy(get("model"))
        model.load_state_dict(torch.load(io.BytesIO(state), weights_only=True))
        return TorchModel(
            model=model,
            history=history,
            run_id=schedule.run_id,
            feature_columns=get("feature_cols"),
            label_columns=get("label_cols"),
            input_shapes=get("input_shapes"),
        )


@params.with_params({**params.MODEL, "input_shapes": (None, "shapes of the inputs, with -1 for the rows")})
class TorchModel(SharedModel):
    """A trained PyTorch model. `transform(df)` adds a column of predictions for each output: numbers, or
    arrays of float32 if an output has several values for a row. `getModel()` returns the module.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    def _loader(self) -> Callable[[], Predictor]:
        body = cloudpickle.dumps(self.getOrDefault("model"))
        shapes = self.getOrDefault("input_shapes")
        return lambda: load_predictor(body, shapes)


def load_predictor(body: bytes, shapes: Any) -> Predictor:
    """The predictions of a pickled module."""
    import pickle

    model = pickle.loads(body).cpu().eval()

    def predict(features: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        inputs = [torch.from_numpy(array.copy()) for array in features]
        if shapes:
            inputs = [one.reshape(list(shape)) for one, shape in zip(inputs, shapes)]
        with torch.no_grad():
            return [output.float().numpy() for output in as_list(model(*inputs))]

    return predict
