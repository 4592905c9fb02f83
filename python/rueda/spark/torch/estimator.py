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
from rueda.spark.common.estimator import SharedEstimator
from rueda.spark.common.prediction import Predictor, SharedModel
from rueda.spark.common.schedule import Schedule
from rueda.spark.torch.batches import as_list, functions, shaped
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
        if isinstance(metrics, (list, tuple)):  # of groups, as Horovod has them
            metrics = [one for group in metrics for one in (group if isinstance(group, list) else [group])]
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
        # Copied together, so that the optimizer has the parameters of the copy.
        model, optimizer = copy.deepcopy((get("model"), get("optimizer")))
        trained = torch.load(io.BytesIO(state), map_location="cpu", weights_only=True)
        model.load_state_dict(trained["model"])
        optimizer.load_state_dict(trained["optimizer"])
        return TorchModel(
            model=model,
            optimizer=optimizer,
            loss=get("loss"),
            loss_constructors=get("loss_constructors"),
            history=history,
            run_id=schedule.run_id,
            feature_columns=get("feature_cols"),
            label_columns=get("label_cols"),
            label_types=schedule.label_types,
            input_shapes=get("input_shapes"),
        )


_TORCH_MODEL: dict[str, tuple[Any, str]] = {
    "input_shapes": _TORCH["input_shapes"],
    "optimizer": (None, "the optimizer, as training has left it"),
    "loss": (None, "the loss, or one for each label column"),
    "loss_constructors": _TORCH["loss_constructors"],
}


@params.with_params({**params.MODEL, **_TORCH_MODEL})
class TorchModel(SharedModel):
    """A trained PyTorch model. `transform(df)` adds a column of predictions for each output: of the label's
    type, or vectors of Spark ML if the label is one or an output has several values for a row. Where an
    input shape has no -1, rows are predicted one by one. `getModel()` returns the module, `getHistory()` a
    list of epochs: `{"epoch": 0, "train": {"loss": …, "all_metrics": […]}, "validation": {…}}`.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    def _loader(self) -> Callable[[], Predictor]:
        body = cloudpickle.dumps(self.getOrDefault("model"))
        names, shapes = self.getOrDefault("feature_columns"), self.getOrDefault("input_shapes")
        return lambda: load_predictor(body, names, shapes)


def load_predictor(body: bytes, names: Sequence[str], shapes: Any) -> Predictor:
    """The predictions of a pickled module for features of these names."""
    import pickle

    model = pickle.loads(body).cpu().eval()
    is_by_row = any(-1 not in shape for shape in shapes or [])

    def call(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if shapes:
            inputs = [shaped(*one) for one in zip(names, inputs, shapes)]
        with torch.no_grad():
            return [output.float() for output in as_list(model(*inputs))]

    def predict(features: Sequence[np.ndarray[Any, Any]]) -> Sequence[np.ndarray[Any, Any]]:
        inputs = [torch.from_numpy(array.copy()) for array in features]
        if not is_by_row:
            return [output.numpy() for output in call(inputs)]
        rows = [call([one[row : row + 1] for one in inputs]) for row in range(len(inputs[0]))]
        return [torch.stack([one.reshape(-1) for one in column]).numpy() for column in zip(*rows)]

    return predict
