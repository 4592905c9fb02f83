"""The parts of rueda.ray that need no Ray."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch_support import RUEDA, assert_all_gone

import rueda
from rueda.placement import Hello, place
from rueda.ray import ElasticRayExecutor, RayExecutor, bundles, entry, private, reports, wishes
from rueda.ray.bundles import Shape, make_shape


def shape(num_workers=None, num_hosts=None, per_host=None, cpus=1, gpus=0, strategy="PACK"):
    return make_shape(num_workers, num_hosts, per_host, cpus, gpus, strategy)


def test_one_bundle_per_rank_or_per_host():
    assert bundles.bundles_of(shape(3, gpus=1)) == [{"CPU": 1.0, "GPU": 1.0}] * 3
    by_host = shape(num_hosts=2, per_host=4, cpus=0.5)
    assert bundles.bundles_of(by_host) == [{"CPU": 2.0}] * 2
    assert (by_host.num_workers, by_host.strategy) == (8, "STRICT_SPREAD")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "either"),
        ({"num_workers": 2, "num_hosts": 1}, "either"),
        ({"num_workers": 0}, "num_workers must be a whole number of at least 1, not 0"),
        ({"num_workers": True}, "num_workers"),
        ({"num_hosts": 1, "per_host": 1.5}, "num_workers_per_host"),
        ({"num_workers": 1, "strategy": "pack"}, "PACK, SPREAD"),
        ({"num_workers": 1, "cpus": -1}, "fewer than 0"),
        ({"num_workers": 1, "gpus": 0.5}, "do not share GPUs"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments, word):
    with pytest.raises(ValueError, match=word):
        shape(**arguments)


def test_capacity_depends_on_how_ranks_may_lie():
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.0}, {"memory": 1.0}]
    assert bundles.capacity(nodes, shape(9)) == 7
    assert bundles.capacity(nodes, shape(9, cpus=2)) == 3
    assert bundles.capacity(nodes, shape(9, gpus=1)) == 1
    assert bundles.capacity(nodes, shape(9, strategy="STRICT_PACK")) == 4
    assert bundles.capacity(nodes, shape(9, strategy="STRICT_SPREAD")) == 2
    assert bundles.capacity(nodes, shape(num_hosts=3, per_host=3)) == 6
    assert bundles.capacity([{"CPU": 0.3}], shape(9, cpus=0.1)) == 3  # 0.3 / 0.1 is less than 3


def test_a_given_placement_group_is_used_from_its_second_bundle_on():
    specs = [{"CPU": 2}, {"CPU": 1}, {"CPU": 2}]
    assert bundles.choose_bundles(specs, shape(2)) == [1, 2]
    assert bundles.choose_bundles(specs, shape(3)) == [1, 2, 2]
    assert bundles.choose_bundles(specs, shape(5)) == [0, 0, 1, 2, 2]
    with pytest.raises(ValueError, match=r"6 ranks of 1 CPU, .* room for 5"):
        bundles.choose_bundles(specs, shape(6))


def test_ranks_of_one_node_are_adjacent():
    assert bundles.in_rank_order([0, 1, 2, 3], {0: "b", 1: "a", 2: "b", 3: "a"}) == [0, 2, 1, 3]
    order = bundles.in_rank_order([0, 1, 2], {0: "x", 1: "y", 2: "x"})
    hellos = [Hello(i, "h", "xyx"[bundle], i, (1, 2, 3)) for i, bundle in enumerate(order)]
    assert [place(hellos)[i].rank for i in range(3)] == [0, 1, 2]


def test_local_rank_i_sees_its_gpu_as_device_i():
    assert bundles.visible_gpus([("3",), ("0",)]) == "3,0"
    assert bundles.visible_gpus([("0", "1"), ("2", "3")]) == "0,1,2,3"
    assert bundles.visible_gpus([(), ()]) == ""


def test_sentences_name_both_numbers():
    assert Shape(8).sentence() == "8 ranks of 1 CPU"
    assert shape(num_hosts=2, per_host=4, gpus=1).sentence() == "2 nodes with 4 ranks of 1 CPU and 1 GPU each"
    assert "asked for 8 ranks of 1 CPU" in bundles.too_few(Shape(8), 4) and "room for 4" in bundles.too_few(
        Shape(8), 4
    )
    none = bundles.too_few(shape(num_workers=1, gpus=1), 0)
    assert "1 rank of 1 CPU and 1 GPU, but no node of this Ray cluster has room for one" in none
    late = bundles.too_late(Shape(8), 8, 3, 100)
    assert "8 ranks" in late and "100 s" in late and "for 3 besides" in late


def test_a_node_without_this_version_is_answered_in_one_sentence(monkeypatch):
    own = (sys.version_info[0], sys.version_info[1])
    assert entry.problem(entry.Requirements(rueda.__version__, own), "h") is None
    assert "has rueda" in entry.problem(entry.Requirements("9.9", own), "h")
    other = entry.problem(entry.Requirements(rueda.__version__, (2, 7)), "h")
    assert "The node h runs Python" in other and "2.7" in other
    monkeypatch.setitem(sys.modules, "rueda", None)
    assert "is not installed for the Python on h" in entry.problem(entry.Requirements("1", own), "h")


def test_elastic_arguments_are_refused_as_horovod_and_rueda_say():
    settings = RayExecutor.create_settings(timeout_s=5)
    with pytest.raises(ValueError, match="not both"):
        RayExecutor(settings, num_workers=2, min_workers=1)
    with pytest.raises(ValueError, match="max_workers needs"):
        RayExecutor(settings, max_workers=2)
    elastic = RayExecutor(settings, min_workers=1)
    for call in (elastic.execute_single, elastic.run_remote):
        with pytest.raises(NotImplementedError, match="leave out execute_single and run_remote"):
            call(print)
    with pytest.raises(RuntimeError, match=r"has not been started: call start\(\)"):
        elastic.run(print)
    with pytest.raises(ValueError, match="max_num_proc is 1; it must be a whole number of at least 2"):
        ElasticRayExecutor(ElasticRayExecutor.create_settings(min_num_proc=2, max_num_proc=1))
    with pytest.raises(ValueError, match=r"set settings\.discovery"):
        ElasticRayExecutor(override_discovery=False)
    with pytest.raises(ValueError, match="gpus_per_slot is set"):
        ElasticRayExecutor(gpus_per_slot=1)
    with pytest.raises(ValueError, match="max_workers belongs to elastic jobs; give min_workers"):
        rueda.ray.run(print, num_workers=1, max_workers=2)
    with pytest.raises(ValueError, match="strategy does not go with min_workers"):
        rueda.ray.run(print, min_workers=1, strategy="PACK")
    with pytest.raises(ValueError, match="use_gpu=True"):
        RayExecutor(settings, num_workers=2, gpus_per_worker=1)
    assert RayExecutor(settings, num_hosts=2, num_workers_per_host=3).num_workers == 6


def test_calls_before_the_start_say_what_to_do():
    executor = RayExecutor(num_workers=1)
    for call in (executor.run, executor.execute, executor.execute_single, executor.run_remote):
        with pytest.raises(RuntimeError, match=r"no ranks: it has not been started: call start\(\)"):
            call(print)
    executor.shutdown()


def test_horovods_actor_class_needs_no_arguments(monkeypatch):
    from horovod.ray import BaseHorovodWorker

    for name in ("HOSTNAME", "RANK", "SIZE"):
        monkeypatch.setenv(f"HOROVOD_{name}", "")
    monkeypatch.setenv("TEST_WORD", "")
    worker = BaseHorovodWorker()
    assert worker.execute(lambda kept: kept) is None
    worker.update_env_vars({"TEST_WORD": 5})
    found = worker.env_vars()
    names = ("HOROVOD_RANK", "HOROVOD_SIZE", "TEST_WORD", "HOROVOD_HOSTNAME")
    assert [found[name] for name in names] == ["0", "1", "5", worker.hostname()]
    worker.start_executable(dict, [[("a", 1)]], {"b": 2})
    assert worker.execute(dict) == {"a": 1, "b": 2}


def test_only_rank_0_reports(monkeypatch):
    class Queue:
        def __init__(self):
            self.put = self.got = []
            self.put = self.got.append

    found = Queue()
    reports.configure(found)
    try:
        monkeypatch.setenv("RUEDA_RANK", "1")
        reports.log({"a": 1})
        monkeypatch.setenv("RUEDA_RANK", "0")
        reports.log({"a": 2})
        with pytest.raises(TypeError, match="takes a dict"):
            reports.log(3)
    finally:
        reports.configure(None)
    reports.log({"a": 3})
    assert found.got == [{"a": 2}]


GUARDED = """
import os, socket, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from rueda.ray import worker
worker.start_reaper("RUEDA_TEST_GUARD=" + os.environ["RUEDA_TEST_GUARD"])
child = subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo $!"], stdout=subprocess.PIPE)
program = int(child.stdout.readline())
if (fork := os.fork()) == 0:
    os.setsid()
    time.sleep(600)
