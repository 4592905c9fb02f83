"""Ranks that build and run their operations in different orders, with one thread to run them on."""

import functools
import random

from harness import launch
from nursery import TENSORFLOW, fork
from tensorflow_support import MODES, hvd, np, on_ranks, on_three_ranks, tf

COUNT = 200


def arrays(rank):
    return [np.full(1 + 37 * i % 500, rank * 1000 + i, np.float32) for i in range(COUNT)]


def shuffled():
    order = list(range(COUNT))
    random.Random(hvd.rank()).shuffle(order)
    return order


def reduce_in_own_order(tensors):
    outputs = [None] * COUNT
    for i in shuffled():
        outputs[i] = hvd.allreduce(tensors[i] * 1.0, op=hvd.Sum, name=f"t{i}")
    return outputs


def check(outputs):
    for got, *mine in zip(outputs, *[arrays(rank) for rank in range(hvd.size())]):
        assert np.array_equal(got, sum(mine))


@on_three_ranks
def test_two_hundred_tensors_in_another_order_on_each_rank():
    mine = arrays(hvd.rank())
    function = tf.function(reduce_in_own_order, autograph=False)
    tensors = [tf.constant(one) for one in mine]
    for _ in range(3):
        check([one.numpy() for one in function(tensors)])
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    with tf.Graph().as_default():
        given = [tf.compat.v1.placeholder(tf.float32, [None]) for _ in mine]
        outputs = reduce_in_own_order(given)
        with tf.compat.v1.train.MonitoredTrainingSession(config=config) as session:
            for _ in range(3):
                check(session.run(outputs, dict(zip(given, mine))))


@on_ranks
def test_order_is_free_inside_conditions_and_kept_in_loops():
    flag = tf.Variable(True)

    @tf.function
    def conditional(x):
        names = ["a", "b", "c"] if hvd.rank() == 0 else ["c", "b", "a"]
        if flag:
            parts = {name: hvd.allreduce(x, op=hvd.Sum, name=name) for name in names}
            y = parts["a"] + parts["b"] + parts["c"]
        else:
            y = x
        return y

    assert conditional(tf.ones([2])).numpy().tolist() == [6.0, 6.0]

    @tf.function
    def loop(x):
        total = tf.zeros([2])
        for i in tf.range(6):  # no round needs the one before it
            total += hvd.allreduce(x * tf.cast(i, tf.float32), op=hvd.Sum, name="round")
        return total

    for _ in range(10):
        assert loop(tf.ones([2])).numpy().tolist() == [30.0, 30.0]


@on_ranks
def test_operations_are_neither_merged_nor_left_out():
    for mode in MODES[1:]:
        # A rank that merged or dropped one of the three would leave the other waiting.
        names = ["x", "y", "unused"] if hvd.rank() == 0 else ["y", "unused", "x"]

        def build(names=names):
            parts = {name: hvd.allreduce(tf.ones([3]), op=hvd.Sum, name=name) for name in names}
            return parts["x"] + parts["y"], parts["unused"]

        if mode == "function":
            got = tf.function(lambda build=build: build()[0])().numpy()
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                total, unused = build()
                with tf.control_dependencies([unused]):
                    got = session.run(tf.identity(total))
        assert got.tolist() == [4.0] * 3, mode


@on_ranks
def test_several_threads_run_functions_of_their_own():
    import threading

    wrong = []

    def work(number):
        def sums(x):
            return [hvd.allreduce(x + i, op=hvd.Sum, name=f"{number}_{i}") for i in range(5)]

        function = tf.function(sums, autograph=False)
        for _ in range(5):
            got = [float(one) for one in function(tf.constant(float(number)))]
            if got != [2.0 * (number + i) for i in range(5)]:
                wrong.append(got)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads if hvd.rank() == 0 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not wrong and not any(thread.is_alive() for thread in threads)


@on_ranks
def test_given_names_hold_inside_nested_functions():
    # Rank 0 calls one function more before: the calls' numbers, prefixes of node names, differ between ranks.
    other = tf.function(lambda x: x * 1.0)
    nested = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="nested"))

    @tf.function
    def outer(x):
        if hvd.rank() == 0:
            x = other(x)
            tf.print("", end="")
        with tf.name_scope("scope"):
            return nested(x) + hvd.allreduce(x, op=hvd.Sum, name="inner")

    assert outer(tf.ones([2])).numpy().tolist() == [4.0, 4.0]


STALLED = """
import tensorflow as tf
import rueda.tensorflow as hvd

hvd.init()
parts = [tf.function(lambda x, i=i: hvd.allreduce(x, name=f"part{i}"), autograph=False) for i in range(2)]

@tf.function(autograph=False)
def outer(x):
    return [part(x) for part in (parts if hvd.rank() == 0 else parts[::-1])]

try:
    outer(tf.ones([2]))
    print("no error")
except tf.errors.UnknownError as error:
    assert "part0 (ALLREDUCE)" in error.message and "part1 (ALLREDUCE)" in error.message, error.message
    print("named")
"""


def test_nested_functions_in_opposite_order_are_named_within_the_deadline():
    # TensorFlow runs calls of functions with collectives one after the other: this cannot work, only be told.
    limits = {"RUEDA_STALL_CHECK_TIME_SECONDS": "1", "RUEDA_STALL_SHUTDOWN_TIME_SECONDS": "5"}
    for one in launch(2, STALLED, limits, start=functools.partial(fork, imports=TENSORFLOW)):
        assert one.status == 0 and "named" in one.output.splitlines(), one.output


@on_ranks
def test_steady_steps_may_depend_on_themselves():
    # Each reduction needs the one before, also over the border of a step: whatever the engine learns of these
    # steps, it must not hold one back until the next has come.
    weights = [tf.Variable(tf.ones([64, 64]) / 64) for _ in range(4)]

    @tf.function
    def step(x):
        for i, weight in enumerate(weights):
            x = hvd.allreduce(x @ weight, name=f"layer{i}")
        return x

    x = tf.ones([8, 64])
    for _ in range(40):
        x = step(x)
    assert np.allclose(x, 1.0)
