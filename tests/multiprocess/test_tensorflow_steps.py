"""Steps of TensorFlow programs in the timeline: one mark for each, in every mode."""

from step_marks import steps_of
from tensorflow_support import hvd, np, on_ranks, tf

STEPS = 6


def variables():
    return [tf.Variable(tf.ones([3])), tf.Variable(tf.ones([2, 2]))]


def step_of(mine):
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one * one) for one in mine])
        tape = hvd.DistributedGradientTape(tape)
        for gradient, one in zip(tape.gradient(loss, mine), mine):
            one.assign_sub(0.1 * gradient)

    return step


def repeat(step):
    def train():
        for _ in range(STEPS):
            step()

    return train


@on_ranks
def test_a_tape_marks_each_step_eagerly_and_in_a_function():
    assert steps_of(repeat(step_of(variables()))) == STEPS
    assert steps_of(repeat(tf.function(step_of(variables())))) == STEPS


@on_ranks
def test_a_loop_inside_a_function_marks_each_of_its_steps():
    step = step_of(variables())

    @tf.function
    def train():
        for _ in tf.range(STEPS):
            step()

    assert steps_of(train) == STEPS


@on_ranks
def test_two_tapes_of_a_step_mark_it_once():
    first, second = step_of(variables()), step_of(variables())

    def both():
        first()
        second()

    assert steps_of(repeat(both)) == STEPS
    assert steps_of(repeat(tf.function(both))) == STEPS


def steps_of_session(**settings):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("w", [4], initializer=tf.compat.v1.ones_initializer())
        other = tf.compat.v1.get_variable("v", [2], initializer=tf.compat.v1.ones_initializer())
        plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        optimizer = hvd.DistributedOptimizer(plain, **settings)
        loss = tf.reduce_sum(weights * weights) + tf.reduce_sum(other)
        train = optimizer.minimize(loss, var_list=[weights, other])
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        passes = settings.get("backward_passes_per_step", 1)
        marked = steps_of(lambda: [session.run(train) for _ in range(STEPS * passes)])
        assert np.all(session.run(weights) < 1), "the marks do not replace the steps"
        return marked


@on_ranks
def test_a_tensorflow_1_optimizer_marks_the_steps_that_it_takes():
    assert steps_of_session() == STEPS
    assert steps_of_session(backward_passes_per_step=2) == STEPS
    assert steps_of_session(op=hvd.Adasum) == STEPS
