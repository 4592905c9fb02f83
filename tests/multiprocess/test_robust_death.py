"""A rank that dies, stops or leaves: the others hear at once, with its name, and end cleanly."""

import os
import re
import signal

import pytest
from robust_support import Job, Jobs, living_of_session, make_jobs, wait_until

__all__ = ["make_jobs"]  # the fixture `jobs`

# At once, and not only after the peer timeout, which is 30 s: also on a machine that does much else.
NOTICE_S = 20.0
# Of a rank that is stopped. The others must be heard within it.
TIMEOUT_S = 4
TRANSPORTS = ["shm,tcp", "tcp"]

# What a survivor does: it expects the error and reports its text.
EXPECT = """
def expect_loss(body):
    try:
        body()
    except hvd.HorovodInternalError as error:
        assert isinstance(error, RuntimeError)
        say("lost", text=str(error))
    else:
        say("not lost")
"""


def assert_lost(job: Job, victim: int, since: float, within_s: float = NOTICE_S) -> None:
    """Every survivor raised, named the victim in time, and ended."""
    survivors = [rank for rank in range(len(job.pids)) if rank != victim]
    job.assert_ended_well(survivors)
    for rank in survivors:
        (lost,) = job.said(rank, "lost") or [None]
        assert lost is not None, job.everything()
        assert re.search(rf"\brank {victim}\b", lost["text"]), lost
        assert lost["at"] - since < within_s, (lost["at"] - since, job.everything())
        assert job.ended_at(rank) - lost["at"] < NOTICE_S, "slow to end"


WAITING = (
    EXPECT
    + """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
if hvd.rank() == VICTIM:
    await_file("never")
expect_loss(lambda: hvd.allreduce(torch.ones(1000), name="awaited"))
"""
)

# More ranks than meet one another directly: short sums go up and down a tree.
GATHERING = (
    EXPECT
    + """
hvd.init()
for _ in range(20):  # so that it runs by a plan
    hvd.allreduce(torch.ones(2), name="small")
say("ready")
if hvd.rank() == VICTIM:
    await_file("never")
expect_loss(lambda: hvd.allreduce(torch.ones(2), name="small"))
"""
)

BETWEEN = (
    EXPECT
    + """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
await_file("killed" if hvd.rank() != VICTIM else "never")
def two_more():
    hvd.allreduce(torch.ones(1000), name="more")
    hvd.allreduce(torch.ones(1000), name="more")
expect_loss(two_more)
"""
)

# The victim dies when part of the result has arrived.
IN_THE_MIDDLE = (
    EXPECT
    + """
hvd.init()
big = torch.ones(64 << 20)
samples = torch.arange(0, big.numel(), big.numel() // 64)
def until_killed():
    for turn in range(50):
        big.fill_(1.0)
        handle = hvd.allreduce_async_(big, name=f"big.{turn}", op=hvd.Sum)
        while hvd.rank() == VICTIM and not hvd.poll(handle):
            if bool((big[samples] != 1.0).any()):
                say("dying")
                os.kill(os.getpid(), signal.SIGKILL)
        hvd.synchronize(handle)
expect_loss(until_killed)
"""
)


def with_victim(body: str, victim: int) -> str:
    return f"VICTIM = {victim}\n{body}"


@pytest.mark.parametrize("transports", TRANSPORTS)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_killed_while_others_wait_for_it_is_named(jobs: Jobs, victim: int, transports: str) -> None:
    job = jobs.start(3, with_victim(WAITING, victim), transports=transports)
    for rank in range(3):
        job.await_said(rank, "ready")
    assert_lost(job, victim, job.kill(victim))


@pytest.mark.parametrize("victim", [0, 4, 9])
def test_a_rank_killed_while_many_gather_is_named(jobs: Jobs, victim: int) -> None:
    job = jobs.start(10, with_victim(GATHERING, victim), transports="shm,tcp")
    for rank in range(10):
        job.await_said(rank, "ready")
    assert_lost(job, victim, job.kill(victim))


