"""Whole jobs over UCX. No test needs a card: UCX uses TCP on loopback or a wire, or shared memory."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest
from cables import ENTER, RANKS, ip, make_cable, place, start_in_spaces
from harness import make_job_folder, rank_environment
from robust_support import Job, Jobs, make_jobs
from test_robust_death import EXPECT, IN_THE_MIDDLE, WAITING, assert_lost, with_victim
from test_robust_hosts import CHECK, SUMS, assert_right
from test_robust_init import AFTER_A_LOSS, TRY

__all__ = ["make_cable", "make_jobs"]  # the fixtures `cable` and `jobs`


def why_no_ucx() -> Optional[str]:
    """In a process of its own, because loading UCX changes a process."""
    load = "import ctypes; ctypes.CDLL('libucp.so.0')"
    tried = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, timeout=60)
    return None if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]


NO_UCX = why_no_ucx()
pytestmark = pytest.mark.skipif(NO_UCX is not None, reason=f"libucx0 is not installed ({NO_UCX})")

OVER = {
    "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"},
    "shared memory": {"UCX_TLS": "sm,self"},
}
ENDED = "its process has probably ended"
over = pytest.mark.parametrize("ucx", OVER.values(), ids=OVER.keys())


def digests(job: Job) -> List[str]:
    job.assert_ended_well()
    return [entry["digest"] for rank in range(len(job.pids)) for entry in job.said(rank, "sums")]


@pytest.mark.parametrize("ranks, ucx", [(2, OVER["tcp"]), (4, OVER["shared memory"])], ids=["2 tcp", "4 sm"])
def test_sums_have_the_bits_of_tcp(jobs: Jobs, ranks: int, ucx: Dict[str, str]) -> None:
    found = digests(jobs.start(ranks, SUMS, transports="ucx", environment=ucx))
    assert len(found) == ranks
    assert set(found) == set(digests(jobs.start(ranks, SUMS, transports="tcp")))


def test_two_named_hosts_compute_over_shm_and_ucx(jobs: Jobs) -> None:
    job = jobs.start(RANKS, CHECK, transports="shm,ucx", environment=OVER["shared memory"], by_rank=place)
    assert_right(job)


def test_a_rank_without_ucx_is_reached_over_tcp(jobs: Jobs) -> None:
    def by_rank(rank: int) -> Dict[str, str]:
        return {**place(rank), "RUEDA_TRANSPORTS": "shm,tcp" if rank == 3 else "shm,ucx,tcp"}

    assert_right(jobs.start(RANKS, CHECK, environment=OVER["tcp"], by_rank=by_rank))


# UCX finds its devices in /sys, which must be that of the name space.
MOUNT_SYS = """
import ctypes
MS_REC, MS_PRIVATE, MNT_DETACH, CLONE_NEWNS = 1 << 14, 1 << 18, 2, 0x20000
libc = ctypes.CDLL(None, use_errno=True)
with open("/run/netns/" + os.environ["TEST_SPACE"]) as space:
    assert libc.setns(space.fileno(), 0) == 0
assert libc.unshare(CLONE_NEWNS) == 0
assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
assert libc.umount2(b"/sys", MNT_DETACH) == 0
assert libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None) == 0
end = time.monotonic() + 60
while open("/sys/class/net/wire/operstate").read().strip() != "up":  # UCX ignores it before
    assert time.monotonic() < end
    time.sleep(0.01)
"""


def test_two_name_spaces_compute_rightly(jobs: Jobs, cable: Tuple[str, str]) -> None:
    ucx = {"RUEDA_TRANSPORTS": "shm,ucx", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "wire"}
    assert_right(start_in_spaces(jobs, cable, MOUNT_SYS + CHECK, **ucx))


def test_ranks_that_ucx_does_not_join_are_told_what_to_do(jobs: Jobs) -> None:
    job = jobs.start(2, TRY, transports="ucx", environment={"UCX_TLS": "self", "RUEDA_START_TIMEOUT": "15"})
    job.assert_ended_well()
    texts = [entry["text"] for rank in range(2) for entry in job.said(rank, "refused")]
    assert len(texts) == 2, job.everything()
    assert any(re.search("UCX does not reach rank [01]", text) for text in texts), texts
    assert any("set RUEDA_TRANSPORTS=shm,tcp" in text for text in texts), texts


@pytest.mark.parametrize(
    "body, victim, ucx",
    [
        (WAITING, 0, OVER["shared memory"]),
        (WAITING, 1, OVER["tcp"]),
        (IN_THE_MIDDLE, 1, OVER["shared memory"]),
        (IN_THE_MIDDLE, 0, OVER["tcp"]),
    ],
    ids=["waiting-0-sm", "waiting-1-tcp", "middle-1-sm", "middle-0-tcp"],
)
def test_a_killed_rank_is_named_by_all_within_seconds(
    jobs: Jobs, body: str, victim: int, ucx: Dict[str, str]
) -> None:
    job = jobs.start(3, with_victim(body, victim), transports="ucx", environment=ucx)
    if body == WAITING:
        for rank in range(3):
            job.await_said(rank, "ready")
        assert_lost(job, victim, job.kill(victim))
    else:
        assert_lost(job, victim, job.await_said(victim, "dying")["at"])
    texts = [entry["text"] for rank in range(3) for entry in job.said(rank, "lost")]
    assert all(ENDED in text for text in texts), texts  # UCX itself says "Endpoint timeout"


# Rank 1 cuts what UCX has connected; the sockets of rueda are on another address.
ONLY_UCX_BREAKS = (
    EXPECT
    + """
