"""TensorFlow jobs with a life of their own: a rank that dies, blocking kernels."""

import functools
import importlib.util

import pytest
from harness import NO_PEER_TIMEOUT, assert_all_succeed, launch
from nursery import TENSORFLOW, fork

pytest.importorskip("tensorflow")

start = functools.partial(fork, imports=TENSORFLOW)

DYING = """
import os, sys, time
import tensorflow as tf
import rueda.tensorflow as hvd

for call in (lambda: hvd.allreduce(tf.ones(2)), hvd.rank_op, hvd.join):
    try:
        call()
        sys.exit("no error before init")
    except tf.errors.FailedPreconditionError as error:
        assert "Horovod has not been initialized; use hvd.init()." in error.message, error
assert int(hvd.process_set_included_op()) == -1
hvd.init()

@tf.function
def step(x):
    return [hvd.allreduce(x + i, name=f"t{i}") for i in range(20)]

step(tf.ones([1000]))
if hvd.rank() == 1:
    os._exit(3)
texts = []
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    reduced = hvd.allreduce(tf.ones([2]), name="session")
    for run in (lambda: session.run(reduced), lambda: session.run(reduced)):
        try:
            run()
            sys.exit("no error after the death")
        except tf.errors.UnknownError as error:
            texts.append(error.message)
assert all("rank 1" in text for text in texts), texts
"""


def test_a_dying_rank_ends_the_others_steps_with_its_number():
    alive, dead = launch(2, DYING, NO_PEER_TIMEOUT, start=start)
    assert dead.status == 3, dead.output
    assert alive.status == 0, alive.output


BLOCKING = """
import random
import numpy as np
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
import rueda.tensorflow as hvd
from rueda.tensorflow import plugin

hvd.init()
assert not plugin.is_async()
me = hvd.rank()
variables = [tf.Variable(tf.ones([i + 1], dtype)) for i, dtype in enumerate([tf.float32, tf.float64] * 10)]

def gradients():
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(tf.cast(v, tf.float32)) * (me + 1.0) for v in variables])
    return hvd.DistributedGradientTape(tape).gradient(loss, variables)

for function in (gradients, tf.function(gradients)):
    for gradient, variable in zip(function(), variables):
        assert gradient.dtype == variable.dtype and np.allclose(gradient, 1.5)
v1 = tf.compat.v1
with tf.Graph().as_default():
    made = [v1.get_variable(f"v{i}", initializer=np.ones(2, np.float32)) for i in range(20)]
    random.Random(me).shuffle(made)  # another order of creation must not matter: one operation reduces all
    made.sort(key=lambda variable: int(variable.name[1:-2]))
    optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
    train = optimizer.minimize(tf.add_n([tf.reduce_sum(v) * me for v in made]))
    with v1.train.MonitoredTrainingSession() as session:
        session.run(train)
        assert all(np.allclose(value, 0.5) for value in session.run(made))
assert hvd.allreduce(tf.ones([2]), op=hvd.Sum).numpy().tolist() == [2.0, 2.0]
assert not plugin.is_async()
"""


def test_blocking_kernels_serve_where_done_cannot_be_kept():
    assert_all_succeed(launch(2, BLOCKING, {"RUEDA_TENSORFLOW_ASYNC": "0"}, start=start))


WITH_TORCH = """
import torch
import rueda.torch as thvd
import tensorflow as tf
import rueda.tensorflow as hvd

thvd.init()
assert hvd.is_initialized() and hvd.size() == thvd.size() == 2  # one engine serves both
total = hvd.allreduce(tf.ones([2]), op=hvd.Sum, name="x").numpy().tolist()
assert total == thvd.allreduce(torch.ones(2), op=thvd.Sum, name="x").tolist() == [2.0, 2.0]
thvd.shutdown()
assert not hvd.is_initialized()
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="there is no torch")
def test_torch_and_tensorflow_share_one_engine():
    assert_all_succeed(launch(2, WITH_TORCH, start=start))
