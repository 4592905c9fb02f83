"""Mistakes before training: each rank that can know says in one sentence what is wrong, soon.

That ranks of different releases refuse each other is tested where releases can be chosen:
base_handshake_test and runtime_peer_info_test.
"""

import os
import re
import shutil
import socket
import subprocess
import textwrap
from typing import Callable, Dict, List

import pytest
from ports import free_port
from robust_support import Job, Jobs, make_jobs

__all__ = ["make_jobs"]  # the fixture `jobs`

START_S = 4.0  # for ranks that come to nothing; both must have come by then
SOON_S = 90.0  # on a machine that does much else
BEGIN = "Horovod initialization failed. Please check log messages above for a more descriptive error."

TRY = """
began = time.monotonic()
try:
    hvd.init()
except ValueError as error:
    say("refused", text=str(error), after=time.monotonic() - began)
    assert not hvd.is_initialized()
else:
    say("up", sum=hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist())
"""


def refusals(job: Job, within_s: float = START_S + SOON_S) -> List[str]:
    """The sentence each rank gave, in time; every rank then ended by itself."""
    job.assert_ended_well()
    texts = []
    for rank in range(len(job.pids)):
        (refused,) = job.said(rank, "refused") or [None]
        assert refused is not None, job.everything()
        assert refused["after"] < within_s, refused
        assert refused["text"].startswith(BEGIN), refused
        texts.append(refused["text"][len(BEGIN) :].strip())
        assert texts[-1] and "\n" not in texts[-1], texts
    return texts


def on_rank(culprit: int, variables: Dict[str, str]) -> Callable[[int], Dict[str, str]]:
    return lambda rank: variables if rank == culprit else {}


START = {"RUEDA_START_TIMEOUT": str(START_S)}
NOT_AWAITED = {"RUEDA_START_TIMEOUT": "180"}  # the mistake is told before

# A wrong variable on one rank, and what must be in its sentence.
WRONG = {
    "bogus transport": ({"RUEDA_TRANSPORTS": "bogus"}, ["RUEDA_TRANSPORTS", "bogus"]),
    "number out of range": ({"RUEDA_CYCLE_TIME": "-3"}, ["RUEDA_CYCLE_TIME", "-3"]),
    "no number": ({"RUEDA_FUSION_THRESHOLD": "lots"}, ["RUEDA_FUSION_THRESHOLD", "lots"]),
    "alias out of range": ({"HOROVOD_CYCLE_TIME": "-3"}, ["HOROVOD_CYCLE_TIME", "-3"]),
    "unknown algorithm": ({"RUEDA_ALGORITHM": "magic"}, ["magic"]),
    "unknown determinism": ({"RUEDA_DETERMINISM": "maybe"}, ["RUEDA_DETERMINISM", "maybe", "hosts|bitwise"]),
    "an algorithm that breaks the order asked for": (
        {"RUEDA_ALGORITHM": "ring", "RUEDA_DETERMINISM": "bitwise"},
        ["RUEDA_ALGORITHM=ring", "RUEDA_DETERMINISM=bitwise", "unset one of them"],
    ),
    "no such interface": (
        {"RUEDA_INTERFACE": "nosuch0", "RUEDA_TRANSPORTS": "tcp"},
        ["nosuch0"],
    ),
}


@pytest.mark.parametrize("culprit", [0, 1])
@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_setting_on_one_rank_is_named_on_all(jobs: Jobs, mistake: str, culprit: int) -> None:
    variables, words = WRONG[mistake]
    job = jobs.start(2, TRY, environment=NOT_AWAITED, by_rank=on_rank(culprit, variables))
    texts = refusals(job, SOON_S)
    for word in words:
        assert word in texts[culprit], texts
    assert f"rank {culprit}" in texts[1 - culprit] or words[0] in texts[1 - culprit], texts


