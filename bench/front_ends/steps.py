"""One measured program of bench/front_ends: `python steps.py NAME` prints its step times as JSON on rank 0.

Names: torch, tensorflow, keras and jax train the same network (784-512-512-10, 669,706 parameters in 6
tensors). cnn and strategy train one small CNN in loops of their own, with rueda.tensorflow and with
MultiWorkerMirroredStrategy. Each process has one computing thread. For the first four names it also has one
core, so that a single process cannot use the other core for what its framework does besides computing. A
second argument says how many steps are measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable, List

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

WIDTHS = (784, 512, 512, 10)
BATCH = 64
CNN_BATCH = 32
WARM_UP = 20


def measure(step: Callable[[], Any], steps: int) -> List[float]:
    """Milliseconds of the median step, and of the step that a tenth of all steps beat. `step` returns when
    its result is ready.
    """
    times: List[float] = []
    for _ in range(WARM_UP + steps):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    ordered = sorted(times[WARM_UP:])
    return [1000 * ordered[steps // 2], 1000 * ordered[steps // 10]]


def batch() -> Any:
    random = np.random.default_rng(0)
    return random.normal(size=(BATCH, 784)).astype("float32"), random.integers(0, 10, BATCH)


def with_torch(steps: int) -> List[float]:
    import torch

    import rueda.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    layers: List[torch.nn.Module] = []
    for fan_in, fan_out in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    x, y = (torch.from_numpy(one) for one in batch())

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return measure(step, steps)


def quiet_tensorflow() -> Any:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    return tf


def keras_network(tf: Any) -> Any:
    layers = [tf.keras.layers.Dense(width, "relu") for width in WIDTHS[1:-1]]
    return tf.keras.Sequential([tf.keras.Input((784,)), *layers, tf.keras.layers.Dense(10)])


def tape_step(tf: Any, model: Any, x: Any, y: Any, wrap: Callable[[Any], Any]) -> Callable[[], Any]:
    """A compiled step of plain gradient descent."""
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = [one.value if hasattr(one, "path") else one for one in model.trainable_variables]

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        for weight, gradient in zip(weights, wrap(tape).gradient(loss, weights)):
            weight.assign_sub(0.01 * gradient)
        return loss

    return lambda: step().numpy()


def with_tensorflow(steps: int) -> List[float]:
    tf = quiet_tensorflow()
    import rueda.tensorflow as hvd

    hvd.init()
    x, y = (tf.constant(one) for one in batch())
    return measure(tape_step(tf, keras_network(tf), x, y, hvd.DistributedGradientTape), steps)


def with_keras(steps: int) -> List[float]:
    tf = quiet_tensorflow()
    import rueda.tensorflow.keras as hvd

    hvd.init()
    model = keras_network(tf)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    x, y = (tf.constant(one) for one in batch())
    model.train_on_batch(x, y)
    function = model.make_train_function()
    data = tf.data.Dataset.from_tensors((x, y)).repeat()
    iterator = iter(data)
    return measure(lambda: [one.numpy() for one in tf.nest.flatten(function(iterator))], steps)


def with_jax(steps: int) -> List[float]:
    import jax
    import jax.numpy as jnp
    import optax

    import rueda.jax as hvd

    hvd.init()
    random = np.random.default_rng(1)
    params = [
        (jnp.asarray(random.normal(size=(i, o), scale=i**-0.5), jnp.float32), jnp.zeros(o))
        for i, o in zip(WIDTHS, WIDTHS[1:])
    ]
    optimizer = hvd.DistributedOptimizer(optax.sgd(0.01))
    state = optimizer.init(params)
    x, y = (jnp.asarray(one) for one in batch())

    def loss_of(params: Any) -> Any:
        h = x
        for weight, bias in params[:-1]:
            h = jax.nn.relu(h @ weight + bias)
        logits = h @ params[-1][0] + params[-1][1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def update(params: Any, state: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    compiled = jax.jit(update, donate_argnums=(0, 1))
    held = [params, state]

    def step() -> None:
        held[0], held[1], loss = compiled(held[0], held[1])
        loss.block_until_ready()
        jax.block_until_ready(held[0])

    return measure(step, steps)


class Cnn:
    """Variables (51,330 numbers in 8 tensors), one batch and its loss, without Keras: Keras 3 has no support
    for the strategy.
    """

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        random = np.random.default_rng(1)
        shapes = [(3, 3, 1, 16), (16,), (3, 3, 16, 32), (32,), (1152, 40), (40,), (40, 10), (10,)]
        self.weights = [tf.Variable(0.05 * random.normal(size=s).astype("float32")) for s in shapes]
        self.x = tf.constant(random.normal(size=(CNN_BATCH, 28, 28, 1)).astype("float32"))
        self.y = tf.constant(random.integers(0, 10, CNN_BATCH))

    def loss(self) -> Any:
        tf, w = self.tf, self.weights
        h = tf.nn.relu(tf.nn.conv2d(self.x, w[0], 2, "VALID") + w[1])
        h = tf.nn.relu(tf.nn.conv2d(h, w[2], 2, "VALID") + w[3])
        h = tf.nn.relu(tf.reshape(h, [CNN_BATCH, -1]) @ w[4] + w[5])
        logits = h @ w[6] + w[7]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(self.y, logits))

    def apply(self, gradients: Any) -> None:
        for weight, gradient in zip(self.weights, gradients):
            weight.assign_sub(0.01 * gradient)


def with_cnn(steps: int) -> List[float]:
    tf = quiet_tensorflow()
    import rueda.tensorflow as hvd

    hvd.init()
    model = Cnn(tf)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = model.loss()
        model.apply(hvd.DistributedGradientTape(tape).gradient(loss, model.weights))
        return loss

    return measure(lambda: step().numpy(), steps)


def with_strategy(steps: int) -> List[float]:
    """Like with_cnn. TF_CONFIG names the processes that take part."""
    tf = quiet_tensorflow()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = Cnn(tf)

    def replica_step() -> Any:
        with tf.GradientTape() as tape:
            loss = model.loss()
        gradients = tape.gradient(loss, model.weights)
        context = tf.distribute.get_replica_context()
        model.apply(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients))
        return loss

    @tf.function
    def step() -> Any:
        return strategy.run(replica_step)

    return measure(lambda: step().numpy(), steps)


PROGRAMS = {
    "torch": with_torch,
    "tensorflow": with_tensorflow,
    "keras": with_keras,
    "jax": with_jax,
    "cnn": with_cnn,
    "strategy": with_strategy,
}


def pin() -> None:
    """Binds this rank to its own core, before its framework starts threads."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("RUEDA_LOCAL_RANK", 0)) % len(cores)]})


def main() -> None:
    name, steps = sys.argv[1], int(sys.argv[2])
    if name in ("torch", "tensorflow", "keras", "jax"):
        pin()
    median, tenth = PROGRAMS[name](steps)
    task = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
    if int(os.environ.get("RUEDA_RANK", task)) == 0:
        print(json.dumps({"program": name, "median_ms": median, "tenth_ms": tenth}), flush=True)


if __name__ == "__main__":
    main()
