"""Trains a small network from a seed with numpy, and writes a digest of the state at each commit."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
from misfortunes import Misfortunes

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
    """One file of records for each process, so that one that is killed leaves whole lines. A record with the
    field `what` is no commit but an event; `t` is the clock that all processes of this machine share.
    """

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}.{time.monotonic_ns()}.jsonl"  # numbers of processes come again
        self._file = open(folder / name, "x", buffering=1)  # noqa: SIM115 (for the life)
        self.event("start", uid=os.environ.get("RUEDA_ELASTIC_UID", ""), pid=os.getpid())

    def write(self, **record):
        self._file.write(json.dumps({**record, "t": round(time.monotonic(), 4)}) + "\n")

    def event(self, what, **record):
        self.write(what=what, **record)


class PunishedState(hvd.elastic.NumpyState):
    """Says when its sync begins and when it fails: a process that joins may be killed in between."""

    def __init__(self, log, **values):
        super().__init__(**values)
        self.log = log

    def sync(self):
        self.log.event("sync", view=view_of(self))
        try:
            super().sync()
        except hvd.HorovodInternalError as error:
            self.log.event("lost", view=view_of(self), text=str(error))
            raise


def train(state, options, log):
    """Until the last step, or until there is the file that says that it is enough."""
    ballast = hashlib.sha256(state.ballast).hexdigest()
    log.event("view", view=view_of(state), rank=hvd.rank(), size=hvd.size(), ballast=ballast)
    try:
        while state.step < options.steps and not make_epoch(state, options, log):
            pass
    except hvd.HorovodInternalError as error:
        log.event("lost", view=view_of(state), text=str(error))
        raise
    return digest_of(state)


def make_epoch(state, options, log):
    """The steps that are left of the epoch. Whether it is enough."""
    features, targets = make_data(options.seed)
    for i, batch in enumerate(state.ledger):
        done = state.step
        options.misfortunes.befall("die", done)
        time.sleep(options.pace)
        is_enough = np.float32(options.stop_file is not None and options.stop_file.exists())
        own = gradients_of(state.values, features[batch], targets[batch])
        weight = np.float32(state.ledger.weight(i))
        *sums, stops = hvd.grouped_allreduce(
            [*(own[name] * weight for name in PARAMETERS), np.full(1, is_enough)], "gradients"
        )
        options.misfortunes.befall("fail", done)
        record = update(state, sums, i)
        record |= {"size": hvd.size(), "rank": hvd.rank(), "view": view_of(state)}
        try:
            state.commit()  # an interrupt is raised when the commit has been made
        finally:
            log.write(**record, digest=digest_of(state))
            options.misfortunes.befall("die-alone", done)
        if stops[0] > 0:
            return True
        if state.step == options.steps or state.ledger.cursor == 0:
            return False
    return False


def update(state, sums, i):
    """One step of the optimizer with the mean gradients of batch i. What it has used."""
    for name, gradient in zip(PARAMETERS, sums):
        state.values[f"m_{name}"] = np.float32(0.5) * state.values[f"m_{name}"] + gradient
        state.values[name] = state.values[name] - np.float32(0.0625) * state.values[f"m_{name}"]
    ledger = state.ledger
    before = ledger.cursor
    ledger.record_batch(i)
    state.step += 1
    record = {"step": state.step, "epoch": ledger.epoch, "used": ledger.order()[before : ledger.cursor]}
    if ledger.cursor == SAMPLES:
        ledger.set_epoch(ledger.epoch + 1)
    return record


def write_checkpoint(state, options, log):
    """By rank 0, of a commit that all have made. A full disk costs this checkpoint, not the training."""
    path = options.checkpoints / f"{state.step}.npz"
    partial = options.checkpoints / f"{state.step}.partial"
    try:
        with open(partial, "wb") as file:
            np.savez(file, **state.values, _step=state.step, **state.ledger.state_dict())
        partial.rename(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        log.event("no checkpoint", step=state.step, text=str(error))
        return
    log.event("checkpoint", step=state.step, digest=digest_of(state))
    for old in options.checkpoints.glob("*.npz"):
        if int(old.stem) < state.step:
            old.unlink(missing_ok=True)


def read_checkpoint(path):
    """What write_checkpoint wrote: the values, the step, and where the ledger was."""
    with np.load(path) as file:
        values = {name: file[name] for name in make_values(0)}
        return values, int(file["_step"]), {name: file[name] for name in ("epoch", "cursor")}


def view_of(state):
    """The number of the view, 1 before any change."""
    return state._view.number if state._view else 1


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="folder for the records of all processes")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that a rank computes in each step")
    parser.add_argument(
        "--at", action="append", default=[], metavar="WHAT:STEP:RANK", help="see misfortunes.py"
    )
    parser.add_argument(
        "--ballast", type=int, default=0, help="further bytes of the state, which stay as they are"
    )
    parser.add_argument("--stop-file", type=Path, help="all ranks end with the step in which one sees it")
    parser.add_argument("--checkpoints", type=Path, help="folder for a checkpoint now and then")
    parser.add_argument("--every", type=int, default=10, help="commits for a checkpoint")
    parser.add_argument("--resume", type=Path, help="a checkpoint to begin with")
    options = parser.parse_args(arguments)
    log = Log(options.log)
    options.misfortunes = Misfortunes(options.at, options.log)
    hvd.init()
    ledger = hvd.elastic.Ledger(SAMPLES, BATCH, seed=options.seed)
    ballast = (
        np.arange(options.ballast, dtype=np.uint8) if hvd.rank() == 0 else np.zeros(options.ballast, np.uint8)
    )
    values, step = make_values(options.seed), 0
    if options.resume:
        values, step, at = read_checkpoint(options.resume)
        ledger.load_state_dict(at)
    state = PunishedState(log, values=values, step=step, ledger=ledger, ballast=ballast)
    if options.resume:
        log.event("resumed", step=step, digest=digest_of(state))
    if options.checkpoints:
        state.register_checkpoint(lambda it: write_checkpoint(it, options, log), every=options.every)
    digest = hvd.elastic.run(train)(state, options, log)
    print(f"rank {hvd.rank()} of {hvd.size()}: {digest}", flush=True)
    hvd.shutdown()
    log.event("end")


if __name__ == "__main__":
    main()
