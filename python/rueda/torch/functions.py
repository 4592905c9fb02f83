"""Making ranks agree on models, optimizers and Python objects."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from rueda import epochs, pickles
from rueda.basics import basics
from rueda.in_flight import let_end, synchronize_all
from rueda.process_sets import ProcessSet, global_process_set
from rueda.torch.cross_step import finish_before_change
from rueda.torch.gathers import allgather, broadcast_async_
from rueda.torch.handles import synchronize

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

SHARDED = (
    "broadcast_optimizer_state: each rank has another part of a ShardedOptimizer's state; give all the whole "
    "state instead: optimizer.load_state_dict(hvd.broadcast_object(state, root_rank=0))."
)


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Overwrites tensors with root's, for instance a model's before training.

    params: a state_dict or any mapping (sent under its keys), or any iterable of tensors or of (name, tensor)
    pairs, generators such as model.named_parameters() included. root_rank: a world rank. process_set: the
    ranks that take part. All broadcasts are started before any is awaited.
    """
    finish_before_change()
    if isinstance(params, dict):
        pairs: list[tuple[str | None, torch.Tensor]] = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (str, bytes, torch.Tensor)):
        pairs = [param if isinstance(param, tuple) else (None, param) for param in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[1], torch.Tensor):
            # As before, of the class that Python itself raises for what is no tensor.
            raise AttributeError(f"broadcast_parameters takes tensors, but params holds {pair!r}.")
    pending = []
    try:
        for name, tensor in pairs:
            flat = tensor.detach() if tensor.is_contiguous() else tensor.detach().contiguous()
            key = str(name) if isinstance(name, int) else name
            pending.append((tensor, flat, broadcast_async_(flat, root_rank, key, process_set)))
    except Exception:
        let_end(handle for _, _, handle in pending)
        raise
    synchronize_all([handle for _, _, handle in pending])
    for tensor, flat, _ in pending:
        if flat.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(flat)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns root's object on every rank; root gets its own back.

    The object travels as a cloudpickle. root_rank: a world rank. Raises what pickling raises, and
    HorovodInternalError on the other ranks then.
    """
    epochs.require()
    key = pickles.key_of(name)

    def send(tensor: torch.Tensor, part: str) -> torch.Tensor:
        synchronize(broadcast_async_(tensor, root_rank, f"{key}.{part}", process_set))
        return tensor

    def content(payload: bytes | None, size: int) -> bytes:
        return _bytes_of(
            send(torch.empty(size, dtype=torch.uint8) if payload is None else _tensor(payload), "t")
        )

    is_root = basics.rank() == root_rank
    return pickles.broadcast(obj, is_root, lambda size: int(send(torch.tensor([size]), "sz").item()), content)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns every rank's object, in rank order of the process set. The objects travel as cloudpickles."""
    key = pickles.key_of(name)
    return pickles.allgather(
        obj,
        lambda size: allgather(torch.tensor([size]), f"{key}.sz", process_set).tolist(),
        lambda payload: _bytes_of(allgather(_tensor(payload), f"{key}.t", process_set)),
    )


def _tensor(payload: bytes) -> torch.Tensor:
    # A bytearray, because torch warns about memory that it may not write to.
    return torch.frombuffer(bytearray(payload), dtype=torch.uint8)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel())


