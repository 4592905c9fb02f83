"""What a distributed optimizer of JAX or Keras costs per gradient, in microseconds.

    rueda run -np 2 python bench/front_ends/gradient_cost.py jax
    rueda run -np 2 python bench/front_ends/gradient_cost.py keras --backend tensorflow   # or jax, or torch

Copies of one model of 200 small parameters take turns in each process: a plain loop, one with rueda's
DistributedOptimizer and, with JAX, one that averages over JAX's own Gloo (``jax.lax.pmean`` in a program on
the devices of both processes). The cost is the time of a step beyond that of the plain loop, divided by 200.
By the clock, it counts what the other rank and the engine do meanwhile on the same cores. The median of all
turns, with the 10th and the 90th percentile. One rank reduces nothing. hook_cost.py beside this file is the
same for PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any, Callable, Dict, List

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
from percentile import at

PARAMETERS, ELEMENTS, WARM_UP = 200, 64, 20
RATE = 1e-3

Loops = Dict[str, Callable[[], Any]]


def jax_loops() -> Loops:
    """Jitted steps of plain gradient descent; each returns when its parameters are there."""
    import jax

    import rueda.jax as hvd

    hvd.init()
    if hvd.size() > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        address = hvd.broadcast_object(f"127.0.0.1:{free_port()}", root_rank=0)
        jax.distributed.initialize(address, hvd.size(), hvd.rank())
    import jax.numpy as jnp
    import optax

    def loss(params: List[Any], x: Any) -> Any:
        return sum((one * x).sum() for one in params)

    def step_of(optimizer: Any) -> Callable[[], Any]:
        params = [jnp.ones(ELEMENTS) for _ in range(PARAMETERS)]
        x = jnp.full(ELEMENTS, RATE)
        held = [params, optimizer.init(params)]

        @jax.jit
        def step(params: Any, state: Any, x: Any) -> Any:
            updates, state = optimizer.update(jax.grad(loss)(params, x), state, params)
            return optax.apply_updates(params, updates), state

        def run() -> None:
            held[:] = jax.block_until_ready(step(*held, x))

        return run

    loops = {
        "plain": step_of(optax.sgd(RATE)),
        "rueda": step_of(hvd.DistributedOptimizer(optax.sgd(RATE))),
    }
    if hvd.size() > 1:
        loops["pmean"] = pmean_loop(loss)
    return loops


def pmean_loop(loss: Callable[[List[Any], Any], Any]) -> Callable[[], Any]:
    """The same step as one program on the devices of all processes, which averages by JAX's collectives."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    everywhere = NamedSharding(mesh, PartitionSpec())

    def step(params: List[Any], x: Any) -> List[Any]:
        averages = jax.lax.pmean(jax.grad(loss)(params, x), "ranks")
        return [one - RATE * average for one, average in zip(params, averages)]

    both = jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec()), out_specs=PartitionSpec())
    )

    def put(value: Any) -> Any:
        return jax.make_array_from_process_local_data(everywhere, np.asarray(value))

    held = [[put(jnp.ones(ELEMENTS)) for _ in range(PARAMETERS)]]
    x = put(jnp.full(ELEMENTS, RATE))

    def run() -> None:
        held[0] = jax.block_until_ready(both(held[0], x))

    return run


def keras_loops(backend: str) -> Loops:
    """train_on_batch of a layer that holds the parameters."""
    os.environ["KERAS_BACKEND"] = backend
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    elif backend == "torch":
        import torch

        torch.set_num_threads(1)
    import keras

    import rueda.keras as hvd

    hvd.init()

    class Many(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.many = [
                self.add_weight(shape=(ELEMENTS,), initializer="ones", name=f"w{i}")
                for i in range(PARAMETERS)
            ]

        def call(self, x: Any) -> Any:
            return sum(keras.ops.sum(one * x, axis=-1, keepdims=True) for one in self.many)

    x, y = np.full((1, ELEMENTS), RATE, "float32"), np.zeros((1, 1), "float32")

    def step_of(optimizer: Any) -> Callable[[], Any]:
        model = keras.Sequential([keras.Input((ELEMENTS,)), Many()])
        model.compile(optimizer=optimizer, loss="mse", jit_compile=False if backend != "jax" else "auto")
        return lambda: model.train_on_batch(x, y)

    return {
        "plain": step_of(keras.optimizers.SGD(RATE)),
        "rueda": step_of(hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))),
    }


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def table(rows: Dict[str, List[float]]) -> str:
    lines = ["us per gradient, beyond the plain loop"]
    for name, (middle, tenth, ninetieth) in rows.items():
        lines.append(f"{name:<8}{middle:>8.2f}   {tenth:.2f} .. {ninetieth:.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a gradient of JAX or Keras")
    parser.add_argument("framework", choices=["jax", "keras"])
    parser.add_argument("--backend", choices=["tensorflow", "jax", "torch"], default="tensorflow")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    loops = jax_loops() if arguments.framework == "jax" else keras_loops(arguments.backend)
    from rueda import _core

    taken: Dict[str, List[float]] = {name: [] for name in loops}
    for turn in range(WARM_UP + arguments.turns):
        for name, step in loops.items():
            began = time.perf_counter()
            step()
            if turn >= WARM_UP:
                taken[name].append(time.perf_counter() - began)
    if _core.rank() == 0:
        rows = {}
        for name, times in taken.items():
            plain = [0.0] * len(times) if name == "plain" else taken["plain"]
            cost = [1e6 * (a - b) / PARAMETERS for a, b in zip(times, plain)]
            rows[name] = [at(cost, share) for share in (0.5, 0.1, 0.9)]
        print(json.dumps(rows) if arguments.json else table(rows), flush=True)


if __name__ == "__main__":
    main()