@pytest.mark.parametrize("transports", TRANSPORTS)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_killed_between_collectives_is_named(jobs: Jobs, victim: int, transports: str) -> None:
    job = jobs.start(3, with_victim(BETWEEN, victim), transports=transports)
    for rank in range(3):
        job.await_said(rank, "ready")
    killed = job.kill(victim)
    job.release("killed")
    assert_lost(job, victim, killed)


@pytest.mark.parametrize("transports", TRANSPORTS)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_rank_killed_in_the_middle_of_256_mb_is_named(jobs: Jobs, victim: int, transports: str) -> None:
    job = jobs.start(3, with_victim(IN_THE_MIDDLE, victim), transports=transports)
    dying = job.await_said(victim, "dying")
    assert_lost(job, victim, dying["at"])


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_a_killed_rank_whose_forked_children_live_on_is_named(jobs: Jobs, transports: str) -> None:
    children = """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
if hvd.rank() == VICTIM:
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
say("ready")
if hvd.rank() == VICTIM:
    await_file("never")
expect_loss(lambda: hvd.allreduce(torch.ones(1000), name="awaited"))
"""
    job = jobs.start(3, with_victim(EXPECT + children, 1), transports=transports)
    for rank in range(3):
        job.await_said(rank, "ready")
    killed = job.kill(1)
    assert_lost(job, 1, killed)
    orphans = living_of_session(job.pids[1])
    assert len(orphans) == 3, "the test has lost its point: no child outlived its rank"
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not living_of_session(job.pids[1]), NOTICE_S, "the end of the children")


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_data_loader_workers_forked_after_init_are_harmless(jobs: Jobs, transports: str) -> None:
    body = """
hvd.init()
data = torch.utils.data.TensorDataset(torch.arange(24.0))
for epoch in range(4):
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    for (batch,) in loader:
        assert hvd.allreduce(batch, op=hvd.Sum).tolist() == (2 * batch).tolist()
"""
    job = jobs.start(2, body, transports=transports)
    job.assert_ended_well()


@pytest.mark.parametrize("transports", TRANSPORTS)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_stopped_rank_is_named_after_the_peer_timeout(jobs: Jobs, victim: int, transports: str) -> None:
    job = jobs.start(
        3,
        with_victim(WAITING, victim),
        transports=transports,
        environment={"RUEDA_PEER_TIMEOUT_SECONDS": str(TIMEOUT_S)},
    )
    for rank in range(3):
        job.await_said(rank, "ready")
    stopped = job.kill(victim, signal.SIGSTOP)
    assert_lost(job, victim, stopped, within_s=TIMEOUT_S + NOTICE_S)
    job.kill(victim, signal.SIGCONT)  # it finds its job gone
    job.release("never")
    assert job.wait(ranks=[victim]) == [0], job.everything()
    assert job.said(victim, "lost"), job.everything()


def test_a_rank_stopped_for_less_than_the_timeout_goes_on(jobs: Jobs) -> None:
    body = """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
for i in range(3):
    assert hvd.allreduce(torch.ones(1000), op=hvd.Sum).sum().item() == 2000
    if i == 0:
        await_file("stopped")
"""
    job = jobs.start(2, body, environment={"RUEDA_VERDICT_SECONDS": "1"})
    for rank in range(2):
        job.await_said(rank, "ready")
    job.kill(1, signal.SIGSTOP)
    job.release("stopped")
    stopped = "Verdict: stopped: rank 1 "
    wait_until(lambda: stopped in job.output(0), NOTICE_S, "the other rank sees that it is stopped")
    job.kill(1, signal.SIGCONT)
    job.assert_ended_well()


