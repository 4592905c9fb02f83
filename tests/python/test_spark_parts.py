"""The parts of rueda.spark that need neither Spark nor Java."""

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

import rueda
from rueda.failures import Failure, Progress
from rueda.placement import Hello, environment, forwarded, place, tf_config
from rueda.spark import _rank, channel, driver, slots


def hellos(*hosts):
    return [
        Hello(i, host, f"key of {host}", 100 + i, (1000 + i, 2000 + i, 3000 + i))
        for i, host in enumerate(hosts)
    ]


def test_ranks_of_a_host_are_adjacent_and_cross_ranks_count_hosts_with_that_local_rank():
    places = place(hellos("a", "b", "a", "a"))
    assert [places[i].rank for i in range(4)] == [0, 3, 1, 2]
    assert [places[i].local_rank for i in range(4)] == [0, 0, 1, 2]
    assert [places[i].local_size for i in range(4)] == [3, 1, 3, 3]
    assert [(places[i].cross_rank, places[i].cross_size) for i in range(4)] == [
        (0, 2),
        (1, 2),
        (0, 1),
        (0, 1),
    ]


def test_hosts_with_one_name_but_two_network_namespaces_are_two_hosts():
    one, other = hellos("a", "a")
    places = place([one, Hello(1, "a", "another key", 5, other.ports)])
    assert [places[i].local_size for i in range(2)] == [1, 1]


def test_all_ranks_meet_at_the_host_of_rank_0_and_find_all_names():
    everybody = hellos("a", "fe80::1")
    places = place(everybody)
    own = environment(everybody, places, everybody[1], "job", True)
    assert own["RUEDA_STORE"] == "tcp://a:1000" and own["MASTER_PORT"] == "2000"
    assert own["RUEDA_RANK"] == own["HOROVOD_RANK"] == own["RANK"] == "1"
    assert json.loads(tf_config(everybody, places, 1))["cluster"]["worker"] == ["a:3000", "[fe80::1]:3001"]


def test_settings_of_the_driver_are_forwarded_and_its_own_place_is_not():
    own = {
        "RUEDA_RANK": "3",
        "RUEDA_LOCAL_SIZE": "4",
        "HOROVOD_HOSTNAME": "x",
        "RUEDA_SECRET_FILE": "f",
        "PATH": "/",
    }
    settings = {"RUEDA_LOG_LEVEL": "info", "HOROVOD_TIMELINE": "t"}
    assert forwarded({**own, **settings, "RUEDA_LIBRARY": "here"}) == settings


