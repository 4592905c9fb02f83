"""`rueda status`, `rueda stacks` and metrics of running jobs: a rank hangs, and an operator looks."""

import contextlib
import functools
import http.server
import json
import re
import shutil
import signal
import subprocess
import threading

import pytest
from launch_support import PYTHON, ROOT, RUEDA
from metrics_support import METRICS, PATIENCE_S, environment_of, rueda, scraped, until
from ports import free_ports

# Rank 1 stops in C code in the middle of training; it keeps the interpreter's lock if it is told to.
HANG = """
import ctypes, os, sys
import numpy
import rueda.numpy as hvd

def hangs_here():
    c = (ctypes.PyDLL if sys.argv[1] == "with-lock" else ctypes.CDLL)(None)
    c.read(os.pipe()[0], ctypes.create_string_buffer(1), 1)

hvd.init()
for step in range(20):
    hvd.allreduce(numpy.ones(100, numpy.float32), name="gradient")
    hvd.mark_step()
print("trained", flush=True)
if hvd.rank() == 1:
    hangs_here()
hvd.allreduce(numpy.ones(100, numpy.float32), name="late")
"""


@contextlib.contextmanager
def _hanging_job(folder, how):
    command = [RUEDA, "run", "-np", "3", PYTHON, "-c", HANG, how]
    job = subprocess.Popen(command, env=environment_of(folder), stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(3):
            assert "trained" in job.stdout.readline()
        yield job
    finally:
        job.send_signal(signal.SIGKILL)
        job.communicate(timeout=PATIENCE_S)


def _status(folder, *arguments):
    code, out, error = rueda(folder, "status", "--json", *arguments)
    assert code == 0, error
    return {rank["rank"]: rank for rank in json.loads(out)["ranks"]}


def _main_thread(rank):
    return next(thread for thread in rank["threads"] if thread["tid"] == rank["pid"])


@pytest.mark.parametrize("how", ["with-lock", "without-lock"])
def test_a_rank_that_hangs_in_c_code_is_named_and_its_line_is_shown(folder, how):
    with _hanging_job(folder, how) as job:

        def waits():
            return {rank: shown["waits_for"] for rank, shown in _status(folder).items()}

        until(waits, lambda found: found == {0: [1], 1: [], 2: [1]})
        shown = _status(folder, str(job.pid))[0]
        assert shown["size"] == 3 and shown["steps"]["count"] == 20
        assert (
            shown["in_flight"][0]["name"] == "allreduce.late" and shown["in_flight"][0]["what"] == "allreduce"
        )

        # The process id of a rank stands for its job.
        assert set(_status(folder, str(shown["pid"]))) == {0, 1, 2}
        # On a busy machine some looks pass until it is known to use no core.
        table = until(
            lambda: rueda(folder, "status", str(shown["pid"]))[1],
            lambda found: "sleeps or waits: it uses no core" in found,
        )
        assert "3 of 3 ranks are here" in table, table

        code, out, error = rueda(folder, "stacks", "--json", str(job.pid))
        assert code == 0, error
        ranks = {rank["rank"]: rank for rank in json.loads(out)["ranks"]}
        hanging = _main_thread(ranks[1])
        assert hanging["python"][0]["function"] == "hangs_here"
        assert any(frame["function"].endswith("read") for frame in hanging["native"])
        assert ranks[1]["python_had_lock"] == (how == "without-lock")

        _, folded, _ = rueda(folder, "stacks")
        assert folded.startswith("rank 1: main thread\n  hangs_here (")
        assert "ranks 0, 2: main thread\n" in folded
        _, one, _ = rueda(folder, "stacks", "--rank", "1", "--native")
        assert "rueda-engine" in one and "ranks 0" not in one
    # The ranks end soon after their launcher. What they left is removed by the next look.
    _, _, error = until(
        lambda: rueda(folder, "status"),
        lambda found: found[0] == 1 and not any((folder / "rueda").iterdir()),
    )
    assert "no process of this user" in error


def test_ranks_in_containers_with_process_ids_of_their_own_are_shown_with_both(folder):
    container = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no pid namespaces")
    script = HANG.replace("trained", "trained as %d").replace('as %d"', 'as %d" % os.getpid()')
    command = [RUEDA, "run", "-np", "2", *container, PYTHON, "-c", script, "without-lock"]
    with subprocess.Popen(command, env=environment_of(folder), stdout=subprocess.PIPE, text=True) as job:
        try:
            for _ in range(2):
                assert "trained as" in job.stdout.readline()
            shown = _status(folder, str(job.pid))  # found by what started it, so by its id on this host
            assert sorted(shown) == [0, 1]
            for rank in shown.values():
                assert rank["pid"] < 10 < rank["pid_here"]
                assert _status(folder, str(rank["pid_here"]))[rank["rank"]]["pid"] == rank["pid"]
            table = rueda(folder, "status")[1]
            assert f"{shown[1]['pid_here']} ({shown[1]['pid']})" in table, table
            _, folded, _ = rueda(folder, "stacks")
            assert "rank 1: main thread\n  hangs_here (" in folded
        finally:
            job.send_signal(signal.SIGKILL)


def test_looking_at_a_job_again_and_again_changes_nothing(folder):
    script = """
import numpy, rueda.numpy as hvd
hvd.init()
print("started", flush=True)
for step in range(1500):
    assert hvd.allreduce(numpy.full(50, float(step)), name="g")[0] == step
    hvd.mark_step()
"""
    command = [RUEDA, "run", "-np", "2", PYTHON, "-c", script]
    with subprocess.Popen(command, env=environment_of(folder), stdout=subprocess.PIPE, text=True) as job:
        job.stdout.readline()
        looks = 0
        while job.poll() is None:
            looks += rueda(folder, "stacks", "--native")[0] == 0
    assert job.returncode == 0 and looks > 0


def test_a_job_that_does_not_want_to_be_seen_has_no_socket(folder):
    script = "import rueda.numpy as hvd; hvd.init(); print(len(__import__('os').listdir('.')))"
    environment = environment_of(folder, RUEDA_STATUS="0")
    done = subprocess.run(
        [PYTHON, "-c", script],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "0\n"


def test_metrics_count_what_every_front_end_does():
    import numpy

    import rueda.numpy as hvd

    hvd.init()
    try:
        before = hvd.metrics()
        for _ in range(3):
            hvd.allreduce(numpy.ones(10, numpy.float32), name="a")
            hvd.mark_step()
        hvd.broadcast(numpy.ones(4), 0, name="b")
        after = hvd.metrics()
    finally:
        hvd.shutdown()
    for collective, more in {"allreduce": 3, "broadcast": 1, "allgather": 0}.items():
        found = after["rueda_calls_total"][collective] - before["rueda_calls_total"][collective]
        assert found == more, collective
    assert after["rueda_bytes_total"]["allreduce"] - before["rueda_bytes_total"]["allreduce"] == 120
    assert after["rueda_steps_total"] - before["rueda_steps_total"] == 3
    assert after["rueda_call_seconds"]["count"] - before["rueda_call_seconds"]["count"] == 4
    assert after["rueda_up"] == 1 and hvd.metrics()["rueda_up"] == 0
    assert after["rueda_resident_bytes"] > 1e6


# Rank 1 computes for longer than the others in each step of a learned plan.
LATE = """
import json, os, sys, time
import numpy, rueda.numpy as hvd
hvd.init()
goes_on = True
while goes_on:
    time.sleep(0.3 if hvd.rank() == 1 else 0.02)
    hvd.allreduce(numpy.ones(100, numpy.float32), name="gradient")
    goes_on = hvd.allreduce(numpy.float32([not os.path.exists(sys.argv[1])]), name="goes on", op=hvd.Min)[0]
    hvd.mark_step()
print(json.dumps([hvd.rank(), hvd.metrics()]), flush=True)
"""


def test_a_rank_that_is_a_little_late_in_each_step_is_named_by_status_and_by_metrics(folder):
    over = folder / "over"
    command = [RUEDA, "run", "-np", "3", PYTHON, "-c", LATE, str(over)]
    with subprocess.Popen(command, env=environment_of(folder), stdout=subprocess.PIPE, text=True) as job:
        try:
            until(
                lambda: rueda(folder, "status")[1],
                lambda text: re.search(r"STRAGGLER rank 1 \(host .*\): the others waited \d+ %", text),
            )
            (straggler,) = _status(folder)[0]["stragglers"]
        finally:
            over.touch()
        lines = job.communicate(timeout=PATIENCE_S)[0].splitlines()
    assert job.returncode == 0 and straggler["rank"] == 1 and straggler["share"] > 0, straggler
    metrics = dict(json.loads(line.partition("] ")[2]) for line in lines)
    late = metrics[0]["rueda_late_seconds_total"]
    assert late["1"] > max(1, late.get("2", 0)), late
    waited = [metrics[rank]["rueda_waiting_seconds_total"]["ranks"] for rank in range(3)]
    assert waited[1] < min(waited[0], waited[2]), waited
    assert all(waited[rank] > metrics[rank]["rueda_running_seconds_total"] for rank in (0, 2)), metrics
    assert metrics[0]["rueda_planned_calls_total"] > 20
    assert metrics[1]["rueda_late_seconds_total"] == {"other": 0}


@pytest.mark.parametrize(("started", "missing"), [((0, 1), "ranks 2, 3"), ((1, 2), "rank 0")])
def test_ranks_started_by_hand_say_who_has_not_called_init(folder, started, missing):
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)), "WORLD_SIZE": "4"}
    source = "import rueda.numpy as hvd; hvd.init()"
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank in started:
            environment = environment_of(folder, RANK=str(rank), **place)
            process = subprocess.Popen(
                [PYTHON, "-c", source], env=environment, stderr=subprocess.PIPE, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            ranks.append(process)
        for process in ranks:
            said = process.stderr.readline()
            assert missing in said and "not called init" in said and "Start every rank" in said, said
        shown = _status(folder)
        assert set(shown) == set(started) and shown[started[0]]["size"] == 4
        expected = [int(rank) for rank in re.findall(r"\d", missing)]
        assert [one["waits_for"] for one in shown.values()] == [expected, expected]
        table = rueda(folder, "status")[1]
        assert table.startswith("a job that starts\n"), table
        assert re.search(rf"\n{started[1]} .* {missing.replace(', ', '-')} +init, \d", table), table


def test_the_dashboard_asks_for_metrics_that_exist():
    import rueda.numpy as hvd

    dashboard = json.loads((ROOT / "deploy/grafana/rueda.json").read_text())
    expressions = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked = {name.removesuffix("_bucket") for name in re.findall(r"rueda_\w+", expressions)}
    assert len(asked) > 8 and asked <= set(hvd.metrics())


def test_the_documentation_names_every_metric():
    import rueda.numpy as hvd

    page = (ROOT / "docs/metrics.md").read_text()
    assert all(f"`{name}" in page for name in hvd.metrics())


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed (make setup)")
def test_prometheus_reads_the_files_of_metrics(folder):
    environment = environment_of(folder, RUEDA_METRICS_TEXTFILE=str(folder / "m"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([PYTHON, "-c", METRICS], env=environment, **pipes) as job:
        job.stdout.readline()
        file = folder / "m.rank0.prom"
        until(lambda: file.read_text() if file.exists() else "", lambda text: "rueda_steps_total{" in text)
        text = until(file.read_text, lambda text: " 7\n" in text.partition("\nrueda_steps_total{")[2])
        job.communicate("")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0 and checked.stderr == "", checked.stderr

    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            target = {"metrics_path": "/m.rank0.prom"}
            steps = scraped(folder, target, server.server_address[1])[0]
        finally:
            server.shutdown()
    assert steps["value"][1] == "7" and steps["metric"]["rank"] == "0"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the folder, as node_exporter serves the files of its collector."""

    extensions_map = {"": "text/plain; version=0.0.4", ".prom": "text/plain; version=0.0.4"}  # noqa: RUF012

    def log_message(self, *_):
        pass
