"""Names of Horovod beside its front ends: each is there, or says in one sentence what to use instead."""

import functools
import importlib.util
import inspect
import platform
from pathlib import Path

import harness
import nursery
import pytest

from horovod import _absent
from horovod.runner.common.util import (
    codec,
    env,
    host_hash,
    hosts,
    secret,
    settings,
    timeout,
)
from horovod.runner.elastic import discovery
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util import network, streams

# What the contract and the public documentation name. A module, and the names that must be in it.
THERE = {
    "horovod": "run __version__",
    "horovod.data": "BaseDataLoader AsyncDataLoaderMixin",
    "horovod.data.data_loader_base": "BaseDataLoader AsyncDataLoaderMixin",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt HorovodVersionMismatchError",
    "horovod.common.elastic": "State ObjectState run_fn notification_manager",
    "horovod.common.process_sets": "ProcessSet global_process_set add_process_set remove_process_set",
    "horovod.common.util": (
        "extension_available gpu_available mpi_built gloo_built nccl_built ddl_built ccl_built env "
        "split_list num_rank_is_power_2 is_iterable is_version_greater_equal_than check_extension "
        "check_installed_version get_average_backwards_compatibility_fun"
    ),
    "horovod.runner": "run",
    "horovod.runner.launch": "parse_args run_commandline run_controller is_gloo_used",
    "horovod.runner.elastic.discovery": "HostDiscovery HostDiscoveryScript FixedHosts HostUpdateResult",
    "horovod.runner.elastic.constants": "RESET_LIMIT_EXCEEDED_MESSAGE",
    "horovod.runner.elastic.driver": "ELASTIC_TIMEOUT_SECS DISCOVER_HOSTS_FREQUENCY_SECS",
    "horovod.runner.elastic.settings": "ElasticSettings",
    "horovod.runner.elastic.worker": "HostUpdateResult WorkerNotificationManager",
    "horovod.runner.gloo_run": (
        "gloo_run gloo_run_elastic launch_gloo create_slot_env_vars create_run_env_vars"
    ),
    "horovod.runner.http.http_server": "RendezvousServer KVStoreServer",
    "horovod.runner.http.http_client": "read_data_from_kvstore put_data_into_kvstore",
    "horovod.runner.common.util.hosts": (
        "HostInfo SlotInfo parse_hosts parse_hosts_and_slots parse_host_files get_host_assignments"
    ),
    "horovod.runner.common.util.env": "get_env_rank_and_size is_exportable",
    "horovod.runner.common.util.config_parser": "HOROVOD_FUSION_THRESHOLD set_env_from_args",
    "horovod.runner.common.util.settings": "BaseSettings Settings",
    "horovod.runner.common.util.secret": "make_secret_key compute_digest check_digest HOROVOD_SECRET_KEY",
    "horovod.runner.common.util.codec": "dumps_base64 loads_base64",
    "horovod.runner.common.util.timeout": "Timeout TimeoutException",
    "horovod.runner.common.util.host_hash": "host_hash",
    "horovod.runner.common.util.safe_shell_exec": "execute GRACEFUL_TERMINATION_TIME_S",
    "horovod.runner.util.threads": "in_thread on_event execute_function_multithreaded",
    "horovod.runner.util.streams": "Pipe",
    "horovod.runner.util.network": "get_local_host_addresses resolve_host_address get_driver_ip",
    "horovod.torch": "init DistributedOptimizer elastic",
    "horovod.torch.elastic": "run TorchState ElasticSampler State ObjectState",
    "horovod.torch.elastic.state": (
        "TorchState StateHandler ModelStateHandler OptimizerStateHandler SamplerStateHandler "
        "get_handler_registry set_handler_registry"
    ),
    "horovod.torch.elastic.sampler": "ElasticSampler",
    **{
        f"horovod.torch.{name}": ""
        for name in ("mpi_ops", "functions", "compression", "optimizer", "sync_batch_norm")
    },
}
TENSORFLOW = {
    "horovod.tensorflow": "init DistributedGradientTape elastic",
    "horovod.tensorflow.elastic": "run TensorFlowState TensorFlowKerasState",
    "horovod.tensorflow.keras.elastic": (
        "run KerasState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback"
    ),
    "horovod.tensorflow.data.compute_service": (
        "TfDataServiceConfig tf_data_service send_to_data_service compute_worker_fn"
    ),
    "horovod.tensorflow.data.compute_worker": "main",
    **{
        f"horovod.tensorflow.{name}": ""
        for name in (
            "mpi_ops",
            "functions",
            "compression",
            "util",
            "gradient_aggregation",
            "gradient_aggregation_eager",
            "sync_batch_norm",
            "keras",
            "keras.callbacks",
        )
    },
}
KERAS = {
    "horovod.keras": "DistributedOptimizer",
    "horovod.keras.callbacks": "",
    "horovod.keras.elastic": (
        "run KerasState CommitStateCallback UpdateBatchStateCallback UpdateEpochStateCallback"
    ),
}
SPARK = {
    "horovod.spark": "run run_elastic",
    "horovod.spark.runner": "run run_elastic host_hash",
    "horovod.spark.host_hash": "host_hash",
    "horovod.spark.common.util": "host_hash",
    "horovod.spark.task": "get_available_devices",
    "horovod.spark.common.backend": "Backend SparkBackend LocalBackend",
    "horovod.spark.common.estimator": "HorovodEstimator HorovodModel",
    "horovod.spark.common.store": "Store FilesystemStore LocalStore HDFSStore DBFSLocalStore",
    "horovod.spark.torch": "TorchEstimator TorchModel",
    "horovod.spark.torch.estimator": "TorchEstimator TorchModel",
    "horovod.spark.keras": "KerasEstimator KerasModel",
    "horovod.spark.keras.estimator": "KerasEstimator KerasModel",
}
SPARK_TENSORFLOW = {"horovod.spark.tensorflow.compute_worker": "main"}
RAY = {
    "horovod.ray": "RayExecutor BaseHorovodWorker ElasticRayExecutor ray_logger",
    "horovod.ray.runner": "RayExecutor MiniSettings",
    "horovod.ray.elastic": "ElasticRayExecutor RayHostDiscovery",
    "horovod.ray.worker": "BaseHorovodWorker",
    "horovod.ray.ray_logger": "log configure",
}
REFUSED = [
    "horovod._keras",
    "horovod._keras.callbacks",
    "horovod.mxnet",
    "horovod.runner.elastic.registration",
    "horovod.runner.elastic.rendezvous",
    "horovod.runner.common.service.driver_service",
    "horovod.runner.common.util.network",
    "horovod.runner.mpi_run",
    "horovod.runner.js_run",
    "horovod.runner.run_task",
    "horovod.runner.task_fn",
    "horovod.runner.util.lsf",
    "horovod.runner.util.remote",
    "horovod.runner.util.cache",
    "horovod.spark.lightning",
    "horovod.spark.lightning.estimator",
    "horovod.spark.common.params",
    "horovod.spark.driver.rsh",
    "horovod.spark.gloo_run",
    "horovod.spark.mpi_run",
    "horovod.ray.elastic_v2",
    "horovod.ray.strategy",
    "horovod.ray.adapter",
    "horovod.ray.utils",
    "horovod.ray.driver_service",
]
USED = {  # that are there, and refuse when they are used
    "horovod.runner.elastic.driver": "ElasticDriver",
    "horovod.runner.elastic.discovery": "HostManager DiscoveredHosts HostState",
    "horovod.runner.http.http_server": "KVStoreServer",
    "horovod.runner.http.http_client": "read_data_from_kvstore put_data_into_kvstore",
    "horovod.runner.common.util.config_parser": "set_env_from_args set_args_from_config",
    "horovod.runner.gloo_run": "launch_gloo_elastic",
}


