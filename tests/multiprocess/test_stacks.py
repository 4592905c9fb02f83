"""Stacks of a running process, as a front end of Python prepares them."""

import json
import threading
import time

import rueda.numpy as hvd
from rueda import _core


def _look(is_meant):
    """What is shown, and the one thread that is meant, with its native stack. A thread that gets no core for
    a second is shown without, and one that has not run yet has no name.
    """
    deadline = time.monotonic() + 90
    while True:
        found = json.loads(_core.stacks())
        shown = [one for one in found["threads"] if is_meant(one)]
        if (shown and shown[0]["native"]) or time.monotonic() > deadline:
            assert len(shown) == 1, found
            return found, shown[0]


def test_python_and_native_frames_of_a_thread_are_shown_together():
    hvd.init()
    leave = threading.Event()
    is_there = threading.Event()

    def wait_for_the_test():
        is_there.set()
        leave.wait()

    thread = threading.Thread(target=wait_for_the_test)
    thread.start()
    is_there.wait(10)
    try:
        found, shown = _look(lambda one: one["tid"] == thread.native_id)
    finally:
        leave.set()
        thread.join()
        hvd.shutdown()
    assert found["python_had_lock"]
    functions = [frame["function"] for frame in shown["python"]]
    assert "wait_for_the_test" in functions
    assert shown["native"] and "native_missing" not in shown


def test_the_answering_thread_is_left_out_and_the_engine_is_shown():
    hvd.init()
    try:
        found, engine = _look(lambda one: one["name"] == "rueda-engine")
    finally:
        hvd.shutdown()
    files = {frame["file"].rsplit("/", 2)[-1] for one in found["threads"] for frame in one["python"]}
    assert "test_stacks.py" in files and "stacks.py" not in files
    assert engine["native"]
