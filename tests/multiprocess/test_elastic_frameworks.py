"""Elastic training with numpy, JAX, TensorFlow and Keras in real jobs that lose and gain ranks."""

from __future__ import annotations

import functools
import importlib.util

import pytest
from harness import QUIET_TENSORFLOW, assert_all_succeed, launch
from keras_worlds import imports_of
from nursery import TENSORFLOW as WITH_TENSORFLOW
from nursery import Imports, fork

WITH_NUMPY = Imports(("rueda.numpy", "pytest", "cloudpickle"))
WITH_JAX = Imports(("rueda.jax", "pytest", "optax"), (("JAX_PLATFORMS", "cpu"),))

START = """
import os, signal
import numpy as np
from elastic_support import FileMembership
members = FileMembership({first}).use()
members.plan = {plan}
def die_at(step, uid):
    if (step, members.uid) == (step, uid):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def forked(imports):
    """How ranks start that need not import these themselves."""
    return functools.partial(fork, imports=imports)


def run(size, body, first, plan="{}", imports=WITH_NUMPY):
    script = START.format(first=first, plan=plan) + body
    return launch(size, script, dict(imports.environment), start=forked(imports))


def need(*names):
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"there is no {name}")


NUMPY = """
import rueda.numpy as hvd
hvd.init()
state = hvd.elastic.NumpyState(weights=np.zeros(4), step=0)
@hvd.elastic.run
def train(state):
    while state.step < 8:
        if state.step == 4:
            die_at(4, 2)
        state.weights += hvd.allreduce(np.full(4, state.step + 1.0), "gradient")
        state.step += 1
        state.commit()
    return state.weights
assert train(state).tolist() == [36.0] * 4, state.weights
"""


def test_arrays_that_change_in_place_come_back_and_reach_joiners() -> None:
    ends = "assert hvd.size() == 3 and [view.size for view in members.views] == [4, 3]"
    finished = run(4, NUMPY + ends, [0, 1, 2], "{1: (2, ())}")
    assert finished[2].status == -9
    del finished[2]
    assert_all_succeed(finished)


JAX = """
import jax, jax.numpy as jnp, optax
import rueda.jax as hvd
hvd.init()
params = {"w": jnp.full((3,), float(members.uid)), "b": jnp.zeros(())}
optimizer = hvd.DistributedOptimizer(optax.sgd(0.125, momentum=0.5))
state = hvd.elastic.JaxState(params=params, opt_state=optimizer.init(params), step=0)

def make_step():
    def loss_of(params, x):
        return jnp.mean((x @ params["w"] + params["b"] - 1.0) ** 2)
    def step(params, opt_state, x):
        gradients = jax.grad(loss_of)(params, x)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state
    return jax.jit(step, donate_argnums=(0, 1))

@hvd.elastic.run
def train(state):
    step = make_step()
    while state.step < 8:
        if state.step == 4:
            die_at(4, 2)
        x = jnp.full((2, 3), 0.25 * ((state.step + hvd.rank()) % 3))
        state.params, state.opt_state = step(state.params, state.opt_state, x)
        jax.block_until_ready(state.params)
        rows = jax.jit(lambda one: hvd.allgather(one, "rows"))(jnp.ones((1, 2)))
        assert rows.shape == (hvd.size(), 2)
        state.step += 1
        state.commit()
    return state.params
params = train(state)
assert isinstance(params["w"], jax.Array) and float(params["b"]) != 0
mine = np.asarray(params["w"])
assert (np.asarray(hvd.broadcast(mine, 0, "check")) == mine).all()
hvd.barrier()
"""


def test_pytrees_of_jax_come_back_and_compiled_steps_fit_the_new_view() -> None:
    need("jax", "optax")
    finished = run(4, JAX + "assert hvd.size() == 3", [0, 1, 2], "{1: (2, ())}", WITH_JAX)
    assert finished[2].status == -9
    del finished[2]
    assert_all_succeed(finished)


TENSORFLOW = """
import tensorflow as tf
import rueda.tensorflow as hvd
hvd.init()
weights = tf.Variable(tf.fill([3], float(members.uid)))
state = hvd.elastic.TensorFlowState([weights], step=0)
@tf.function
def step(x):
    weights.assign_add(hvd.allreduce(x, name="gradient"))
@hvd.elastic.run
def train(state):
    while state.step < 8:
        if state.step == 4:
            die_at(4, 2)
        step(tf.fill([3], float(state.step)))
        state.step += 1
        state.commit()
    return weights.numpy()
assert train(state).tolist() == [28.0] * 3, weights
"""


def test_variables_of_tensorflow_come_back_after_an_error_of_a_graph() -> None:
    need("tensorflow")
    finished = run(4, TENSORFLOW + "assert hvd.size() == 3", [0, 1, 2], "{1: (2, ())}", WITH_TENSORFLOW)
    assert finished[2].status == -9
    del finished[2]
    assert_all_succeed(finished)


ERRORS = """
import pytest
import tensorflow as tf
import rueda.tensorflow as hvd
hvd.init()
@hvd.elastic.run
def train(state):
    raise tf.errors.UnknownError(None, None, "the disk is full")
with pytest.raises(tf.errors.UnknownError, match="disk is full"):
    train(hvd.elastic.TensorFlowState([], step=0))
with tf.Graph().as_default():
    with pytest.raises(ValueError, match="^TensorFlowState without a session works in eager execution only"):
        hvd.elastic.TensorFlowState([tf.compat.v1.get_variable("v", [1])])
    variable = tf.compat.v1.get_variable("w", initializer=tf.fill([2], float(hvd.rank())))
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        state = hvd.elastic.TensorFlowState([variable], session, step=hvd.rank())
        state.sync()
        assert session.run(variable).tolist() == [0, 0] and state.step == 0
        variable.load([5, 6], session)
        state.restore()
        assert session.run(variable).tolist() == [0, 0]
