"""Ranks on two hosts that are network name spaces, joined by a cable that can be cut."""

import contextlib
import os
import shutil
import subprocess
from typing import Dict, Iterator, Tuple

import pytest
from ports import free_port
from robust_support import Job, Jobs

HOSTS, PER_HOST = 2, 2
RANKS = HOSTS * PER_HOST


def place(rank: int) -> Dict[str, str]:
    return {
        "RUEDA_HOSTNAME": f"h{rank // PER_HOST}",
        "RUEDA_LOCAL_RANK": str(rank % PER_HOST),
        "RUEDA_LOCAL_SIZE": str(PER_HOST),
    }


WIRES = ("10.213.7.1", "10.213.7.2")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60)


@pytest.fixture(name="cable")
def make_cable() -> Iterator[Tuple[str, str]]:
    """Two network name spaces joined by a veth pair; yields their names. Device "wire" in each."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network name spaces need root and the command ip")
    spaces = (f"rueda-{os.getpid()}-0", f"rueda-{os.getpid()}-1")
    with contextlib.ExitStack() as undo:
        for space in spaces:
            try:
                ip("netns", "add", space)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"this machine allows no network name spaces: {error.stderr.strip()}")
            undo.callback(ip, "netns", "del", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip(
            "link",
            "add",
            "wire",
            "netns",
            spaces[0],
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            spaces[1],
        )
        for space, address in zip(spaces, WIRES):
            ip("-n", space, "addr", "add", f"{address}/24", "dev", "wire")
            ip("-n", space, "link", "set", "wire", "up")
        yield spaces


ENTER = """
import ctypes
with open("/run/netns/" + os.environ["TEST_SPACE"]) as space:
    assert ctypes.CDLL(None, use_errno=True).setns(space.fileno(), 0) == 0
"""


def start_in_spaces(jobs: Jobs, spaces: Tuple[str, str], body: str, **environment: str) -> Job:
    return jobs.start(
        RANKS,
        ENTER + body,
        environment={"RUEDA_STORE": f"tcp://{WIRES[0]}:{free_port()}", **environment},
        by_rank=lambda rank: {**place(rank), "TEST_SPACE": spaces[rank // PER_HOST]},
    )


def cut(cable: Tuple[str, str]) -> None:
    ip("-n", cable[0], "link", "set", "wire", "down")


def mend(cable: Tuple[str, str]) -> None:
    ip("-n", cable[0], "link", "set", "wire", "up")


# Every rank says "ready", trains until it loses another rank ("trains" after some steps), and says "lost".
UNTIL_LOST = """
hvd.init()
hvd.allreduce(torch.ones(2), name="warm-up")
say("ready")
if DOING == "idle":
    await_file("cut")
steps = 0
try:
    while True:
        hvd.allreduce(torch.ones(200_000), name="gradient")
        steps += 1
        if steps == 50:
            say("trains")
except hvd.HorovodInternalError as error:
    say("lost", text=str(error))
"""


def start_until_lost(jobs: Jobs, cable: Tuple[str, str], doing: str, timeout_s: int) -> Job:
    """Returns when all ranks are ready. doing: "training", or "idle" until the file "cut" is there."""
    job = start_in_spaces(
        jobs, cable, f"DOING = {doing!r}\n{UNTIL_LOST}", RUEDA_PEER_TIMEOUT_SECONDS=str(timeout_s)
    )
    for rank in range(RANKS):
        job.await_said(rank, "ready")
    return job
