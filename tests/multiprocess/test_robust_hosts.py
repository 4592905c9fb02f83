"""Several hosts on one machine: named by hand, and as network name spaces whose cable can be cut."""

import re
import time
from typing import Callable, Dict, Tuple

import pytest
from cables import RANKS, cut, make_cable, place, start_in_spaces, start_until_lost
from robust_support import Job, Jobs, make_jobs

__all__ = ["make_cable", "make_jobs"]  # the fixtures `cable` and `jobs`

CHECK = """
hvd.init()
me, world = hvd.rank(), hvd.size()
assert (hvd.local_rank(), hvd.local_size()) == (me % 2, 2)
assert (hvd.cross_rank(), hvd.cross_size()) == (me // 2, 2)
for count in (1, 3, 1000, 300_001):
    numbers = torch.arange(float(count)) % 1000 + me
    want = (torch.arange(float(count)) % 1000) * world + sum(range(world))
    assert torch.equal(hvd.allreduce(numbers, op=hvd.Sum), want)
    assert hvd.allgather(torch.full((count,), me)).tolist() == sum(([r] * count for r in range(world)), [])
    assert torch.equal(hvd.broadcast(numbers, 2), torch.arange(float(count)) % 1000 + 2)
    scattered = hvd.reducescatter(numbers.repeat(world), op=hvd.Sum)
    assert torch.equal(scattered, want)
    exchanged = hvd.alltoall(torch.full((world * count,), me))
    assert exchanged.tolist() == sum(([r] * count for r in range(world)), [])
hvd.barrier()
say("right")
"""


def assert_right(job: Job) -> None:
    job.assert_ended_well()
    assert all(job.said(rank, "right") for rank in range(RANKS)), job.everything()


@pytest.mark.parametrize("order", ["by host", "round robin"])
def test_two_named_hosts_compute_over_both_transports(jobs: Jobs, order: str) -> None:
    body = CHECK
    placed: Callable[[int], Dict[str, str]] = place
    if order == "round robin":  # ranks 0 and 2 on h0, 1 and 3 on h1
        body = CHECK.replace("(me % 2, 2)", "(me // 2, 2)", 1).replace(
            "cross_size()) == (me // 2, 2)", "cross_size()) == (me % 2, 2)"
        )
        placed = lambda rank: {  # noqa: E731
            **place(rank),
            "RUEDA_HOSTNAME": f"h{rank % 2}",
            "RUEDA_LOCAL_RANK": str(rank // 2),
        }
    assert_right(jobs.start(RANKS, body, by_rank=placed))


SUMS = """
import hashlib
hvd.init()
digest = hashlib.sha256()
def note(tensor):
    digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    for count in (1, 7, 1000, 300_001):
        torch.manual_seed(hvd.rank())
        numbers = torch.randn(count).mul_(10.0 ** hvd.rank()).to(dtype)
        note(hvd.allreduce(numbers, op=hvd.Average))
        note(torch.cat(hvd.grouped_allreduce([numbers, numbers[: count // 2 + 1]], op=hvd.Sum)))
        scattered = hvd.reducescatter(numbers.repeat(hvd.size()), op=hvd.Sum)
        note(hvd.allgather(scattered))
say("sums", digest=digest.hexdigest())
"""
PLACEMENTS = ["0000", "0011", "0101", "0123", "0001"]  # the host of each rank


def placed_on(hosts: str) -> Callable[[int], Dict[str, str]]:
    """The environment of each rank; hosts: a digit for each."""
    return lambda rank: {
        "RUEDA_HOSTNAME": f"h{hosts[rank]}",
        "RUEDA_LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
        "RUEDA_LOCAL_SIZE": str(hosts.count(hosts[rank])),
    }


def sums_by_placement(jobs: Jobs, **environment: str) -> Dict[str, str]:
    """Digest of all sums by placement; all ranks of one job have the same."""
    digests = {}
    for hosts in PLACEMENTS:
        job = jobs.start(
            RANKS,
            SUMS,
            environment=environment,
            by_rank=placed_on(hosts),
        )
        job.assert_ended_well()
        (digests[hosts],) = {entry["digest"] for rank in range(RANKS) for entry in job.said(rank, "sums")}
    return digests


def test_bitwise_sums_do_not_depend_on_where_ranks_run(jobs: Jobs) -> None:
    assert len(set(sums_by_placement(jobs, RUEDA_DETERMINISM="bitwise").values())) == 1
    assert len(set(sums_by_placement(jobs).values())) > 1, "else this test shows nothing"


# ---- name spaces ----


def test_two_name_spaces_compute_rightly(jobs: Jobs, cable: Tuple[str, str]) -> None:
    assert_right(start_in_spaces(jobs, cable, CHECK))


@pytest.mark.parametrize("doing", ["training", "idle"])
def test_a_cut_cable_is_noticed_by_every_rank(jobs: Jobs, cable: Tuple[str, str], doing: str) -> None:
    timeout_s = 5  # with less than 4, nothing tells a silent process from a silent host in time
    job = start_until_lost(jobs, cable, doing, timeout_s)
    if doing == "training":
        for rank in range(RANKS):
            job.await_said(rank, "trains")
    cut(cable)
    cut_at = time.monotonic()
    job.release("cut")
    job.assert_ended_well()
    for rank in range(RANKS):
        (lost,) = job.said(rank, "lost")
        assert re.search(r"\brank \d", lost["text"]), lost
        assert "acknowledged nothing" in lost["text"] and "stopped" not in lost["text"], lost
        assert lost["at"] - cut_at < timeout_s + 60, job.everything()
