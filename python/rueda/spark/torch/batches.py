"""What a model of PyTorch gets of a batch, and how losses and metrics are computed from what it returns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from rueda.spark.common.data import Columns
from rueda.spark.common.reading import Plan, ShardReader

Shapes = Optional[Sequence[Sequence[int]]]
Function = Callable[..., torch.Tensor]
Metric = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], torch.Tensor]


class Batches(IterableDataset):
    """The batches of one epoch; with several workers each cuts out every n-th."""

    def __init__(self, reader: ShardReader, epoch: int) -> None:
        self._reader = reader
        self._epoch = epoch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        info = get_worker_info()
        count, own = (info.num_workers, info.id) if info else (1, 0)
        for number, batch in enumerate(self._reader.epoch(self._epoch)):
            if number % count == own:
                yield {name: torch.from_numpy(array.copy()) for name, array in batch.items()}


def loader(plan: Plan, workers: int) -> Callable[[int], DataLoader[dict[str, torch.Tensor]]]:
    """A function from the number of an epoch to its batches."""
    reader = ShardReader(plan)
    return lambda epoch: DataLoader(Batches(reader, epoch), batch_size=None, num_workers=workers)


def take(
    batch: Mapping[str, torch.Tensor], columns: Columns, shapes: tuple[Shapes, Shapes], device: torch.device
) -> tuple[list[torch.Tensor], list[torch.Tensor], Optional[torch.Tensor]]:
    """Inputs, labels and weights of a batch; shapes: of the inputs and of the labels."""

    def pick(names: Sequence[str], wanted: Shapes) -> list[torch.Tensor]:
        found = [batch[name].to(device) for name in names]
        return [shaped(*one) for one in zip(names, found, wanted)] if wanted else found

    weight = batch[columns.weight].to(device) if columns.weight else None
    return pick(columns.features, shapes[0]), pick(columns.labels, shapes[1]), weight


def shaped(name: str, rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The rows of a column in the shape that input_shapes or label_shapes has for it. ValueError if they do
    not fit.
    """
    try:
        return rows.reshape(list(shape))
    except RuntimeError:
        each = list(rows.shape[1:])
        raise ValueError(
            f"A batch of {len(rows)} rows of the column {name}, each of the shape {each}, has no shape "
            f"{list(shape)}: begin the shape with -1 for the rows, or use batch_size=1."
        ) from None


def as_list(outputs: Any) -> list[torch.Tensor]:
    """The outputs of a model, one for each label column."""
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def match(outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The labels, in the shape of the outputs where they have as many values: [n] would broadcast."""
    if len(outputs) != len(labels):
        raise ValueError(f"The model has {len(outputs)} outputs, but there are {len(labels)} label columns.")
    return [b.reshape(a.shape) if a.numel() == b.numel() else b for a, b in zip(outputs, labels)]


def functions(given: Any) -> list[Any]:
    """One function, or a list of them, as a list. torch.nn.ModuleList is a list too."""
    return list(given) if isinstance(given, (list, tuple, torch.nn.ModuleList)) else [given]


class Loss:
    """The weighted sum of the losses of all outputs."""

    def __init__(self, losses: Sequence[Function], weights: Optional[Sequence[float]]) -> None:
        self._losses = list(losses)
        self._weights = list(weights) if weights else [1.0] * len(self._losses)
        if len(self._weights) != len(self._losses):
            raise ValueError(f"There are {len(self._losses)} losses and {len(self._weights)} loss_weights.")

    def __call__(
        self, outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor], sample_weights: Any = None
    ) -> torch.Tensor:
        if len(outputs) != len(self._losses):
            raise ValueError(
                f"The model has {len(outputs)} outputs, but there are {len(self._losses)} losses."
            )
        triples = zip(self._losses, outputs, labels)
        values = [_mean(loss, output, label, sample_weights) for loss, output, label in triples]
        return torch.stack([value * weight for value, weight in zip(values, self._weights)]).sum()


def _mean(loss: Function, output: torch.Tensor, label: torch.Tensor, weights: Any) -> torch.Tensor:
    if weights is None:
        return loss(output, label)
    each: torch.Tensor
    if isinstance(loss, torch.nn.Module):
        unreduced: Any = copy.copy(loss)
        unreduced.reduction = "none"
        each = unreduced(output, label)
    else:
        each = loss(output, label, reduction="none")
    each = each.reshape(len(weights), -1).mean(1)
    mean: torch.Tensor = (each * weights).sum() / weights.sum()
    return mean


def metric_groups(metrics: Any, labels: Sequence[str]) -> list[dict[str, Metric]]:
    """What is computed beside the loss, by name, in groups; called with the lists of outputs and labels.

    metrics: a mapping, or functions under their own names, which get the output and its labels, or the lists
    if there are several; or, as Horovod has it, lists of functions: one for every output, or one for each.
    """
    named = list(metrics.items()) if isinstance(metrics, Mapping) else [(None, one) for one in metrics or []]
    groups = []
    for number, (name, one) in enumerate(named):
        if isinstance(one, (list, tuple)):
            each = list(one) * (len(labels) if len(one) == 1 else 1)
            parts = enumerate(zip(labels, each))
            groups.append({f"group_{number}_{label}": _of_output(f, i) for i, (label, f) in parts})
        else:
            groups.append({name or getattr(one, "__name__", type(one).__name__): _of_all(one)})
    return groups


def _of_output(function: Function, index: int) -> Metric:
    return lambda outputs, labels: function(outputs[index], labels[index])


def _of_all(function: Function) -> Metric:
    def compute(outputs: Sequence[torch.Tensor], labels: Sequence[torch.Tensor]) -> torch.Tensor:
        return function(outputs[0], labels[0]) if len(outputs) == 1 else function(outputs, labels)

    return compute