# How a rank may leave, and whether the others take it for the end of the job or for a loss.
LEAVING = {
    "sys.exit": ("sys.exit(0)", 0, "Horovod has been shut down"),
    "end of script": ("", 0, "Horovod has been shut down"),
    "exception": ("raise KeyError('mine')", 1, "Horovod has been shut down"),
    "pending operations": (
        "pending = [hvd.allreduce_async(torch.ones(9), name=f'mine.{i}') for i in range(50)]; sys.exit(0)",
        0,
        "Horovod has been shut down",
    ),
    "shutdown": ("hvd.shutdown()", 0, "Horovod has been shut down"),
    "os._exit": ("sys.stdout.flush(); os._exit(7)", 7, "rank 1"),
}


@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("transports", TRANSPORTS)
def test_a_rank_that_leaves_early_fails_the_operations_of_others_at_once(
    jobs: Jobs, how: str, transports: str
) -> None:
    source, status, text = LEAVING[how]
    body = f"""
{EXPECT}
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
await_file("all are ready")  # who has a result may go while others still wait for theirs
if hvd.rank() == 1:
    say("leaving")
    {source or "pass"}
else:
    expect_loss(lambda: [hvd.allreduce(torch.ones(1000), name="more") for _ in range(3)])
    expect_loss(lambda: hvd.allreduce(torch.ones(3), name="even more"))
"""
    job = jobs.start(3, body, transports=transports)
    for rank in range(3):
        job.await_said(rank, "ready")
    job.release("all are ready")
    assert job.wait() == [0, status, 0], job.everything()
    (leaving,) = job.said(1, "leaving")
    for rank in (0, 2):
        first, second = job.said(rank, "lost")
        assert text in first["text"] and text in second["text"], first
        assert "rank 1" in first["text"] and "rank 1" in second["text"], first
        assert first["at"] - leaving["at"] < NOTICE_S, job.everything()
    assert max(job.ended_at(rank) for rank in range(3)) - leaving["at"] < NOTICE_S, job.everything()


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_exit_during_pending_operations_of_all_ranks_is_clean(jobs: Jobs, transports: str) -> None:
    body = """
hvd.init()
mine = [hvd.allreduce_async(torch.ones(100_000), name=f"{hvd.rank()}.{i}") for i in range(20)]
ours = [hvd.allreduce_async(torch.ones(100_000), name=f"all.{i}") for i in range(20)]
say("submitted")
await_file("go")
say("leaving")
"""
    job = jobs.start(3, body, transports=transports)
    for rank in range(3):
        job.await_said(rank, "submitted")
    job.release("go")
    job.assert_ended_well()
    leaving = max(job.said(rank, "leaving")[0]["at"] for rank in range(3))
    assert max(job.ended_at(rank) for rank in range(3)) - leaving < NOTICE_S


@pytest.mark.parametrize("transports", TRANSPORTS)
def test_two_hundred_lives_of_a_world_leave_no_descriptor_and_no_thread(jobs: Jobs, transports: str) -> None:
    body = """
def possessions():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
for life in range(200):
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [2, 2]
    hvd.shutdown()
    if life == 5:
        before = possessions()
assert possessions() == before, (before, possessions())
"""
    job = jobs.start(2, body, transports=transports)
    job.assert_ended_well(limit_s=90)


def test_init_works_on_all_ranks_after_it_failed_on_one(jobs: Jobs) -> None:
    body = """
me = int(os.environ["RUEDA_RANK"])
for attempt in range(3):
    os.environ["RUEDA_CYCLE_TIME"] = "-1" if attempt == me else "0"
    try:
        hvd.init()
    except ValueError as error:
        say("refused", text=str(error))
        assert not hvd.is_initialized()
    else:
        say("up")
        hvd.shutdown()
os.environ["RUEDA_CYCLE_TIME"] = "0"
hvd.init()
assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [3, 3]
"""
    job = jobs.start(3, body)
    job.assert_ended_well()
    for rank in range(3):
        refusals = [record["text"] for record in job.said(rank, "refused")]
        assert len(refusals) == 3, job.everything()
        for culprit, text in enumerate(refusals):
            assert "RUEDA_CYCLE_TIME" in text and (culprit == rank or f"rank {culprit}" in text), text
