"""The separate distribution that owns the import name horovod."""

import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import horovod
import horovod.common.basics
import horovod.common.exceptions as exceptions
import horovod.common.process_sets
import horovod.common.util as util
import horovod.runner
import horovod.runner.launch as launch
import horovod.runner.util.threads as threads
import horovod.torch
import rueda.basics
import rueda.errors
import rueda.torch


def test_alias_and_rueda_share_their_objects():
    assert horovod.__version__ == "0.28.1"
    for name in rueda.torch.__all__:
        assert getattr(horovod.torch, name) is getattr(rueda.torch, name)
    assert horovod.torch.mpi_ops.allreduce is rueda.torch.allreduce
    assert horovod.torch.compression.Compression is rueda.torch.Compression
    assert horovod.common.process_sets.ProcessSet is rueda.torch.ProcessSet
    assert horovod.common.basics.HorovodBasics is rueda.basics.HorovodBasics
    with pytest.raises(AttributeError):
        horovod.torch.no_such_name  # noqa: B018 (the access is the test)


def test_exceptions_keep_their_classes_and_attributes():
    assert exceptions.HorovodInternalError is rueda.torch.HorovodInternalError
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert exceptions.HostsUpdatedInterrupt(True).skip_sync is True
    mismatch = exceptions.HorovodVersionMismatchError("torch", "2.0", "1.0")
    assert isinstance(mismatch, ImportError)
    assert (mismatch.name, mismatch.version, mismatch.installed_version) == ("torch", "2.0", "1.0")
    text = exceptions.get_version_mismatch_message("torch", "2.0", "1.0")
    assert all(part in text for part in ("torch", "2.0", "1.0"))


def test_jax_is_asked_whether_it_sees_a_gpu(monkeypatch):
    jax = pytest.importorskip("jax")

    def of_platform(platform):
        if platform != "gpu":
            raise AssertionError(platform)
        return [object()]

    def of_no_platform(_platform):
        raise RuntimeError(
            "Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present"
        )

    for devices, answer in [(of_platform, True), (of_no_platform, False)]:
        monkeypatch.setattr(jax, "devices", devices)
        assert util.gpu_available("jax") is answer
    monkeypatch.undo()
    assert util.gpu_available("jax") is any(device.platform == "gpu" for device in jax.devices())


def test_keras_sees_the_gpus_of_its_backend(monkeypatch):
    keras = pytest.importorskip("keras")
    import rueda.extensions

    monkeypatch.setitem(rueda.extensions._SEES_GPU, "torch", lambda _torch: True)
    for backend, answer in [("torch", True), ("numpy", False)]:
        monkeypatch.setattr(keras.config, "backend", lambda name=backend: name)
        assert util.gpu_available("keras") is answer


def test_extension_queries(capsys):
    assert util.extension_available("torch") is True
    assert util.extension_available("no_such_framework", verbose=True) is False
    assert "no_such_framework" in capsys.readouterr().out
    assert util.gpu_available("torch") in (True, False) and util.gpu_available("tensorflow") is False
    assert util.gloo_built() is True and util.mpi_built() is False and util.nccl_built(verbose=True) == 0
    assert util.ddl_built() is False and util.ccl_built() is False
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__)
    with pytest.raises(ImportError, match="no_such_framework"):
        util.check_extension("horovod.no_such_framework", "X", __file__)
    util.check_installed_version("torch", "2.13.0")


def test_env_restores_the_environment(monkeypatch):
    monkeypatch.setenv("ALIAS_A", "before")
    with util.env(ALIAS_A="1", ALIAS_B=2, ALIAS_C=None):
        assert os.environ["ALIAS_A"] == "1" and os.environ["ALIAS_B"] == "2" and "ALIAS_C" not in os.environ
    assert os.environ["ALIAS_A"] == "before" and "ALIAS_B" not in os.environ


def test_small_helpers():
    assert [n for n in range(9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]]
    assert util.is_iterable([]) and not util.is_iterable(3)
    assert util.get_average_backwards_compatibility_fun(None)(None, None) == 0


def test_versions_are_compared_as_versions():
    assert util.is_version_greater_equal_than("2.10.0", "2.9.0")
    assert not util.is_version_greater_equal_than("2.8.9", "2.9.0")
    for ver, target in (("2.9.0", "2.9"), (2.9, "2.9.0")):
        with pytest.raises(ValueError):
            util.is_version_greater_equal_than(ver, target)