from rueda.tensorflow.elastic import translate
assert translate(tf.errors.UnknownError(None, None, "x [Op:HorovodGroupedAllreduce]")) is not None
assert translate(tf.errors.UnknownError(None, None, "the disk is full")) is None
data = hvd.elastic.DatasetLedger(lambda epoch: tf.data.Dataset.range(11), batch_size=2)
found = [(batch.numpy().tolist(), weight) for batch, weight in data]
other = hvd.allgather_object(found)
steps = [sorted(k for rank in other for k in rank[i][0]) for i in range(3)]
assert steps == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]], steps
for i in (0, 1):
    data.record_batch(i)
again = hvd.elastic.DatasetLedger(lambda epoch: tf.data.Dataset.range(11), batch_size=2)
again.load_state_dict(data.state_dict())
assert [batch.numpy().tolist() for batch, _ in again] == ([[8, 9]] if hvd.rank() == 0 else [[10]])
assert again.weight(0) == (4 / 3 if hvd.rank() == 0 else 2 / 3)
hvd.join()
"""


def test_errors_that_no_collective_caused_are_raised_and_sessions_and_datasets_have_states() -> None:
    need("tensorflow")
    assert_all_succeed(launch(2, ERRORS, QUIET_TENSORFLOW, start=forked(WITH_TENSORFLOW)))


KERAS = """
import numpy as np, keras
import {module} as hvd
hvd.init()
keras.utils.set_random_seed(members.uid)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.03125, momentum=0.5)), loss="mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=0)
x = np.random.RandomState(0).rand(24, 4).astype("float32")
y = x.sum(1, keepdims=True)

class Dies(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if state.epoch == 1 and batch == 2:
            die_at(1, 2)

seen = []
@hvd.elastic.run
def train(state):
    seen.append((state.epoch, hvd.size()))
    callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state),
                 hvd.elastic.CommitStateCallback(state, batches_per_commit=1), Dies()]
    model.fit(x, y, batch_size=4, epochs=3 - state.epoch, verbose=0, shuffle=False, callbacks=callbacks)
train(state)
assert seen == [(0, 3), (1, 2)] and (state.epoch, state.batch) == (3, 0), (seen, state.epoch, state.batch)
mine = b"".join(np.asarray(one).tobytes() for one in model.get_weights())
assert len(set(hvd.allgather_object(mine))) == 1
hvd.barrier()
"""


@pytest.mark.thorough("torch")
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_model_fit_goes_on_after_a_loss(backend: str) -> None:
    need("keras", backend)
    module = "rueda.tensorflow.keras" if backend == "tensorflow" else "rueda.keras"
    finished = run(3, KERAS.replace("{module}", module), [0, 1, 2], imports=imports_of(backend))
    assert finished[2].status == -9, finished[2].output
    assert_all_succeed(finished[:2])


LEGACY = """
import numpy as np
import horovod.tensorflow.keras as hvd
import tf_keras
hvd.init()
model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(4,))])
model.compile(optimizer=hvd.DistributedOptimizer(tf_keras.optimizers.SGD(0.1)), loss="mse")
model.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)
state = hvd.elastic.KerasState(model, batch=hvd.rank(), epoch=0)
state.sync()
kept = [one.copy() for one in model.get_weights()]
callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state),
             hvd.elastic.CommitStateCallback(state, batches_per_commit=2)]
commits = []
commit = state.commit
state.commit = lambda: (commits.append((state.epoch, state.batch)), commit())
state.restore()
assert all((a == b).all() for a, b in zip(kept, model.get_weights()))
model.fit(np.ones((6, 4)), np.ones((6, 1)), batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
assert commits == [(0, 1), (1, 0), (1, 0), (1, 2), (2, 0)], commits
assert state.epoch == 2 and state.batch == 0
hvd.barrier()
"""


def test_callbacks_of_tf_keras_commit_and_count() -> None:
    need("tensorflow", "tf_keras")
    assert_all_succeed(launch(2, LEGACY, {**QUIET_TENSORFLOW, "TF_USE_LEGACY_KERAS": "1"}))


CALLBACKS = """
import numpy as np, keras, pytest
import horovod.keras as hvd
hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
state = hvd.elastic.KerasState(model, batch=0, epoch=3)
commits = []
commit = state.commit
state.commit = lambda: (commits.append((state.epoch, state.batch)), commit())
callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state),
             hvd.elastic.CommitStateCallback(state, batches_per_commit=2)]
model.fit(np.ones((10, 4)), np.ones((10, 1)), batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
assert commits == [(3, 1), (3, 3), (4, 0), (4, 0), (4, 2), (4, 4), (5, 0)], commits
weights = model.get_weights()
state.restore()
assert all((a == b).all() for a, b in zip(weights, model.get_weights()))
model.set_weights([one + 1 for one in weights])
state.restore()
assert all((a == b).all() for a, b in zip(weights, model.get_weights()))
with pytest.raises(ValueError, match="Model must be built first"):
    hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
with pytest.raises(ValueError, match="sets state.batch, but the state has no batch"):
    hvd.elastic.UpdateBatchStateCallback(hvd.elastic.KerasState(model))
with pytest.raises(ValueError, match="CommitStateCallback: batches_per_commit is 0"):
    hvd.elastic.CommitStateCallback(state, 0)
"""


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_callbacks_commit_every_so_many_batches_and_at_the_end_of_an_epoch(backend: str) -> None:
    need("keras", backend)
    imports = imports_of(backend)
    assert_all_succeed(launch(1, CALLBACKS, dict(imports.environment), start=forked(imports)))