# ---- optimizers ----


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Makes every rank's optimizer, wrapped or not, equal to root's: options (lr, …) and state.

    If root's optimizer has no state yet, state is made by one step with zero gradients whose effect on the
    parameters is undone; the gradients are left as zeros. Parameters are sent with a
    DelayedOptimizer alone: see broadcast_parameters. model: where to look for sparse embeddings, whose zero
    gradients must be sparse. root_rank: a world rank. process_set: the ranks that take part. LBFGS is
    refused.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if hasattr(optimizer, "_sharding"):
        raise ValueError(SHARDED)
    if not hasattr(optimizer, "param_groups"):
        text = f"optimizer must be a torch.optim.Optimizer, not {type(optimizer).__name__}."
        raise TypeError(f"broadcast_optimizer_state: {text}")
    if not isinstance(model, (torch.nn.Module, type(None))):
        text = f"model must be a torch.nn.Module or None, not {type(model).__name__}."
        raise TypeError(f"broadcast_optimizer_state: {text}")
    finish_before_change()
    if not any(optimizer.state.values()):
        _zero_gradients(optimizer, model)
        if basics.rank() == root_rank:
            _make_state(optimizer)
    mine = _describe(optimizer) if basics.rank() == root_rank else None
    layout = broadcast_object(mine, root_rank, "optimizer_state.layout", process_set)
    _apply_options(optimizer, layout["options"])
    compressor = getattr(optimizer, "_compressor", None)
    if compressor is not None and layout["compression"] is not None and basics.rank() != root_rank:
        compressor.load_shared_state(layout["compression"])
    _send_state(optimizer, layout["state"], root_rank, process_set)
    if layout["is_delayed"]:  # it may have made a step just now, which root's parameters alone have seen
        named = [(f"optimizer_state.parameter.{i}", one) for i, one in enumerate(_parameters(optimizer))]
        broadcast_parameters(named, root_rank, process_set)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _zero_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    """Gives every parameter that requires one a zero gradient, sparse where the optimizer expects that."""
    sparse: set[int] = set()
    if isinstance(optimizer, torch.optim.SGD) and model is not None:
        for module in model.modules():
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse:
                sparse.add(id(module.weight))
    for parameter in _parameters(optimizer):
        if not parameter.requires_grad:
            continue
        zeros = torch.zeros_like(parameter, requires_grad=False)
        is_sparse = isinstance(optimizer, torch.optim.SparseAdam) or id(parameter) in sparse
        parameter.grad = zeros.to_sparse() if is_sparse else zeros


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    """One local step, without communication, that leaves the parameters where they were."""
    before = [parameter.detach().clone() for parameter in _parameters(optimizer)]
    local_step = getattr(optimizer, "local_step", optimizer.step)
    local_step()
    for parameter, value in zip(_parameters(optimizer), before):
        parameter.detach().copy_(value)


def _describe(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Options of all groups, and per parameter the state's plain values and the shapes of its tensors."""
    options = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    state = []
    for parameter in _parameters(optimizer):
        entry: dict[str, tuple[Any, ...]] = {}
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                entry[key] = ("tensor", tuple(value.shape), value.dtype, value.device.type)
            else:
                entry[key] = ("value", value)
        state.append(entry)
    compressor = getattr(optimizer, "_compressor", None)
    shared = None if compressor is None else compressor.shared_state()
    is_delayed = getattr(optimizer, "is_delayed", False)
    return {"options": options, "state": state, "compression": shared, "is_delayed": is_delayed}


def _apply_options(optimizer: torch.optim.Optimizer, options: list[dict[str, Any]]) -> None:
    if len(options) != len(optimizer.param_groups):
        raise ValueError(
            f"The optimizer has {len(optimizer.param_groups)} parameter groups here but {len(options)} on "
            f"the root rank; build the same optimizer on every rank before broadcast_optimizer_state."
        )
    for group, values in zip(optimizer.param_groups, options):
        for key, value in values.items():
            mine = group.get(key)
            if isinstance(mine, torch.Tensor) and isinstance(value, torch.Tensor):
                mine.detach().copy_(value)  # learning-rate schedulers keep the tensor
            else:
                group[key] = value


def _send_state(
    optimizer: torch.optim.Optimizer,
    state: list[dict[str, Any]],
    root_rank: int,
    process_set: ProcessSet,
) -> None:
    parameters = list(_parameters(optimizer))
    if len(state) != len(parameters):
        raise ValueError(
            f"The optimizer has {len(parameters)} parameters here but {len(state)} on the root rank; build "
            f"the same optimizer on every rank before broadcast_optimizer_state."
        )
    occurrences: dict[str, int] = defaultdict(int)
    tensors = []
    for parameter, entry in zip(parameters, state):
        mine = optimizer.state[parameter] if entry else {}
        for stale in set(mine) - set(entry):
            del mine[stale]
        for key, (kind, *details) in entry.items():
            if kind == "value":
                mine[key] = details[0]
                continue
            occurrences[key] += 1
            mine[key] = _fitting(mine.get(key), details, parameter)
            tensors.append((f"{key}.{occurrences[key]}", mine[key]))
    broadcast_parameters(tensors, root_rank, process_set)


def _fitting(current: Any, details: list[Any], parameter: torch.Tensor) -> torch.Tensor:
    """The current state tensor if it can take root's values, else a new one."""
    shape, dtype, device_type = details
    if isinstance(current, torch.Tensor) and tuple(current.shape) == shape and current.dtype == dtype:
        return current
    device = torch.device("cpu") if device_type == "cpu" else parameter.device
    return torch.zeros(shape, dtype=dtype, device=device)