def check_table(table):
    for module, names in table.items():
        loaded = importlib.import_module(module)
        missing = [name for name in names.split() if not hasattr(loaded, name)]
        assert not missing, f"{module}: {missing}"


def test_all_names_are_there():
    check_table(THERE)


@pytest.mark.parametrize(
    ("framework", "table"),
    [("tensorflow", TENSORFLOW), ("keras", KERAS), ("pyspark", SPARK), ("ray", RAY)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_of_frameworks_are_there(framework, table):
    if framework == "tensorflow":
        check_table_in_tensorflow(table)
    else:
        pytest.importorskip(framework)
        check_table(table)


def check_table_in_tensorflow(table):
    """In a process of its own: Keras chooses its backend once, and in this one it may run on JAX."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("there is no tensorflow")
    source = f"import importlib\n{inspect.getsource(check_table)}\ncheck_table({table!r})\n"
    start = functools.partial(nursery.fork, imports=nursery.TENSORFLOW)
    harness.assert_all_succeed(harness.launch(1, source, {"KERAS_BACKEND": "tensorflow"}, start=start))


def test_names_of_spark_with_tensorflow_are_there():
    pytest.importorskip("pyspark")
    pytest.importorskip("tensorflow")
    check_table(SPARK_TENSORFLOW)


def test_modules_that_are_not_there_say_what_to_use():
    for name in REFUSED:
        with pytest.raises(ModuleNotFoundError) as caught:
            importlib.import_module(name)
        text = str(caught.value)
        assert text.startswith(("rueda has no horovod.", "This version of rueda")), f"{name}: {text}"
        assert text.count("\n") == 0 and text.endswith("."), text
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'horovod\.no_such'"):
        importlib.import_module("horovod.no_such")


def test_every_refused_module_is_absent_and_no_name_is_in_two_tables():
    for name in _absent._MODULES:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
    assert not set(REFUSED) & {*THERE, *TENSORFLOW, *KERAS, *SPARK, *RAY}


def test_functions_that_are_not_there_say_so_when_they_are_used():
    for module, names in USED.items():
        for name in names.split():
            with pytest.raises(NotImplementedError, match=r"^(rueda has no horovod\.|This version of rueda)"):
                getattr(importlib.import_module(module), name)("any", key=1)


# ---- those that are there work ----


def test_hosts_are_parsed_and_ranks_assigned(tmp_path: Path):
    assert hosts.parse_hosts_and_slots("a:2,[::1]:1") == (["a", "[::1]"], {"a": 2, "[::1]": 1})
    (tmp_path / "hosts").write_text("# ours\na slots=2\n\nb slots = 1\nc\n")
    assert hosts.parse_host_files(str(tmp_path / "hosts")) == "a:2,b:1,c:1"
    with pytest.raises(
        ValueError, match="Invalid host input, please make sure it has format as : worker-0:2"
    ):
        hosts.parse_hosts("a:x")
    with pytest.raises(
        ValueError, match=r"Requested more processes \(4\) than there are available slots \(3\)"
    ):
        hosts.get_host_assignments(hosts.parse_hosts("a:2,b:1"), 4)
    slots = hosts.get_host_assignments(hosts.parse_hosts("a:2,b:2"), 1, 3)
    found = [
        (s.hostname, s.rank, s.local_rank, s.cross_rank, s.size, s.local_size, s.cross_size) for s in slots
    ]
    assert found == [("a", 0, 0, 0, 3, 2, 2), ("a", 1, 1, 0, 3, 2, 1), ("b", 2, 0, 1, 3, 1, 2)]
    assert slots[2].to_response_string() == "2,3,0,1,1,2"
    assert create_slot_env_vars(slots[1])["HOROVOD_LOCAL_RANK"] == "1"
    shared = create_run_env_vars("10.0.0.1", ["eth0", "eth1"], 80)
    assert shared["HOROVOD_GLOO_IFACE"] == "eth0" and shared["NCCL_SOCKET_IFNAME"] == "eth0,eth1"


def test_rank_and_size_come_from_the_first_launcher(monkeypatch):
    for name in [name for pair in env._PAIRS for name in pair]:
        monkeypatch.delenv(name, raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "1")
    with pytest.raises(RuntimeError, match="PMI_RANK is set but PMI_SIZE is not"):
        env.get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "3")
    monkeypatch.setenv("HOROVOD_RANK", "2")
    monkeypatch.setenv("HOROVOD_SIZE", "5")
    assert env.get_env_rank_and_size() == (2, 5)
    names = ["PATH", "OLDPWD", "BASH_FUNC_x%%", "X_CUDA_VISIBLE_DEVICES"]
    assert [name for name in names if env.is_exportable(name)] == ["PATH"]


def test_small_parts():
    key = secret.make_secret_key()
    assert secret.check_digest(key, b"x", secret.compute_digest(key, b"x")) and len(key) == 32
    assert not secret.check_digest(key, b"y", secret.compute_digest(key, b"x"))
    assert codec.loads_base64(codec.dumps_base64(lambda: 3))() == 3
    assert host_hash.host_hash() == host_hash.host_hash() != host_hash.host_hash("salt")
    waiting = timeout.Timeout(0, "{activity} took longer than {timeout} s")
    with pytest.raises(timeout.TimeoutException, match="Start took longer than 0 s"):
        waiting.check_time_out_for("Start")
    assert settings.Settings(num_proc=2, hosts="a:2").verbose == 0
    pipe = streams.Pipe()
    pipe.write("abc")
    pipe.close()
    assert [pipe.read(2), pipe.read(), pipe.read(), pipe.read()] == ["ab", "c", None, None]
    assert "127.0.0.1" in network.get_local_host_addresses() and "lo" in network.get_local_intfs()
    assert network.get_driver_ip(["lo"]) == "127.0.0.1"


def test_spark_tasks_of_one_host_are_told_apart_by_their_yarn_container(monkeypatch):
    pytest.importorskip("pyspark")
    from horovod.spark import host_hash as as_in_older_releases
    from horovod.spark.common import util
    from horovod.spark.runner import host_hash as spark_host_hash

    assert as_in_older_releases.host_hash is util.host_hash is spark_host_hash
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    plain = spark_host_hash()
    assert plain == spark_host_hash("") == spark_host_hash(0) == host_hash.host_hash()
    assert plain.startswith(platform.node().partition(".")[0] + "-")
    assert spark_host_hash(7) == spark_host_hash("7") == host_hash.host_hash("7") != plain
    found = set()
    for container in ("container_1_01", "container_1_02"):
        monkeypatch.setenv("CONTAINER_ID", container)
        assert spark_host_hash() == spark_host_hash()
        found |= {spark_host_hash(), spark_host_hash(salt="s")}
    assert len({plain, *found}) == 5
    with pytest.raises(
        NotImplementedError, match=r"^rueda has no horovod\.spark\.common\.util\.to_list: use"
    ):
        util.to_list([1], 1)
    assert not hasattr(util, "no_such_name")


def test_hosts_of_an_elastic_job_come_from_a_script_or_a_program(tmp_path: Path):
    script = tmp_path / "hosts.sh"
    script.write_text("printf 'a:2\\n\\nb\\n'\n")
    script.chmod(0o755)
    found = discovery.HostDiscoveryScript(str(script), 4).find_available_hosts_and_slots()
    assert found == {"a": 2, "b": 4}
    with pytest.raises(ValueError, match="printed 'b' without slots: print b:SLOTS"):
        discovery.HostDiscoveryScript(str(script)).find_available_hosts_and_slots()
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(
        RuntimeError, match=r"^Failed to execute discovery script: .*hosts\.sh\. Exit code: 3$"
    ):
        discovery.HostDiscoveryScript(str(script)).find_available_hosts_and_slots()
    fixed = discovery.FixedHosts({"a": 2})
    fixed.set({"b": 1})
    assert fixed.find_available_hosts_and_slots() == {"b": 1}
    assert discovery.HostUpdateResult.mixed == 3


def test_a_rendezvous_server_reserves_a_port_of_its_own():
    first, second = RendezvousServer(), RendezvousServer(verbose=1)
    try:
        assert first.start() == first.start() != second.start()
        assert first.init([]) == first.start()
    finally:
        first.stop()
        second.stop()