def test_run_has_the_signature_scripts_rely_on():
    assert horovod.run is horovod.runner.run
    parameters = inspect.signature(horovod.run).parameters
    names = " ".join(parameters)
    assert names == (
        "func args kwargs num_proc min_num_proc max_num_proc slots reset_limit cooldown_range hosts hostfile "
        "host_discovery_script start_timeout ssh_port ssh_identity_file disable_cache output_filename "
        "verbose use_gloo use_mpi mpi_args network_interface network_interfaces executable np min_np max_np"
    )
    assert parameters["num_proc"].default == 1 and parameters["args"].default == ()


def test_horovodrun_becomes_rueda_run(monkeypatch, tmp_path):
    executed = []
    command = tmp_path / "rueda"
    command.touch(mode=0o755)
    monkeypatch.setenv("RUEDA_BIN", str(command))
    monkeypatch.setattr(os, "execv", lambda path, command: executed.append((path, command)))
    launch.main(["-np", "2", "python", "train.py"])
    expected = [str(command), "run", "--horovod-output", "-np", "2", "python", "train.py"]
    assert executed == [(str(command), expected)]
    assert launch.run_commandline is launch.main


def test_horovodrun_without_the_command_is_one_sentence(monkeypatch):
    monkeypatch.setenv("RUEDA_BIN", "/nowhere/rueda")
    with pytest.raises(
        SystemExit,
        match=r"^horovodrun: There is no rueda command at /nowhere/rueda, which RUEDA_BIN names\.$",
    ):
        launch.main(["-np", "2", "true"])


def test_thread_helpers():
    seen = []
    threads.in_thread(seen.append, (1,)).join(10)
    event, stop = threading.Event(), threading.Event()
    waiting = threads.on_event(event, seen.append, (2,), stop=stop, check_stop_interval_s=0.01)
    event.set()
    waiting.join(10)
    stopped = threads.on_event(threading.Event(), seen.append, (3,), stop=stop, check_stop_interval_s=0.01)
    stop.set()
    stopped.join(10)
    assert seen == [1, 2] and not stopped.is_alive()
    assert threads.execute_function_multithreaded(lambda x: 10 // x, [[1], [0], [5]]) == {0: 10, 2: 2}


def test_thread_helpers_refuse_what_horovod_refuses():
    event = threading.Event()
    for call in (
        lambda: threads.in_thread(print, ["a", "b"]),
        lambda: threads.in_thread(print, "ab"),
        lambda: threads.on_event(event, print, 1),
    ):
        with pytest.raises(ValueError, match=r"args must be a tuple, not <class '\w+'>, for a"):
            call()
    with pytest.raises(ValueError, match="needs an event to wait for, not None"):
        threads.on_event(None, print)


def test_helpers_import_no_framework_but_those_in_use():
    script = """
import sys
sys.modules["torch"] = None  # importing it fails
in_use = sys.argv[1:]
for name in in_use:
    __import__(name)
import horovod.common.util as util
assert util.get_average_backwards_compatibility_fun(None)(None, None) == 0
assert not in_use or util.gloo_built() is True
assert "rueda.torch" not in sys.modules and ("tensorflow" in sys.modules) == ("tensorflow" in in_use)
"""
    folders = [Path(rueda.__file__).parents[1], Path(horovod.__file__).parents[1]]
    for in_use in ([], ["tensorflow"]):
        if in_use:
            pytest.importorskip(in_use[0])
        done = subprocess.run(
            [sys.executable, "-c", script, *in_use],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_wrapped_optimizers_are_recognised_as_horovods():
    from horovod.torch.optimizer import _DistributedAdasumOptimizer, _DistributedOptimizer

    hvd = horovod.torch
    hvd.init()
    try:
        parameter = torch.nn.Parameter(torch.zeros(2))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1))
    finally:
        hvd.shutdown()
    assert str(optimizer.__class__) == "<class 'horovod.torch.optimizer.SGD'>"  # Lightning looks for the word
    assert isinstance(optimizer, _DistributedOptimizer)
    assert not isinstance(optimizer, _DistributedAdasumOptimizer)


def test_elastic_parts_are_those_of_rueda():
    import horovod.common.elastic
    import horovod.torch.elastic.sampler
    import horovod.torch.elastic.state
    import rueda.elastic.state

    assert horovod.common.elastic.State is rueda.elastic.state.State
    assert horovod.common.elastic.ObjectState is rueda.torch.elastic.ObjectState
    assert horovod.torch.elastic.TorchState is rueda.torch.elastic.state.TorchState
    assert horovod.torch.elastic.sampler.ElasticSampler is rueda.torch.elastic.ElasticSampler
    registry = horovod.torch.elastic.state.get_handler_registry()
    assert registry[0] == (torch.nn.Module, horovod.torch.elastic.state.ModelStateHandler)