name = f"{os.environ['XDG_RUNTIME_DIR']}/rueda/{os.getpid()}-0a1b2c3d.sock"
rank = socket.socket(socket.AF_UNIX)
rank.bind(name)
rank.listen()
print(program, fork, flush=True)
sys.stdin.read()
"""


def test_the_reaper_ends_what_a_killed_process_leaves_and_removes_its_socket(tmp_path):
    (tmp_path / "rueda").mkdir()
    python_folder = os.path.dirname(os.path.dirname(rueda.__file__))
    variables = {**os.environ, "RUEDA_TEST_GUARD": os.urandom(8).hex(), "XDG_RUNTIME_DIR": str(tmp_path)}
    variables["RUEDA_BIN"] = RUEDA
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDED, python_folder],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        left = [int(text) for text in process.stdout.readline().split()]
        assert len(left) == 2
        assert len(os.listdir(tmp_path / "rueda")) == 1
    finally:
        process.kill()
        process.communicate(timeout=90)
    assert_all_gone(left)
    deadline = time.monotonic() + 90
    while os.listdir(tmp_path / "rueda"):
        assert time.monotonic() < deadline, "the socket is still there"
        time.sleep(0.05)


def test_versions_of_ray_that_are_too_old_are_refused_in_one_sentence():
    assert private.version_problem("2.51.0") == private.version_problem("3.0.0") == ""
    assert private.version_problem("2.60.0rc1") == ""
    said = private.version_problem("2.9.3")
    assert said.startswith("rueda.ray needs Ray 2.51 or newer, but Ray 2.9.3 is installed"), said


def test_rays_private_names_are_used_in_one_module_and_may_go():
    folder = Path(private.__file__).parent
    users = [
        file.name for file in folder.glob("*.py") if re.search(r"_private\.worker|\.v2\.", file.read_text())
    ]
    assert users == ["private.py"]
    assert private.has_started_cluster(object()) is False


def test_a_ray_without_its_trainer_is_one_sentence(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setitem(sys.modules, "ray.train.v2.api.data_parallel_trainer", None)
    with pytest.raises(
        ImportError, match=rf"^Ray {re.escape(ray.__version__)} has no Ray Train as rueda knows it"
    ):
        private.data_parallel_trainer()
    monkeypatch.setattr(ray, "__version__", "2.40.0")
    with pytest.raises(ImportError, match=r"needs Ray 2\.51 or newer, but Ray 2\.40\.0 is installed"):
        private.data_parallel_trainer()


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"env": {"A": 5}}, TypeError, r"env\['A'\] is 5; names and values of variables are strings"),
        ({"placement_timeout": -1}, ValueError, "placement_timeout is -1; give a number of seconds above 0"),
        ({"start_timeout": "x"}, ValueError, "start_timeout is 'x'; give a number of seconds above 0"),
        ({"num_worker": 2}, TypeError, "run.. has no argument num_worker; did you mean num_workers"),
        ({"min_workers": 0}, ValueError, "min_num_proc is 0; it must be a whole number of at least 1"),
        ({"fn": 5}, TypeError, "fn must be a function, not 5"),
    ],
)
def test_wrong_arguments_are_refused_before_ray_is_asked(changes, error, words):
    running = pytest.importorskip("rueda.ray.running")
    with pytest.raises(error, match=words):
        running.run(**{"fn": len, "num_workers": 2, **changes})


NEEDS = {"CPU": 2.0}
NODES = [
    {"NodeID": "a", "NodeManagerAddress": "10.0.0.1", "Alive": True, "Resources": {"CPU": 8.0}},
    {"NodeID": "b", "NodeManagerAddress": "10.0.0.2", "Alive": True, "Resources": {"CPU": 4.0}},
    {"NodeID": "c", "NodeManagerAddress": "10.0.0.3", "Alive": False, "Resources": {"CPU": 4.0}},
]


def asked(due):
    return [(number, node.id, slots) for number, node, slots in due]


def test_nodes_are_asked_for_as_many_slots_as_fit_and_are_wanted():
    free = {"a": {"CPU": 5.0}, "b": {"CPU": 4.0}}
    nodes = wishes.rooms(NODES, free, NEEDS, None)
    assert [(node.id, node.room) for node in nodes] == [("a", 2), ("b", 2)]
    assert [node.room for node in wishes.rooms(NODES, None, NEEDS, {"10.0.0.1": 3})] == [3, 0]
    job = wishes.Wishes(most=3)
    assert asked(job.next(nodes, 0.0)) == [(1, "a", 2), (2, "b", 1)]
    assert job.next(nodes, 0.0) == []
    job.granted(1)
    job.ended(2, 10.0)
    assert asked(job.next(nodes, 10.5)) == [(3, "a", 1)], "b rests for a second"


def test_a_node_that_fails_again_and_again_rests_longer_each_time():
    job = wishes.Wishes(most=1)
    node = [wishes.Node("a", "10.0.0.1", 1)]
    now, pauses = 0.0, []
    for _ in range(8):
        ((number, _, _),) = job.next(node, now)
        job.ended(number, now)
        began = now
        while not (due := job.next(node, now)):
            now += 0.5
        job.ended(due[0][0], began)
        pauses.append(now - began)
        now += 200
    assert pauses[:3] == [1.0, 4.0, 16.0] and pauses[-1] == wishes.MOST_REST_SECONDS


def test_a_discovery_of_the_caller_limits_the_slots_of_an_address():
    job = wishes.Wishes(most=9)
    nodes = [wishes.Node("a", "10.0.0.1", 4)]
    ((number, _, slots),) = job.next(nodes, 0.0, {"10.0.0.1": 3})
    assert slots == 3
    job.granted(number)
    assert job.next(nodes, 1.0, {"10.0.0.1": 3}) == []
    assert [slots for _, _, slots in job.next(nodes, 1.0, {"10.0.0.1": 4})] == [1]


def test_nodes_with_gpus_give_their_slots_once():
    job = wishes.Wishes(most=9, may_add=False)
    nodes = [wishes.Node("a", "10.0.0.1", 2)]
    ((number, _, _),) = job.next(nodes, 0.0)
    job.granted(number)
    assert job.next(nodes, 1.0) == []