@pytest.mark.parametrize(
    "variables, words",
    [
        ({"RUEDA_RANK": "5"}, ["RUEDA_RANK=5"]),
        ({"RUEDA_RANK": "-1"}, ["RUEDA_RANK", "-1"]),
        ({"RUEDA_SIZE": "0"}, ["RUEDA_SIZE"]),
        ({"RUEDA_LOCAL_RANK": "9"}, ["RUEDA_LOCAL_RANK=9"]),
        ({"RUEDA_STORE": "gopher://x"}, ["gopher://x"]),
        ({"RUEDA_STORE": ""}, ["RUEDA_STORE"]),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_an_impossible_place_is_refused_by_its_rank(
    jobs: Jobs, variables: Dict[str, str], words: List[str]
) -> None:
    job = jobs.start(2, TRY, environment=START, by_rank=on_rank(1, variables))
    texts = refusals(job)
    for word in words:
        assert word in texts[1], texts
    assert "rank 1" in texts[0], texts  # it did not come, as far as rank 0 can know


def test_two_ranks_with_the_same_number_do_not_become_a_world(jobs: Jobs) -> None:
    job = jobs.start(3, TRY, environment=START, by_rank=on_rank(2, {"RUEDA_RANK": "1"}))
    refusals(job)


@pytest.mark.parametrize("store", ["file://$FOLDER/store", "tcp"])
@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
def test_a_rank_with_another_secret_is_refused(jobs: Jobs, store: str, transports: str) -> None:
    url = f"tcp://127.0.0.1:{free_port()}" if store == "tcp" else store
    body = (
        """
if os.environ["RUEDA_RANK"] == "1":
    os.umask(0o077)
    open("wrong", "w").write("ab" * 32)
    os.environ["RUEDA_SECRET_FILE"] = os.getcwd() + "/wrong"
"""
        + TRY
    )
    job = jobs.start(2, body, environment={**START, "RUEDA_STORE": url}, transports=transports)
    texts = refusals(job)
    assert "secret" in texts[1], texts
    assert "secret" in texts[0] or "rank 1" in texts[0], texts
    if store.startswith("tcp"):
        assert "rank 1" in texts[0] and "The store has refused a caller meanwhile" in texts[0], texts
    if store == "tcp":  # rank 0 hears of it only as the one that serves the store
        assert "refused a connection" in job.everything()


def test_ranks_of_another_job_do_not_join(jobs: Jobs) -> None:
    url = f"tcp://127.0.0.1:{free_port()}"
    environment = {**START, "RUEDA_STORE": url}
    job = jobs.start(2, TRY, environment=environment, by_rank=lambda rank: {"RUEDA_JOB": f"job-of-{rank}"})
    texts = refusals(job)
    assert "job" in texts[1] and "rank 1" in texts[0], texts


def test_a_port_in_use_is_named(jobs: Jobs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {**START, "RUEDA_STORE": f"tcp://127.0.0.1:{port}"}
        texts = refusals(jobs.start(2, TRY, environment=environment))
    assert f"port {port}" in texts[0] and "in use" in texts[0], texts
    assert str(port) in texts[1], texts


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_secret_that_others_may_read_is_refused(jobs: Jobs, mode: int) -> None:
    body = f"""
os.chmod(os.environ["RUEDA_SECRET_FILE"], {mode})
{TRY}
"""
    texts = refusals(jobs.start(2, body, environment=NOT_AWAITED), SOON_S)
    for text in texts:
        assert "secret" in text and "600" in text, texts


def test_a_missing_secret_file_is_named(jobs: Jobs) -> None:
    job = jobs.start(2, TRY, environment={**NOT_AWAITED, "RUEDA_SECRET_FILE": "/nowhere/secret"})
    texts = refusals(job, SOON_S)
    assert all("/nowhere/secret" in text for text in texts), texts


def test_a_store_folder_that_cannot_be_made_is_named(jobs: Jobs) -> None:
    job = jobs.start(2, TRY, environment={**NOT_AWAITED, "RUEDA_STORE": "file:///proc/nowhere"})
    texts = refusals(job, SOON_S)
    assert all("/proc/nowhere" in text for text in texts), texts


def test_the_world_of_a_retry_has_no_trace_of_the_failure(jobs: Jobs) -> None:
    body = f"""
os.environ["RUEDA_TRANSPORTS"] = "bogus" if os.environ["RUEDA_RANK"] == "1" else "tcp"
{TRY}
os.environ["RUEDA_TRANSPORTS"] = "tcp"
hvd.init()
say("sum", sum=hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist())
"""
    job = jobs.start(2, body, environment=NOT_AWAITED)
    refusals(job, SOON_S)
    assert all(job.said(rank, "sum")[0]["sum"] == [2, 2, 2] for rank in range(2))


def can_unshare() -> bool:
    tool = shutil.which("unshare")
    return tool is not None and subprocess.run([tool, "-m", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a mount name space")
def test_a_tiny_dev_shm_is_enough(jobs: Jobs) -> None:
    body = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
assert libc.unshare(CLONE_NEWNS) == 0
assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
assert libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=64k") == 0
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 65536
hvd.init()
numbers = torch.arange(3_000_000.0)
assert torch.equal(hvd.allreduce(numbers, op=hvd.Sum), 2 * numbers)
"""
    job = jobs.start(2, body)
    job.assert_ended_well()
    assert os.path.isdir("/dev/shm")


@pytest.mark.skipif(not can_unshare(), reason="needs the right to make a network name space")
def test_every_rank_reads_why_the_dialler_could_not_connect(jobs: Jobs) -> None:
    body = f"""
import ctypes
CLONE_NEWNET = 0x40000000
if os.environ["RUEDA_RANK"] == "1":
    assert ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0
{TRY}
"""
    job = jobs.start(2, body, transports="tcp", environment={**START, "RUEDA_STORE": "file://$FOLDER/store"})
    for text in refusals(job):
        assert re.search(
            r"no connection in time from rank 1 \(.*\) to rank 0 \(.*: Network is unrea", text
        ), text
        assert "RUEDA_INTERFACE" in text, text


def in_few(files: int, hard: bool) -> str:
    """A body in whose ranks of an odd number so many more files may be opened than are open."""
    limit = "(most, most)" if hard else "(most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])"
    return f"""
import resource
if int(os.environ["RUEDA_RANK"]) == 1:
    most = 1 + max(int(name) for name in os.listdir("/proc/self/fd")) + {files}
    resource.setrlimit(resource.RLIMIT_NOFILE, {limit})
{TRY}
"""


@pytest.mark.parametrize("transports", ["shm,tcp", "tcp"])
@pytest.mark.parametrize("files", [4, 8, 12, 16, 20])
def test_a_rank_without_file_descriptors_is_the_cause_on_every_rank(
    jobs: Jobs, transports: str, files: int
) -> None:
    job = jobs.start(3, in_few(files, hard=True), transports=transports, environment=NOT_AWAITED)
    job.assert_ended_well()
    if job.said(1, "up"):
        assert files > 8, job.everything()
        return
    for rank, text in enumerate(refusals(job, SOON_S)):
        assert "rank 1" in text or rank == 1, job.everything()
        assert "descriptors" in text or "open files" in text, job.everything()


def test_a_low_soft_limit_of_file_descriptors_is_raised(jobs: Jobs) -> None:
    job = jobs.start(3, in_few(4, hard=False))
    job.assert_ended_well()
    assert all(job.said(rank, "up") for rank in range(3)), job.everything()


AFTER_A_LOSS = """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
if hvd.rank() == VICTIM:
    await_file("never")
try:
    hvd.allreduce(torch.ones(2), name="awaited")
except hvd.HorovodInternalError:
    hvd.shutdown()
"""


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("store", ["file://$FOLDER/store", "tcp"])
def test_init_after_a_loss_names_the_rank_that_is_not_back(jobs: Jobs, victim: int, store: str) -> None:
    url = f"tcp://127.0.0.1:{free_port()}" if store == "tcp" else store
    body = f"VICTIM = {victim}\n" + AFTER_A_LOSS + TRY
    job = jobs.start(3, body, environment={"RUEDA_STORE": url, **NOT_AWAITED})
    survivors = [rank for rank in range(3) if rank != victim]
    for rank in range(3):
        job.await_said(rank, "ready")
    job.kill(victim)
    job.assert_ended_well(survivors)
    for rank in survivors:
        (refused,) = job.said(rank, "refused")
        assert f"rank {victim} (host" in refused["text"] and "not come back" in refused["text"], refused
        assert refused["after"] < SOON_S, refused


def test_a_lost_rank_that_is_started_again_joins_the_next_init(jobs: Jobs) -> None:
    body = "VICTIM = 1\nif not os.path.exists('again'):\n" + textwrap.indent(AFTER_A_LOSS, "    ") + TRY
    job = jobs.start(3, body)
    for rank in range(3):
        job.await_said(rank, "ready")
    job.kill(1)
    job.wait(ranks=[1])
    job.release("again")
    job.start_again(1)
    job.assert_ended_well()
    assert all(job.said(rank, "up")[0]["sum"] == [3, 3, 3] for rank in range(3)), job.everything()
