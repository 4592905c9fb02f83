"""Outages of the network between hosts: what survives them, and what is said about the cause."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
from typing import Dict, Iterator, List, Tuple

import boxes
import pytest
from cables import RANKS, cut, ip, make_cable, mend, start_in_spaces, start_until_lost
from harness import library
from launch_support import PYTHON, ROOT, RUEDA, name_of, parent_of
from robust_support import Jobs, make_jobs, wait_until
from virtual_hosts import HostJob, VirtualHosts, virtual_hosts

__all__ = ["make_cable", "make_jobs"]  # the fixtures `cable` and `jobs`

SAID_S = 60.0  # a verdict after 5 s, on a machine that others use as well
END_S = 90.0

STEPS = """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
if DOING == "idle":
    await_file("back", 120)
step = 0
while True:
    over = torch.tensor([float(os.path.exists("enough"))])
    sum = hvd.allreduce(torch.full((200_000,), float(step)), name="gradient", op=hvd.Sum)
    assert sum[0].item() == sum[-1].item() == step * hvd.size()
    if hvd.allreduce(over, name="over", op=hvd.Max)[0]:
        break
    step += 1
say("right")
"""
UNREACHABLE = r"Verdict: unreachable: rank 2 \(host h1, pid \d+\): its host has acknowledged nothing for \d"
BLAMES_A_PROCESS = r"Verdict: (stopped|silent|dead|missing|late in compute)"


@pytest.mark.parametrize("doing", ["training", "idle"])
def test_an_outage_is_said_and_survived_with_default_settings(
    jobs: Jobs, cable: Tuple[str, str], doing: str
) -> None:
    job = start_in_spaces(jobs, cable, f"DOING = {doing!r}\n{STEPS}")
    for rank in range(RANKS):
        job.await_said(rank, "ready")
    cut(cable)
    wait_until(lambda: re.search(UNREACHABLE, job.output(0)) is not None, SAID_S, "the verdict")
    mend(cable)
    wait_until(lambda: "the network is back after" in job.output(0), SAID_S, "its end")
    job.release("back")
    job.release("enough")
    job.assert_ended_well(limit_s=END_S)
    assert all(job.said(rank, "right") for rank in range(RANKS)), job.everything()
    assert not re.search(BLAMES_A_PROCESS, job.everything()), job.everything()
    for rank in range(RANKS):  # one line for the other host, if any
        lines = re.findall(r"Verdict: unreachable: rank (\d).*acknowledged nothing", job.output(rank))
        assert lines in ([["2"]] if rank == 0 else [[], ["0"]]), job.everything()


def test_a_cable_that_stays_cut_is_blamed_on_the_network_alone(jobs: Jobs, cable: Tuple[str, str]) -> None:
    job = start_until_lost(jobs, cable, "training", 8)
    cut(cable)
    job.assert_ended_well(limit_s=END_S)
    for rank in range(RANKS):
        (lost,) = job.said(rank, "lost")
        assert re.search(r"rank \d .*acknowledged nothing for \d+ s; its host is down, or the ", lost["text"])
        assert "stopped" not in lost["text"]
    assert re.search(UNREACHABLE, job.output(0)), "said before the end\n" + job.output(0)
    assert re.search(UNREACHABLE.replace("2", "0", 1).replace("h1", "h0"), job.output(2)), job.everything()
    assert not re.search(BLAMES_A_PROCESS, job.everything()), job.everything()


# ---- under rueda run: one rank on each host ----

PROGRAM = """
import os, sys, time
import numpy
import rueda.numpy as hvd

hvd.init()
print("ready", flush=True)
step = 0
while True:
    over = numpy.array([float(os.path.exists(sys.argv[1]))])
    if hvd.allreduce(over, name="over", op=hvd.Max)[0]:
        break
    time.sleep(0.01)
