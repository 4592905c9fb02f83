"""Models that torch.compile has compiled, with and without CUDA graphs: they train as plain ones do."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import torch
import world
from world import RANK, device

import rueda.torch as hvd

hvd.init()
world.require_engine()
STEPS = 6


def compile_with(**settings: Any) -> Callable[[torch.nn.Module], Any]:
    # The stand-in has no compiler that would know its tensors: what is captured runs as it was written.
    backend = {"backend": "aot_eager"} if world.IS_STAND_IN else settings
    return lambda model: torch.compile(model, **backend)


def train(
    wrap: Callable[[torch.nn.Module], Any], is_sparing: bool, is_alone: bool = False
) -> List[torch.Tensor]:
    """The parameters after some steps. is_sparing: gradients are freed between steps, not zeroed. is_alone:
    without rueda.
    """
    torch.manual_seed(3)
    layers = [torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 8)]
    model = torch.nn.Sequential(*layers).to(device)
    compiled = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if not is_alone:
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    generator = torch.Generator().manual_seed(RANK)
    for _ in range(STEPS):
        data = torch.randn(16, 64, generator=generator).to(device)
        optimizer.zero_grad(set_to_none=is_sparing)
        compiled(data).pow(2).mean().backward()
        optimizer.step()
    parameters = [parameter.detach().clone() for parameter in model.parameters()]
    if is_alone:
        return parameters
    flat = torch.cat([parameter.reshape(-1) for parameter in parameters])
    assert (hvd.allgather(flat[None]) == flat).all(), "ranks differ"
    return parameters


_eager: Dict[bool, List[torch.Tensor]] = {}


def same_as_eager(is_sparing: bool, **settings: Any) -> None:
    if is_sparing not in _eager:
        _eager[is_sparing] = train(lambda model: model, is_sparing)
    for ours, eager in zip(train(compile_with(**settings), is_sparing), _eager[is_sparing]):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


def check_compiled():
    same_as_eager(is_sparing=True)
    same_as_eager(is_sparing=False)


def check_compiled_with_cuda_graphs():
    same_as_eager(is_sparing=True, mode="reduce-overhead")
    # The memory of gradients belongs to the graph, and its next replay writes there. torch refuses to add to
    # them then, with rueda or without.
    try:
        train(compile_with(mode="reduce-overhead"), is_sparing=False, is_alone=True)
    except RuntimeError as error:
        assert "overwritten by a subsequent run" in str(error), error
        world.say(needs_freed_gradients=True)
        return
    same_as_eager(is_sparing=False, mode="reduce-overhead")


def check_a_collective_inside_a_compiled_function():
    def mean_of_squares(x: torch.Tensor) -> torch.Tensor:
        return hvd.allreduce(x * 2, op=hvd.Sum, name="inside") + 1

    compiled = compile_with()(mean_of_squares)
    for _ in range(3):
        assert (compiled(world.mine(7)) == 2 * world.total + 1).all()


world.run_checks(dict(globals()))
hvd.shutdown()