@pytest.mark.parametrize(
    "master, settings, expected",
    [
        ("local[4]", {}, None),
        ("local-cluster[2,3,1024]", {"spark.task.cpus": "2"}, 2),
        ("spark://host:7077", {}, None),
        ("spark://host:7077", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ("yarn", {"spark.executor.instances": "3"}, 3),
    ],
)
def test_slots_that_spark_will_offer(master, settings, expected):
    assert slots.expected_slots(master, settings) == expected


@pytest.mark.parametrize(
    "master, settings, expected",
    [
        ("yarn", {}, None),
        ("yarn", {"spark.dynamicAllocation.maxExecutors": "3", "spark.executor.cores": "2"}, 6),
        ("spark://host:7077", {"spark.dynamicAllocation.maxExecutors": "3"}, None),
        ("local-cluster[2,3,1024]", {"spark.dynamicAllocation.maxExecutors": "99"}, 6),
    ],
)
def test_slots_that_dynamic_allocation_may_offer(master, settings, expected):
    assert slots.most_slots(master, settings) == expected


def test_dynamic_allocation_with_speculation_is_refused():
    settings = {"spark.dynamicAllocation.enabled": "true", "spark.speculation": "true"}
    assert slots.is_dynamic(settings)
    with pytest.raises(
        RuntimeError, match=r"^spark\.dynamicAllocation\.enabled and spark\.speculation are both"
    ):
        slots.check_dynamic("yarn", settings, 2)


def test_too_few_slots_are_refused_as_soon_as_it_is_certain():
    assert slots.SlotWatch(4, None, True, 0).look(4, 0)
    with pytest.raises(ValueError, match=r"asked for 4 ranks, .* 3 tasks at once"):
        slots.SlotWatch(4, None, True, 0).look(3, 0)
    with pytest.raises(ValueError, match=r"asked for 4 ranks, .* 2 tasks at once"):
        slots.SlotWatch(4, 2, False, 0).look(0, 0)


def test_slots_are_awaited_while_more_may_come():
    expected = slots.SlotWatch(4, 4, False, 0)
    assert not expected.look(2, 1000)
    growing = slots.SlotWatch(4, None, False, 0)
    assert not growing.look(1, 9) and not growing.look(2, 18)
    with pytest.raises(ValueError, match="2 tasks at once"):
        growing.look(2, 29)


# ---- channel ----


def test_messages_survive_any_cuts():
    messages = [(channel.OUT, b"x" * 1000), (channel.HELLO, b"{}"), (channel.ERR, b"")]
    stream = b"".join(channel.encode(kind, body) for kind, body in messages)
    for step in (1, 7, len(stream)):
        decoder = channel.Decoder()
        found = [m for i in range(0, len(stream), step) for m in decoder.feed(stream[i : i + step])]
        assert found == messages


def test_a_length_beyond_the_bound_is_refused_before_it_is_received():
    with pytest.raises(channel.Broken, match="allowed"):
        list(channel.Decoder().feed(b"\x01\xff\xff\xff\xff"))
    with pytest.raises(ValueError, match="longer than"):
        channel.encode(channel.OUT, bytes(channel.MAX_BODY_BYTES + 1))


def test_the_handshake_is_mutual_and_bound_to_nonces_and_key():
    key, nonce, own = b"k" * 32, channel.make_nonce(), channel.make_nonce()
    answer = b"rueda-spark-1\n" + own + channel.proof(key, b"task", nonce, own)
    assert channel.check_task(key, nonce, answer) == channel.proof(key, b"driver", nonce, own)
    assert channel.check_task(b"other" * 8, nonce, answer) is None
    assert channel.check_task(key, channel.make_nonce(), answer) is None
    reflected = b"rueda-spark-1\n" + own + channel.proof(key, b"driver", nonce, own)
    assert channel.check_task(key, nonce, reflected) is None


@pytest.fixture
def supervised():
    lines = []
    listener = socket.create_server(("127.0.0.1", 0))
    made = driver.Supervisor(listener, driver.Terms("job", b"k" * 32, 1), lambda *line: lines.append(line))
    yield made, listener.getsockname(), lines
    made.close()


def test_strangers_get_nothing_and_disturb_nobody(supervised):
    supervisor, address, _ = supervised
    silent, wrong = socket.create_connection(address), socket.create_connection(address, timeout=0.01)
    wrong.sendall(bytes(channel.TASK_PROOF_BYTES))
    received = b""
    for _ in range(3000):
        supervisor.step(0.01)
        with contextlib.suppress(socket.timeout):
            received += wrong.recv(100)
            if len(received) == 16 and wrong.recv(1) == b"":  # the nonce, and then the end
                break
    else:
        pytest.fail("a stranger was not sent away")
    assert supervisor.arrived() == 0 and not supervisor.places
    silent.close()
    wrong.close()


def test_the_headline_of_an_exception_is_its_class_and_its_first_line():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    assert _rank.headline(ValueError("first\nsecond")) == "ValueError: first"
    assert _rank.headline(SystemExit()) == "SystemExit"
    assert _rank.headline(Silent()).endswith("Silent")
    assert len(_rank.headline(ValueError("x" * 10_000))) == 500


@pytest.fixture
def task(supervised):
    """The end of a task that has proved itself and has its place."""
    supervisor, address, _ = supervised
    with socket.create_connection(address, timeout=10) as own:

        def step(*messages):
            own.sendall(b"".join(channel.encode(*message) for message in messages))
            supervisor.step(5)

        supervisor.step(5)
        nonce, mine = own.recv(16), channel.make_nonce()
        own.sendall(b"rueda-spark-1\n" + mine + channel.proof(b"k" * 32, b"task", nonce, mine))
        supervisor.step(5)
        step((channel.HELLO, dataclasses.asdict(hellos("a")[0])))
        assert supervisor.places
        yield step


def test_a_rank_that_ends_well_without_an_outcome_has_failed(supervised, task):
    task((channel.ENDED, {"status": 0, "has_outcome": False}))
    assert (
        "ended with exit code 0 before the function had returned"
        in supervised[0].progress.failures[0].sentence()
    )


def test_errors_of_the_stream_for_lines_are_not_taken_for_a_lost_task(supervised, task, monkeypatch):
    def closed(*_):
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(supervised[0], "_show", closed)
    with pytest.raises(ValueError, match="closed file"):
        task((channel.OUT, b"line\n"))
    assert not supervised[0].progress.failures


def test_long_lines_are_shown_whole_and_endless_ones_in_parts(supervised, task, monkeypatch):
    for _ in range(20):
        task((channel.OUT, b"x" * 15_000))
    task((channel.OUT, b"\r\nshort\nno "), (channel.OUT, b"end"))
    assert [line for _, _, line in supervised[2]] == ["x" * 300_000, "short"]
    monkeypatch.setattr(driver, "_LINE_BYTES", 20_000)
    for _ in range(2):
        task((channel.OUT, b"y" * 15_000))
    assert supervised[2][2][2] == "no end" + "y" * 30_000


def test_a_task_that_talks_nonsense_is_lost(supervised, task):
    task((channel.ENDED, {"status": 0}))
    assert "was lost" in supervised[0].progress.failures[0].what


def test_the_cause_is_the_first_failure_that_is_no_consequence():
    progress = Progress(3)
    progress.fail(Failure(0, "a", 1, "failed", "rueda.errors.HorovodInternalError: rank 2 was lost"), 10.0)
    progress.fail(Failure(2, "b", 2, "was killed by SIGKILL"), 10.5)
    assert progress.first_cause().rank == 2
    assert not progress.must_stop(11.9) and progress.must_stop(12.0)


@pytest.mark.parametrize(
    ("words", "cause"), [("ranks 2, 11", 2), ("rank 0", 0), ("ranks 12, 21 and 2 more", 0)]
)
def test_of_ranks_that_disagree_the_outnumbered_one_is_the_cause(words, cause):
    progress = Progress(3)
    text = f"HorovodInternalError: Mismatched data types: One rank … Tensor x: … Outnumbered: {words}."
    for rank in range(3):
        progress.fail(Failure(rank, "a", 1 + rank, "failed", text), 10.0)
    assert progress.first_cause().rank == cause


@pytest.mark.parametrize("front_end", ["torch", "keras"])
def test_ranks_of_estimators_need_no_pyspark(front_end):
    pytest.importorskip(front_end)
    script = f"import sys; sys.modules['pyspark'] = None; import rueda.spark.{front_end}.training"
    package = pathlib.Path(rueda.__file__).parents[1]
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": str(package)})