print("right", flush=True)
"""


class RunOnHosts:
    """`rueda run` of PROGRAM on these hosts. words: those that come before the command."""

    def __init__(
        self, words: List[str], environment: Dict[str, str], folder: pathlib.Path, names: str = "ab"
    ) -> None:
        self._count = len(names)
        self._enough = folder / "enough"
        self._output = folder / "output"
        program = folder / "program.py"
        program.write_text(PROGRAM)
        there = ",".join(f"{name}:1" for name in names)
        command = ["run", "-np", str(len(names)), "-H", there, PYTHON, str(program), str(self._enough)]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                [*words, RUEDA, *command],
                env={**environment, "PYTHONPATH": str(ROOT / "python")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )

    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def await_words(self, pattern: str) -> None:
        wait_until(
            lambda: re.search(pattern, self.output()) is not None or self.process.poll() is not None,
            SAID_S,
            f"{pattern}\n{self.output()}",
        )
        assert re.search(pattern, self.output()), self.output()

    def await_start(self) -> None:
        wait_until(lambda: self.output().count("ready") == self._count, SAID_S, f"the start\n{self.output()}")

    def end_well(self) -> None:
        self._enough.touch()
        assert self.process.wait(END_S) == 0, self.output()
        assert self.output().count("right") == self._count, self.output()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(END_S)


@contextlib.contextmanager
def started_on_hosts(
    words: List[str], environment: Dict[str, str], folder: pathlib.Path, names: str = "ab"
) -> Iterator[RunOnHosts]:
    started = RunOnHosts(words, environment, folder, names)
    try:
        started.await_start()
        yield started
    finally:
        started.stop()


@pytest.fixture(name="on_virtual_hosts")
def make_run_on_virtual_hosts(tmp_path: pathlib.Path) -> Iterator[Tuple[VirtualHosts, RunOnHosts]]:
    """Their "ssh" needs no network."""
    if not os.path.exists(RUEDA):
        pytest.skip(f"{RUEDA} is not built")
    folder = tmp_path / "hosts"
    folder.mkdir()
    with contextlib.ExitStack() as undo:
        hosts = undo.enter_context(virtual_hosts(folder, ["a", "b"], "1gbit"))
        yield hosts, undo.enter_context(started_on_hosts(hosts.words(), hosts.environment(), tmp_path))


def rank_on(hosts: VirtualHosts, name: str) -> int:
    """The process of the rank on that host."""
    words = ["ip", "netns", "pids", hosts.space(name)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True)
    found = [pid for pid in map(int, listed.stdout.split()) if name_of(parent_of(pid)) == "rueda-agent"]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_that_is_alone_on_its_host_is_called_stopped(
    on_virtual_hosts: Tuple[VirtualHosts, RunOnHosts], victim: int
) -> None:
    hosts, run_on_hosts = on_virtual_hosts
    pid = rank_on(hosts, "ab"[victim])
    os.kill(pid, signal.SIGSTOP)
    try:
        run_on_hosts.await_words(rf"Verdict: stopped: rank {victim} \(host ")
    finally:
        os.kill(pid, signal.SIGCONT)
    run_on_hosts.await_words(rf"Verdict: stopped: rank {victim} \(host .*\) goes on after")
    run_on_hosts.end_well()
    assert not re.search("Verdict: (silent|unreachable)", run_on_hosts.output()), run_on_hosts.output()


def test_an_agent_that_answers_tells_a_cut_network_from_a_dead_host(
    on_virtual_hosts: Tuple[VirtualHosts, RunOnHosts],
) -> None:
    hosts, run_on_hosts = on_virtual_hosts
    switch = hosts.space("switch")
    ip("-n", switch, "link", "set", "port-b", "down")
    run_on_hosts.await_words(
        r"Verdict: unreachable: rank 1 .*acknowledged nothing.*the agent of that host answers rueda run, so "
        r"the host is up and the network between the ranks is cut"
    )
    ip("-n", switch, "link", "set", "port-b", "up")
    run_on_hosts.await_words("Verdict: unreachable: rank 1 .*the network is back after")
    run_on_hosts.end_well()


@pytest.mark.parametrize(
    "names, what, blamed",
    [
        (
            "abc",
            "link",
            r"the network between rank 1 on b \(pid \d+\) and rank 2 on c \(pid \d+\) was cut while both",
        ),
        (
            "abc",
            "host",
            r"rank 1 on b \(pid \d+\) was cut off from the other hosts while it was still running",
        ),
        ("ab", "host", r"the network between rank 0 on a \(pid \d+\) and rank 1 on b \(pid \d+\) was cut"),
    ],
)
def test_the_last_words_of_a_job_blame_what_was_cut_and_no_other_rank(
    tmp_path: pathlib.Path, names: str, what: str, blamed: str
) -> None:
    folder = tmp_path / "hosts"
    folder.mkdir()
    with contextlib.ExitStack() as undo:
        hosts = undo.enter_context(virtual_hosts(folder, list(names), "1gbit"))
        environment = {**hosts.environment(), "RUEDA_PEER_TIMEOUT_SECONDS": "6"}
        job = undo.enter_context(started_on_hosts(hosts.words(), environment, tmp_path, names))
        if what == "link":
            hosts.cut("b", "c")
        else:  # the agents are reached in another way
            ip("-n", hosts.space("switch"), "link", "set", "port-b", "down")
        job.await_words("rueda: the job failed: .*")
        assert re.search(f"rueda: the job failed: {blamed}", job.output()), job.output()


def test_rueda_run_and_its_ranks_survive_an_outage_of_the_network_of_ssh(tmp_path: pathlib.Path) -> None:
    reason = boxes.why_not() or ("" if os.path.exists(RUEDA) else f"{RUEDA} is not built")
    if reason:
        pytest.skip(reason)
    folder = tmp_path / "boxes"
    folder.mkdir()
    variables = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library()}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    with boxes.boxes(folder, variables) as made, contextlib.ExitStack() as undo:
        words = made.command("a")
        job = undo.enter_context(started_on_hosts(words, {**clean, **variables}, tmp_path))
        cable = made.command("a", "ip", "link", "set", "cable-a")
        subprocess.run([*cable, "down"], check=True)
        job.await_words(
            "Verdict: unreachable: rank 1 .*acknowledged nothing.*"
            "the agent of that host does not answer rueda run either"
        )
        subprocess.run([*cable, "up"], check=True)
        job.await_words("Verdict: unreachable: rank 1 .*the network is back after")
        job.end_well()


def test_two_hosts_that_never_reach_each_other_are_named_by_all_ranks(tmp_path: pathlib.Path) -> None:
    source = """