import socket
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
def cut():
    ends = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
            if one.family == socket.AF_INET and one.getpeername()[0] == "127.0.0.1":
                one.shutdown(socket.SHUT_RDWR)
                ends += 1
            one.close()
        except OSError:  # not a socket, or not connected
            pass
    assert ends, "UCX has connected nothing on 127.0.0.1"
def until_lost():
    for step in range(1000):
        if hvd.rank() == 1 and step == 20:
            cut()
        hvd.allreduce(torch.ones(1000), name=f"gradient.{step % 4}")
expect_loss(until_lost)
say("done")
await_file("over")  # so that no process ends before the verdict
"""
)


def test_a_broken_connection_of_ucx_is_not_the_end_of_a_process(jobs: Jobs, cable: Tuple[str, str]) -> None:
    """In a name space of their own, ranks have an address beside that of loopback, which UCX uses."""
    apart = {"TEST_SPACE": cable[0], "RUEDA_INTERFACE": "wire", **OVER["tcp"]}
    started = jobs.start(
        2, ENTER + ONLY_UCX_BREAKS, apart, "ucx", by_rank=lambda rank: {"RUEDA_HOSTNAME": f"host-{rank}"}
    )
    for rank in range(2):
        started.await_said(rank, "done")
    started.release("over")
    started.assert_ended_well()
    texts = [entry["text"] for rank in range(2) for entry in started.said(rank, "lost")]
    assert len(texts) == 2 and not any(ENDED in text for text in texts), texts
    assert any("UCX" in text or "did not" in text for text in texts), texts


def test_a_cut_cable_is_not_the_end_of_a_process(jobs: Jobs, cable: Tuple[str, str]) -> None:
    body = (
        MOUNT_SYS
        + EXPECT
        + """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
def train():
    while True:
        hvd.allreduce(torch.ones(200_000), name="gradient")
expect_loss(train)
"""
    )
    ucx = {"RUEDA_TRANSPORTS": "shm,ucx", "UCX_TLS": "tcp", "UCX_NET_DEVICES": "wire"}
    job = start_in_spaces(jobs, cable, body, RUEDA_PEER_TIMEOUT_SECONDS="4", **ucx)
    for rank in range(RANKS):
        job.await_said(rank, "ready")
    ip("-n", cable[0], "link", "set", "wire", "down")
    job.assert_ended_well()
    texts = [entry["text"] for rank in range(RANKS) for entry in job.said(rank, "lost")]
    assert len(texts) == RANKS, job.everything()
    # A rank may hear of another survivor's end before the verdict; rank 0 decides by itself.
    assert ENDED not in job.said(0, "lost")[0]["text"], texts


# Killed at any moment of large messages, while the survivors send to it.
AMID_MESSAGES = (
    EXPECT
    + """
hvd.init()
big = torch.ones(16 << 20)
hvd.allreduce_(big, name="warm-up")
def die():
    say("dying")
    os.kill(os.getpid(), signal.SIGKILL)
def until_killed():
    if hvd.rank() == VICTIM:
        threading.Timer(DELAY_S, die).start()
    for turn in range(1000):
        parts = enumerate(big.split(4 << 20))
        handles = [hvd.allreduce_async_(part, name=f"{turn}.{i}") for i, part in parts]
        for handle in handles:
            hvd.synchronize(handle)
