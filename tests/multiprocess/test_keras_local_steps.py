"""The callbacks of rueda.keras for ranks that train on their own, on every backend of Keras."""

import keras_worlds  # before keras: it chooses the backend

# isort: split
import warnings

import keras
import numpy as np
import pytest
from harness import on_every_rank
from keras_worlds import fit
from outer_model import OuterModel

import rueda.keras as hvd

world = keras_worlds.world


def make_plain(seed=1):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return model


def make_averaging():
    """A model whose optimizer averages gradients in every step."""
    model = make_plain()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    return model


def weights_of(model):
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()
    return [np.array(value) for value in model.get_weights()]


def is_one_model(model):
    values = b"".join(value.tobytes() for value in weights_of(model))
    return len(set(hvd.allgather_object(values))) == 1


class Agreement(keras.callbacks.Callback):
    """After which batches all ranks have the same weights."""

    def __init__(self):
        super().__init__()
        self.seen = ""

    def on_train_batch_end(self, batch, logs=None):
        self.seen += "=" if is_one_model(self.model) else "."


@on_every_rank
def test_ranks_train_alone_and_average_after_so_many_batches():
    model, agreement = make_plain(), Agreement()
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # "ranks start alike and then train apart"
        fit(model, [start, hvd.callbacks.LocalSGDCallback(every=3), agreement], batches=7)
    assert agreement.seen == "..=..=."
    assert is_one_model(model), "equal at the end of the epoch"

    with pytest.raises(ValueError, match="averages gradients in every step already"):
        fit(make_averaging(), [hvd.callbacks.LocalSGDCallback(every=3)])
    with pytest.raises(ValueError, match="every is 0"):
        hvd.callbacks.LocalSGDCallback(every=0)


class Weights(keras.callbacks.Callback):
    """The trained weights of all ranks after each batch, as this callback finds them."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        weights_of(self.model)
        own = [np.asarray(keras.ops.convert_to_numpy(one)) for one in self.model.trainable_variables]
        self.seen.append(hvd.allgather_object(own))


@on_every_rank
def test_the_outer_optimizer_steps_with_the_average_of_how_far_ranks_have_come():
    for nesterov in (True, False):
        check_outer_steps(nesterov)


def check_outer_steps(nesterov):
    model, before, after, agreement = make_plain(seed=hvd.rank()), Weights(), Weights(), Agreement()
    diloco = hvd.callbacks.DiLoCoCallback(2, outer_lr=0.5, outer_momentum=0.25, nesterov=nesterov)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        fit(model, [before, diloco, after, agreement], batches=8)
    assert agreement.seen == "=.=.=.=."
    due = {2: range(6), 4: range(6), 6: range(6)}
    check_weights(before, after, due, False, (0.5, 0.25, nesterov))
    assert is_one_model(model), "equal at the end of the epoch"


def check_weights(before, after, due, overlap, outer):
    """The first batch makes all weights their averages, and the others do what the model says."""
    first = [np.mean(one, 0) for one in zip(*before.seen[0])]
    for mine, expected in zip(after.seen[0][hvd.rank()], first):
        np.testing.assert_allclose(mine, expected, rtol=1e-6)
    expected = OuterModel(first, due, overlap, *outer)
    for batch in range(1, len(before.seen)):
        for mine, one in zip(after.seen[batch][hvd.rank()], expected.after(before.seen[batch])[hvd.rank()]):
            np.testing.assert_allclose(mine, one, rtol=1e-5, atol=1e-6)


@on_every_rank
def test_fragments_take_turns_and_their_changes_may_travel_during_a_batch():
    for overlap in (False, True):
        model, before, after = make_plain(seed=hvd.rank()), Weights(), Weights()
        options = {"fragments": 2, "overlap": overlap, "compression": hvd.Compression.bf16}  # one host: exact
        diloco = hvd.callbacks.DiLoCoCallback(4, 0.5, 0.25, **options)
        fit(model, [before, diloco, after], batches=11)
        due = {2: [0, 1, 2], 4: [3, 4, 5], 6: [0, 1, 2], 8: [3, 4, 5], 10: [0, 1, 2]}
        check_weights(before, after, due, overlap, (0.5, 0.25, True))
        assert is_one_model(model), "equal at the end of the epoch, though changes were under way"
        fit(model, [diloco], batches=3, epochs=2)
        assert is_one_model(model)


class Meeting(keras.callbacks.Callback):
    """Waits for all ranks after a batch."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            hvd.allgather_object(None)


@on_every_rank
def test_a_rank_trains_on_while_changes_travel():
    """Rank 0 comes to the meeting only if it does not wait for what the others send after it."""
    model, diloco = make_plain(), hvd.callbacks.DiLoCoCallback(2, overlap=True)
    fit(model, [diloco, Meeting()] if hvd.rank() == 0 else [Meeting(), diloco], batches=5)
    assert is_one_model(model)


@on_every_rank
def test_what_diloco_sends_may_be_encoded_and_bad_arguments_are_named():
    for compression in (hvd.Compression.bf16, hvd.Compression.fp16, hvd.Compression.int8):
        model, agreement = make_plain(), Agreement()
        fit(model, [hvd.callbacks.DiLoCoCallback(2, 1.0, 0.5, compression=compression), agreement])
        assert agreement.seen == "=.=."
    with pytest.raises(ValueError, match="DiLoCoCallback: the optimizer of this model averages"):
        fit(make_averaging(), [hvd.callbacks.DiLoCoCallback(every=3)])
    with pytest.raises(ValueError, match="outer_lr is 0"):
        hvd.callbacks.DiLoCoCallback(every=3, outer_lr=0)
    with pytest.raises(ValueError, match="DiLoCoCallback: overlap needs every to be at least 2"):
        hvd.callbacks.DiLoCoCallback(every=1, overlap=True)
    with pytest.raises(ValueError, match="DiLoCoCallback: fragments is 0"):
        hvd.callbacks.DiLoCoCallback(every=3, fragments=0)
    with pytest.raises(
        ValueError, match="fragments is 7, but there are 6 parameters that are trained and 9 "
    ):
        fit(make_plain(), [hvd.callbacks.DiLoCoCallback(every=9, fragments=7)])
    with pytest.raises(ValueError, match="compression is 'int4'"):
        hvd.callbacks.DiLoCoCallback(every=3, compression="int4")


@on_every_rank
def test_an_optimizer_of_some_ranks_may_average_in_each_step_between_exchanges():
    half = max(1, hvd.size() // 2)
    sets = [hvd.add_process_set(range(at, min(at + half, hvd.size()))) for at in range(0, hvd.size(), half)]
    model, agreement = make_plain(), Agreement()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), process_set=sets[hvd.rank() // half])
    model.compile(optimizer=optimizer, loss="mse")
    fit(model, [hvd.callbacks.LocalSGDCallback(every=2), agreement])
    assert agreement.seen == ".=.="
    for one in sets:
        hvd.remove_process_set(one)
