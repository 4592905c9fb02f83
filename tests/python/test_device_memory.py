"""Memory, events and streams of a device, as rueda.device gives them to front ends: on the tests' libcuda."""

import subprocess
import sys

import fake_gpu
import harness
import pytest

PREPARE = """
import ctypes
import fake_gpu
import numpy as np
import pytest
from rueda import _core, device
from rueda.errors import HorovodInternalError

driver = fake_gpu.Driver()


class Event:
    def __init__(self, index):
        self.index, made = index, ctypes.c_void_p()
        device.check(_core.fast.rueda_make_event(index, ctypes.byref(made)))
        self.handle = made

    def record(self, stream):
        device.check(_core.fast.rueda_record_event(self.index, self.handle, ctypes.c_void_p(stream)))

    def __del__(self):
        _core.fast.rueda_release_event(self.index, getattr(self, "handle", None))
"""


def run(body, **settings):
    variables = {**harness.rank_environment(0, 1, harness.ROOT, "tcp"), **fake_gpu.environment(**settings)}
    command = [sys.executable, "-c", PREPARE + body]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@fake_gpu.needed
def test_streams_follow_events_and_one_another():
    run("""
first, second = driver.stream(), driver.stream()
source, middle = fake_gpu.array(driver, [1, 2, 3], first), fake_gpu.array(driver, [0, 0, 0], second)
target = fake_gpu.array(driver, [9, 9, 9], second)
device.Stream(0, second).follow(first)
driver.copy(middle.address, source.address, 12, second)
device.copy(device.Stream(0, second), target.address, middle.address, 12)
assert fake_gpu.read(driver, target).tolist() == [1, 2, 3]

event = Event(0)
event.record(first)
event.record(second)
made = driver.calls("cuEventCreate")
del event
Event(0)
assert driver.calls("cuEventCreate") == made, "events are used again"
assert device.device_of(source.address) == 0 and device.device_of(source.address + 8) == 0
assert device.device_of(np.zeros(3).ctypes.data) == -1
""")


@fake_gpu.needed
def test_memory_is_freed_with_its_last_reference():
    run("""
bytes_of_devices = driver.device_bytes
before = bytes_of_devices()
memory = device.Memory(1, 5000)
assert device.device_of(memory.address) == 1 and bytes_of_devices() >= before + 5000
del memory
assert bytes_of_devices() == before
device.Memory(0, 0)
with pytest.raises(MemoryError, match="allocate .* CUDA_ERROR_OUT_OF_MEMORY"):
    device.Memory(0, 1 << 60)
""")


@fake_gpu.needed
def test_a_device_that_does_not_exist_is_named():
    run("""
with pytest.raises(HorovodInternalError, match="7"):
    Event(7)
""")


@fake_gpu.needed
def test_a_stream_of_another_context_or_device_is_refused():
    run("""
foreign = fake_gpu.Driver(1).stream()
with pytest.raises(ValueError, match="not one of device 0 in its primary CUDA context"):
    Event(0).record(foreign)
context = ctypes.c_void_p()
driver("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
made = ctypes.c_void_p()
assert driver._library.cuStreamCreateWithPriority(ctypes.byref(made), 1, 0) == 0
with pytest.raises(ValueError, match="not one of device 0 in its primary CUDA context"):
    Event(0).record(made.value)
""")


@fake_gpu.needed
def test_a_stream_that_is_being_captured_is_refused():
    run("""
stream = driver.stream()
driver("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 0)
with pytest.raises(ValueError, match="captured into a CUDA graph"):
    Event(0).record(stream)
""")


def test_without_a_driver_nothing_is_on_a_device():
    from rueda import _core, device
    from rueda.errors import HorovodInternalError

    assert _core.fast.rueda_make_event(0, None) == _core.INVALID_ARGUMENT, "an event needs a place"
    try:
        device.Memory(0, 1)
    except HorovodInternalError as error:
        assert "libcuda" in str(error) or "CUDA" in str(error)
        assert device.device_of(1234) == -1
    else:
        pytest.skip("this machine has a CUDA driver")


def test_staging_is_said_once_per_epoch(monkeypatch):
    from rueda import _core, device

    said = []
    monkeypatch.setattr(device.warnings, "warn", lambda text, *_, **__: said.append(text))
    monkeypatch.setattr(device, "current", lambda: 5)
    monkeypatch.setattr(_core, "local_rank", lambda: 0)
    monkeypatch.setattr(device, "_warned_in", -1)
    device.warn_staged("Arrays of the tests")
    device.warn_staged("Arrays of the tests")
    assert len(said) == 1 and said[0].startswith("Arrays of the tests are copied through host memory: ")
    monkeypatch.setattr(device, "current", lambda: 6)
    device.warn_staged("Arrays of the tests")
    assert len(said) == 2