import rueda.numpy as hvd
try:
    hvd.init()
except Exception as error:
    print("refused:", error, flush=True)
"""
    link = (
        r"from rank 2 \(host c, pid \d+\) to rank 1 \(host b, pid \d+\) over tcp at 10\.213\.9\.2:\d+: "
        r"no answer \(does a firewall drop the packets\?\)"
    )
    with contextlib.ExitStack() as undo:
        hosts = undo.enter_context(virtual_hosts(tmp_path, ["a", "b", "c"], "1gbit"))
        hosts.cut("b", "c")
        job = HostJob(hosts, source, RUEDA_START_TIMEOUT="15")
        undo.callback(job.remove)
        wait_until(
            lambda: re.search(f"no connection yet {link}", job.output(2)) is not None,
            SAID_S,
            job.everything(),
        )
        assert "refused:" not in job.everything(), job.everything()
        job.end(END_S)
        for rank in range(3):
            refused = rf"refused: .*no connection in time {link}\. Check firewalls.*RUEDA_INTERFACE"
            assert re.search(refused, job.output(rank)), job.everything()


def test_a_cut_between_two_of_three_hosts_names_both_and_is_survived(tmp_path: pathlib.Path) -> None:
    enough = tmp_path / "enough"
    with contextlib.ExitStack() as undo:
        hosts = undo.enter_context(virtual_hosts(tmp_path, ["a", "b", "c"], "1gbit"))
        job = HostJob(hosts, PROGRAM.replace("sys.argv[1]", repr(str(enough))))
        undo.callback(job.remove)
        wait_until(lambda: all("ready" in job.output(rank) for rank in range(3)), SAID_S, "the start")
        hosts.cut("b", "c")
        between = r"rank 1 \(host b, .*\) and rank 2 \(host c, .*\)"
        cut = f"Verdict: cut link: {between}: their hosts have acknowledged nothing"
        wait_until(lambda: re.search(cut, job.output(0)) is not None, SAID_S, f"{cut}\n{job.everything()}")
        hosts.mend("b", "c")
        back = "Verdict: cut link: .*the network is back after"
        wait_until(lambda: re.search(back, job.output(0)) is not None, SAID_S, f"{back}\n{job.everything()}")
        enough.touch()
        job.end(END_S)
        assert not re.search(BLAMES_A_PROCESS, job.everything()), job.everything()
