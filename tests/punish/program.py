"""Trains a small network from a seed with numpy, and writes a digest of the state at each commit."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
from pathlib import Path

import numpy as np

import rueda.numpy as hvd

SAMPLES, INPUTS, HIDDEN, BATCH = 96, 8, 16, 4
PARAMETERS = ("w1", "b1", "w2")


def make_data(seed):
    """Features [SAMPLES, INPUTS] and targets [SAMPLES, 1], float32."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(SAMPLES, INPUTS)).astype(np.float32)
    return features, np.sin(features.sum(1, keepdims=True)).astype(np.float32)


def make_values(seed):
    """The parameters and their momenta at commit 0."""
    random = np.random.default_rng(seed + 1)
    shapes = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 1)}
    values = {name: (random.normal(size=shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    return {**values, **{f"m_{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}}


def gradients_of(values, features, targets):
    """Of the mean square error of these samples."""
    hidden = np.tanh(features @ values["w1"] + values["b1"])
    error = 2 * (hidden @ values["w2"] - targets) / np.float32(len(features))
    back = (error @ values["w2"].T) * (1 - hidden * hidden)
    return {"w1": features.T @ back, "b1": back.sum(0), "w2": hidden.T @ error}


def digest_of(state):
    """Of everything that the next step depends on."""
    digest = hashlib.sha256()
    for name in sorted(state.values):
        digest.update(state.values[name].tobytes())
    digest.update(json.dumps([state.step, state.ledger.state_dict()], sort_keys=True).encode())
    return digest.hexdigest()


class Log:
    """One file of records for each process, so that a process that is killed leaves whole lines."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / f"{os.getpid()}.jsonl", "a", buffering=1)  # noqa: SIM115 (for the life)

    def write(self, **record):
        self._file.write(json.dumps(record) + "\n")


def die(mark):
    """By SIGKILL, unless a process has died by this mark: another one may come to the step as this rank."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def train(state, options, log):
    """Until the last step."""
    features, targets = make_data(options.seed)
    while state.step < options.steps:
        for i, batch in enumerate(state.ledger):
            if (here := f"{state.step}:{hvd.rank()}") in options.die_at:
                die(options.log / f"died.{here}")
            weight = np.float32(state.ledger.weight(i))
            own = gradients_of(state.values, features[batch], targets[batch])
            sums = hvd.grouped_allreduce([own[name] * weight for name in PARAMETERS], "gradients")
            for name, gradient in zip(PARAMETERS, sums):
                state.values[f"m_{name}"] = np.float32(0.5) * state.values[f"m_{name}"] + gradient
                state.values[name] = state.values[name] - np.float32(0.0625) * state.values[f"m_{name}"]
            before = state.ledger.cursor
            state.ledger.record_batch(i)
            used = state.ledger.order()[before : state.ledger.cursor]
            state.step += 1
            epoch = state.ledger.epoch
            if state.ledger.cursor == SAMPLES:
                state.ledger.set_epoch(epoch + 1)
            record = {"step": state.step, "size": hvd.size(), "rank": hvd.rank(), "view": view_of(state)}
            try:
                state.commit()  # an interrupt is raised when the commit has been made
            finally:
                log.write(**record, digest=digest_of(state), epoch=epoch, used=used)
            if state.step == options.steps or state.ledger.cursor == 0:
                break
    return digest_of(state)


def load(state, path):
    """The state that a replay begins with."""
    with np.load(path) as found:
        state.values = {name: found[name] for name in found.files if not name.startswith("_")}
        state.step = int(found["_step"])
        state.ledger.load_state_dict({"epoch": int(found["_epoch"]), "cursor": int(found["_cursor"])})
    state.save()


def keep(state, path):
    """What load() takes. By rank 0."""
    at = state.ledger.state_dict()
    np.savez(path, **state.values, _step=state.step, _epoch=at["epoch"], _cursor=at["cursor"])


def view_of(state):
    """The number of the view, 1 before any change."""
    return state._view.number if state._view else 1


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="folder for the records of all processes")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--die-at", action="append", default=[], metavar="STEP:RANK")
    parser.add_argument("--load", type=Path, help="state to begin with")
    parser.add_argument("--keep", type=Path, help="where rank 0 keeps the last state")
    options = parser.parse_args(arguments)
    hvd.init()
    ledger = hvd.elastic.Ledger(SAMPLES, BATCH, seed=options.seed)
    state = hvd.elastic.NumpyState(values=make_values(options.seed), step=0, ledger=ledger)
    if options.load:
        load(state, options.load)
    digest = hvd.elastic.run(train)(state, options, Log(options.log))
    if options.keep and hvd.rank() == 0:
        keep(state, options.keep)
    print(f"rank {hvd.rank()} of {hvd.size()}: {digest}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
