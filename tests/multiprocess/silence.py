"""Whether a training comes to steps in which nothing is negotiated."""

import json

import numpy as np

import rueda.numpy as hvd
from rueda import _core

STEPS, SILENT = 150, 30
ATTEMPTS = 4  # a machine that stands still ends plans


def messages():
    return json.loads(_core.describe())["counters"]["negotiation_messages"]


def check_silence(step, steps=STEPS):
    """Where a rank is away for a second, the plan ends; then there is something to say for a while, and all
    ranks go on for longer."""
    longest = 0
    ends = [steps // 3 + attempt * steps for attempt in range(ATTEMPTS)]
    for first, end in zip([0, *ends], ends):
        silent = 0
        before = messages()
        for number in range(first, end):
            step(number)
            now = messages()
            silent = silent + 1 if now == before else 0
            before, longest = now, max(longest, silent)
        shortest = int(hvd.allreduce(np.asarray(longest), op=hvd.Min, name="longest silence"))
        if shortest >= SILENT:
            return
    raise AssertionError(f"{longest} steps without a message on this rank, {shortest} on another")