expect_loss(until_killed)
"""
)


@pytest.mark.parametrize("victim, delay_s", [(0, 0.05), (1, 0.21)])
def test_survivors_of_a_rank_killed_amid_messages_over_tcp_live(
    jobs: Jobs, victim: int, delay_s: float
) -> None:
    body = f"DELAY_S = {delay_s}\n" + with_victim(AMID_MESSAGES, victim)
    job = jobs.start(3, body, transports="ucx", environment=OVER["tcp"])
    assert_lost(job, victim, job.await_said(victim, "dying")["at"])


def test_two_jobs_run_at_once(jobs: Jobs) -> None:
    started = [jobs.start(2, SUMS, transports="ucx", environment=OVER["tcp"]) for _ in range(2)]
    first, second = (digests(job) for job in started)
    assert len(first) == 2 and first == second


def test_a_lost_rank_that_is_started_again_joins_the_next_init(jobs: Jobs) -> None:
    body = "VICTIM = 1\nif not os.path.exists('again'):\n" + textwrap.indent(AFTER_A_LOSS, "    ") + TRY
    job = jobs.start(3, body, transports="ucx", environment=OVER["shared memory"])
    for rank in range(3):
        job.await_said(rank, "ready")
    job.kill(1)
    job.wait(ranks=[1])
    job.release("again")
    job.start_again(1)
    job.assert_ended_well()
    assert all(job.said(rank, "up")[0]["sum"] == [3, 3, 3] for rank in range(3)), job.everything()


LEFT_ALONE = """
import ctypes
class Action(ctypes.Structure):  # struct sigaction begins with the handler
    _fields_ = [("handler", ctypes.c_void_p), ("rest", ctypes.c_char * 256)]
def handlers():
    found, action = [], Action()
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGHUP):
        assert ctypes.CDLL(None).sigaction(int(number), None, ctypes.byref(action)) == 0
        found.append(action.handler)
    return found
before = handlers()
hvd.init()
assert hvd.allreduce(torch.ones(100_000), op=hvd.Sum, name="before")[0] == 2
child = os.fork()  # as a data loader does
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert hvd.allreduce(torch.ones(100_000), op=hvd.Sum, name="after")[0] == 2
assert handlers() == before, (handlers(), before)
hvd.shutdown()
"""


@over
def test_signals_output_and_forked_children_are_left_alone(jobs: Jobs, ucx: Dict[str, str]) -> None:
    job = jobs.start(2, LEFT_ALONE, transports="ucx", environment=ucx)
    job.assert_ended_well()
    assert [job.output(rank) for rank in range(2)] == ["", ""]


# ---- hosts whose UCX is missing or too old ----

REFUSED = """
import rueda.numpy as hvd
print("imported", flush=True)
input()
try:
    hvd.init()
except ValueError as error:
    print(error)
"""


def refusals(library_paths: List[str]) -> List[str]:
    """What each rank prints; a path for each, in which the rank finds libucp.so.0 first."""
    folder, ranks = make_job_folder(), len(library_paths)
    try:
        started = []
        for rank, path in enumerate(library_paths):
            environment = {**rank_environment(rank, ranks, folder, "ucx"), "RUEDA_START_TIMEOUT": "30"}
            environment.update({"LD_LIBRARY_PATH": path} if path else OVER["shared memory"])
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", REFUSED],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in started:  # a rank that fails does not wait for long for one that has not come
            assert process.stdout.readline() == "imported\n"
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.communicate(timeout=60)[0] for process in started]
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("lacking", [(0, 1), (0,), (1,)], ids=["all", "rank 0", "rank 1"])
def test_a_library_that_is_missing_is_one_sentence_on_every_rank(
    tmp_path: Path, lacking: Tuple[int, ...]
) -> None:
    (tmp_path / "libucp.so.0").touch()  # the loader takes this broken file, and looks no further
    texts = refusals([str(tmp_path) if rank in lacking else "" for rank in range(2)])
    for text in texts:
        assert "RUEDA_TRANSPORTS names ucx, but the library cannot be loaded" in text, texts
        assert "libucx0" in text, texts
    for rank in lacking:
        assert "libucp.so.0" in texts[rank], texts


def test_a_library_that_is_too_old_is_one_sentence_on_every_rank(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a compiler to make an old library")
    source = (
        'extern "C" void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1, *b = 12, *c = 0; }'
    )
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(tmp_path / "libucp.so.0")],
        input=source,
        text=True,
        check=True,
        timeout=60,
    )
    for text in refusals([str(tmp_path)] * 2):
        assert re.search(
            r"the installed UCX is version 1\.12\.0, and 1\.13 or a later 1\.x is needed", text
        ), text
