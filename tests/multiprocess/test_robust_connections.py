"""A connection that breaks between two living ranks is no loss of a rank, and all ranks hear which it was."""

import re

import pytest
from robust_support import Jobs, make_jobs

__all__ = ["make_jobs"]  # the fixture `jobs`

# Ends the connections of this rank to another one, and nothing else: their ports are told through files.
BREAK = """
import socket, stat
def sockets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
def ports():
    ends = set()
    for one in sockets():
        if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM:
            try:
                ends.add((one.getsockname(), one.getpeername()))
            except OSError:
                pass
        one.close()
    return ends
def break_connections_with(ends):
    broken = 0
    for one in sockets():
        if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM:
            try:
                if (one.getpeername(), one.getsockname()) in ends:
                    one.shutdown(socket.SHUT_RDWR)
                    broken += 1
            except OSError:
                pass
        one.close()
    return broken
"""

BODY = (
    BREAK
    + """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
if hvd.rank() == ONE:
    with open("ports.new", "w") as out:
        json.dump(sorted(ports()), out)
    os.rename("ports.new", "ports")
say("ready")
if hvd.rank() == OTHER:
    await_file("ports")
    await_file("now")
    ends = {(tuple(mine), tuple(theirs)) for mine, theirs in json.load(open("ports"))}
    assert break_connections_with(ends) == 1
try:
    hvd.allreduce(torch.ones(1000), name="awaited" if hvd.rank() else "nobody else's")
except hvd.HorovodInternalError as error:
    say("broken", text=str(error))
"""
)


@pytest.mark.parametrize("other", [2, 1])
def test_a_connection_that_breaks_between_living_ranks_is_told_as_one(jobs: Jobs, other: int) -> None:
    job = jobs.start(4, f"ONE, OTHER = 3, {other}\n{BODY}", transports="tcp")
    for rank in range(4):
        job.await_said(rank, "ready")
    job.release("now")
    job.assert_ended_well()
    for rank in range(4):
        (broken,) = job.said(rank, "broken")
        assert re.search(
            rf"the connection between rank {other} \(.*\) and rank 3 \(.*\) broke", broken["text"]
        )
        assert "lost" not in broken["text"], broken
