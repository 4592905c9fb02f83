"""Compression.int8 and .bf16 of TensorFlow, JAX and Keras, between two hosts."""

import pytest
from harness import QUIET_TENSORFLOW, assert_all_succeed, launch

HOSTS = """
import json, os
rank = int(os.environ["RUEDA_RANK"])
os.environ["RUEDA_HOSTNAME"] = f"h{rank}"
os.environ["RUEDA_LOCAL_RANK"], os.environ["RUEDA_LOCAL_SIZE"] = "0", "1"
import numpy as np
from rueda import _core

mine = np.random.default_rng(rank).standard_normal(3000).astype(np.float32)
exact = sum(np.random.default_rng(r).standard_normal(3000).astype(np.float32) for r in range(2))

def check(reduced, share, wanted=exact):
    reduced = np.asarray(reduced)
    assert not np.array_equal(reduced, wanted)
    assert np.abs(reduced - wanted).max() < share * np.abs(exact).max()
    return reduced

def check_kept(does_keep):
    kept = json.loads(_core.describe())["wire"]["residual_bytes"]
    assert (kept > 0) == does_keep, kept
"""

TENSORFLOW = """
import tensorflow as tf
import rueda.tensorflow as hvd
hvd.init()
check(hvd.allreduce(tf.constant(mine), op=hvd.Sum, compression=hvd.Compression.int8), 0.05)
check_kept(False)  # without a name, nothing says what comes next
check(hvd.allreduce(tf.constant(mine), op=hvd.Sum, name="a", compression=hvd.Compression.int8), 0.05)
check_kept(True)

@tf.function
def step(x):
    return (hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.bf16),
            hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, compression=hvd.Compression.int8))

for _ in range(3):
    half, (one, two) = step(tf.constant(mine))
    check(half, 0.02)
    check(one, 0.05)
    check(two, 0.1, 2 * exact)
assert hvd.allreduce(tf.cast(mine, tf.float64), op=hvd.Sum, name="b",
                     compression=hvd.Compression.bf16).dtype == tf.float64
try:
    hvd.allreduce(tf.constant(mine), op=hvd.Max, name="c", compression=hvd.Compression.int8)
except tf.errors.OpError as error:
    assert "are for Sum and Average" in str(error), error
else:
    raise AssertionError("not refused")
"""

JAX = """
import jax, jax.numpy as jnp
import rueda.jax as hvd
hvd.init()
for compression, share in ((hvd.Compression.int8, 0.05), (hvd.Compression.bf16, 0.02)):
    name = compression.__name__
    check(hvd.allreduce(jnp.asarray(mine), name=name, op=hvd.Sum, compression=compression), share)
    inside = jax.jit(lambda x: hvd.allreduce(x, name="j" + name, op=hvd.Sum, compression=compression))
    for _ in range(3):
        check(inside(jnp.asarray(mine)), share)
check_kept(True)
"""

KERAS = """
import keras
import rueda.keras as hvd
hvd.init()
check(hvd.allreduce(mine, name="value", op=hvd.Sum, compression=hvd.Compression.int8), 0.05)
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((60,)), keras.layers.Dense(100), keras.layers.Dense(1)])
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), compression=hvd.Compression.int8)
model.compile(optimizer, "mse")
x = np.random.default_rng(rank).standard_normal((64, 60)).astype(np.float32)
model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=2, verbose=0)
kernel = np.asarray(model.layers[0].kernel)
everyones = _gather(kernel)
assert np.array_equal(everyones[0], everyones[1])
assert np.isfinite(kernel).all()
"""


@pytest.mark.thorough("keras")
@pytest.mark.parametrize("name", ["tensorflow", "jax", "keras"])
def test_front_ends_send_int8_between_hosts(name):
    script = {"tensorflow": TENSORFLOW, "jax": JAX, "keras": KERAS}[name]
    gather = "import rueda.numpy\ndef _gather(a):\n    return rueda.numpy.allgather(a[None])\n"
    settings = {**QUIET_TENSORFLOW, "KERAS_BACKEND": "torch"}
    assert_all_succeed(launch(2, HOSTS + gather + script, environment=settings))
