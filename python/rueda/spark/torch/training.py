"""What one rank does for a `TorchEstimator`."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TypedDict

import torch

import rueda.torch as hvd
from rueda.basics import is_enabled
from rueda.spark.common.schedule import Schedule
from rueda.spark.devices import get_available_devices
from rueda.spark.torch.batches import Loss, Shapes, as_list, loader, match, metric_groups, take

Numbers = dict[str, float]


class Epoch(TypedDict, total=False):
    """The numbers of an epoch, as Horovod's models tell them."""

    epoch: int  # from 0
    train: dict[str, Any]  # loss and metrics by name; "all_metrics" has a mapping for each metric
    validation: dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What is trained, and how."""

    schedule: Schedule
    model_and_optimizer: bytes  # pickled together, so that the optimizer refers to the model's parameters
    loss: Sequence[Callable[..., Any]]  # one for each output
    makes_loss: bool  # whether they are called, without arguments, to make the losses of a rank
    loss_weights: Any
    metrics: Any
    shapes: tuple[Shapes, Shapes]  # of inputs and labels
    compression: Any
    passes: int  # backward passes per step
    minibatch: Optional[Callable[..., Any]]
    callbacks: Any
    workers: tuple[int, int]  # readers for training and validation
    use_gpu: bool
    verbose: int


def choose_device(use_gpu: bool) -> torch.device:
    """The GPU that Spark gave to the task, else the one with the local rank's number, else the CPU."""
    if not use_gpu or not torch.cuda.is_available():
        return torch.device("cpu")
    given = get_available_devices()
    by_rank = is_enabled("SPARK_USE_LOCAL_RANK_GPU_INDEX") or not given
    return torch.device("cuda", hvd.local_rank() if by_rank else int(given[0]))


class Trainer:
    """Model, optimizer and history of one rank."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.device = choose_device(recipe.use_gpu)
        self.model, optimizer = pickle.loads(recipe.model_and_optimizer)
        losses = [make() for make in recipe.loss] if recipe.makes_loss else recipe.loss
        self.loss = Loss(losses, recipe.loss_weights)
        self.groups = metric_groups(recipe.metrics, recipe.schedule.columns.labels)
        self.history: list[Epoch] = []
        state = self._last_checkpoint()
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.history = state["history"]
        self.model.to(self.device)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            optimizer,
            self.model.named_parameters(),
            compression=recipe.compression or hvd.Compression.none,
            backward_passes_per_step=recipe.passes,
        )
        if state is not None:  # a wrapped optimizer begins without state
            self.optimizer.load_state_dict(state["optimizer"])
        self._passes = 0

    def _last_checkpoint(self) -> Any:
        """Of this run; None if there is none. Rank 0 reads it for all."""
        schedule = self.recipe.schedule
        own = schedule.store.last_checkpoint(schedule.run_id) if hvd.rank() == 0 else None
        checkpoint = hvd.broadcast_object(own, root_rank=0, name="checkpoint")
        if checkpoint is None:
            return None
        return torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)

    def save(self) -> None:
        """Keeps all that is needed to continue."""
        schedule, file = self.recipe.schedule, io.BytesIO()
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
        }
        torch.save(state, file)
        schedule.store.save_checkpoint(schedule.run_id, file.getvalue())
        columns: dict[str, list[float]] = {}
        for one in self.history:
            for name, value in flat(one).items():
                columns.setdefault(name, []).append(value)
        schedule.store.save_logs(schedule.run_id, columns)

    def pass_over(self, batches: Iterable[Any], is_training: bool) -> dict[str, Any]:
        """One epoch. Returns loss and metrics, each the mean over all rows of all ranks."""
        metrics = {name: metric for group in self.groups for name, metric in group.items()}
        names = ["loss", *metrics]
        sums = torch.zeros(1 + len(names), dtype=torch.float64)
        self.model.train(is_training)
        step = self._train_step if is_training else self._evaluate
        for batch in batches:
            inputs, labels, weights = take(
                batch, self.recipe.schedule.columns, self.recipe.shapes, self.device
            )
            outputs, loss = step(inputs, labels, weights)
            rows = len(inputs[0])
            values = [float(loss.detach())]
            with torch.no_grad():
                plain, labels = [one.detach() for one in outputs], match(outputs, labels)
                values += [float(metric(plain, labels)) for metric in metrics.values()]
            sums += torch.tensor([rows, *(rows * value for value in values)], dtype=torch.float64)
        totals: list[float] = hvd.allreduce(sums, op=hvd.Sum, name="train" if is_training else "val").tolist()
        means = {name: total / totals[0] for name, total in zip(names, totals[1:])}
        return {**means, "all_metrics": [{name: means[name] for name in group} for group in self.groups]}

    def _train_step(self, inputs: Any, labels: Any, weights: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
        if self.recipe.minibatch is not None:
            outputs, loss = self.recipe.minibatch(
                self.model, self.optimizer, _transform, self.loss, inputs, labels, weights
            )
            return as_list(outputs), loss
        if self._passes % self.recipe.passes == 0:
            self.optimizer.zero_grad()
        outputs = as_list(self.model(*inputs))
        loss = self.loss(outputs, match(outputs, labels), weights)
        loss.backward()
        self._passes += 1
        if self._passes % self.recipe.passes == 0:
            self.optimizer.step()
        return outputs, loss

    def _evaluate(self, inputs: Any, labels: Any, weights: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
        with torch.no_grad():
            outputs = as_list(self.model(*inputs))
            return outputs, self.loss(outputs, match(outputs, labels), weights)


def _transform(outputs: Any, labels: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """For a train_minibatch_fn: outputs and labels as the loss takes them."""
    found = as_list(outputs)
    return found, match(found, labels)


def flat(one: Epoch) -> Numbers:
    """Loss and metrics by name; those of validation begin with val_."""
    numbers = {name: value for name, value in one["train"].items() if name != "all_metrics"}
    validation = {f"val_{name}": v for name, v in one.get("validation", {}).items() if name != "all_metrics"}
    return {**numbers, **validation}


def train(recipe: Recipe) -> Optional[tuple[bytes, list[Epoch]]]:
    """Runs on every rank. Rank 0 returns the state of model and optimizer, and the history."""
    hvd.init()
    torch.manual_seed(recipe.schedule.seed + hvd.rank())
    schedule = recipe.schedule
    trainer = Trainer(recipe)
    batches = loader(schedule.train_plan(hvd.rank(), hvd.size()), recipe.workers[0])
    val_plan = schedule.val_plan(hvd.rank(), hvd.size())
    val_batches = loader(val_plan, recipe.workers[1]) if val_plan else None
    while (done := len(trainer.history)) < schedule.epochs:
        numbers: Epoch = {"epoch": done, "train": trainer.pass_over(batches(done), True)}
        if val_batches is not None:
            numbers["validation"] = trainer.pass_over(val_batches(0), False)
        trainer.history.append(numbers)
        for callback in recipe.callbacks:
            callback(done + 1, flat(numbers))
        if hvd.rank() == 0:
            trainer.save()
            if recipe.verbose:
                words = "  ".join(f"{name} {value:.4f}" for name, value in flat(numbers).items())
                print(f"epoch {done + 1}/{schedule.epochs}  {words}", flush=True)
    file = io.BytesIO()
    if hvd.rank() == 0:
        torch.save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, file)
    history = trainer.history
    hvd.shutdown()
    return (file.getvalue(), history) if file.tell() else None
