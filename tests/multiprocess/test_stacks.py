"""Stacks of a running process, as a front end of Python prepares them."""

import json
import threading

import rueda.numpy as hvd
from rueda import _core


def _threads():
    return json.loads(_core.stacks())


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
        found = _threads()
    finally:
        leave.set()
        thread.join()
        hvd.shutdown()
    assert found["python_had_lock"]
    (shown,) = [one for one in found["threads"] if one["tid"] == thread.native_id]
    functions = [frame["function"] for frame in shown["python"]]
    assert "wait_for_the_test" in functions
    assert shown["native"] and "native_missing" not in shown


def test_the_answering_thread_is_left_out_and_the_engine_is_shown():
    hvd.init()
    try:
        found = _threads()
    finally:
        hvd.shutdown()
    files = {frame["file"].rsplit("/", 2)[-1] for one in found["threads"] for frame in one["python"]}
    assert "test_stacks.py" in files and "stacks.py" not in files
    (engine,) = [one for one in found["threads"] if one["name"] == "rueda-engine"]
    assert engine["native"]
