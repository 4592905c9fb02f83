"""A launcher, a rank or a member of another build of rueda: both ends of the store say so in one sentence. No
test measures how soon; each would wait for RUEDA_START_TIMEOUT, which is longer than its limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List

import other_build
import pytest
from harness import PATIENCE, rank_environment
from launch_support import PYTHON, Run
from other_build import BEFORE_THE_NUMBER, WIRE
from ports import free_port

LIMIT_S = 120.0 * PATIENCE
INIT = "from rueda import _core\nif _core.init(None): raise SystemExit('it says: ' + _core.last_error())"
FAKE = str(Path(other_build.__file__))
WORDS = {BEFORE_THE_NUMBER: "wire version 1", WIRE: "store protocol 999"}
OF_LAUNCHER = "start the job with the `rueda` command of the installation that its ranks load"
OF_HOSTS = "use the same installation of rueda on all hosts of the job"
# Without it, ranks look for the relay of their host.
ONE_HOST = {"RUEDA_LOCAL_RANK": "1", "RUEDA_LOCAL_SIZE": "2"}
WIRES = pytest.mark.parametrize("wire", [BEFORE_THE_NUMBER, WIRE], ids=["before_the_number", "other_number"])


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[bytes]:
    made = os.urandom(32)
    (tmp_path / "secret").write_bytes(made)
    (tmp_path / "secret").chmod(0o600)
    yield made


def start(rank: int, folder: Path, port: int, program: List[str], **variables: str) -> subprocess.Popen[str]:
    given = rank_environment(rank, 2, folder, "shm,tcp")
    environment: Dict[str, str] = {
        **{name: value for name, value in given.items() if "_LOCAL_" not in name},
        "RUEDA_STORE": f"tcp://127.0.0.1:{port}",
        "RUEDA_JOB": "other-build",
        "RUEDA_HOSTNAME": "here",
        "RUEDA_START_TIMEOUT": "36000",
        **variables,
    }
    return subprocess.Popen([sys.executable, *program], env=environment, stderr=subprocess.PIPE, text=True)


def end_of(process: subprocess.Popen[str]) -> str:
    try:
        said = process.communicate(timeout=LIMIT_S)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("it waits: " + process.communicate()[1])
    assert process.returncode == 1, said
    return said


@WIRES
@pytest.mark.parametrize(
    ("variables", "server", "advice"),
    [
        ({"RUEDA_STORE_SERVED": "1", **ONE_HOST}, "the launcher's store", OF_LAUNCHER),
        ({"RUEDA_STORE_SERVED": "1"}, "the launcher's store", OF_LAUNCHER),
        (ONE_HOST, "the store", OF_HOSTS),
        ({"RUEDA_ELASTIC": "members"}, "the store", OF_HOSTS),
    ],
    ids=["launcher", "launcher_of_many_hosts", "rank_0", "member"],
)
def test_a_rank_names_the_store_that_it_cannot_use(
    wire: int, variables: Dict[str, str], server: str, advice: str, secret: bytes, tmp_path: Path
) -> None:
    with other_build.store(wire, secret) as port:
        said = end_of(start(1, tmp_path, port, ["-c", INIT], **variables))
    mine = "wire version 2" if wire == BEFORE_THE_NUMBER else "store protocol "
    assert f"it says: rank 1 on here runs rueda {other_build.RELEASE} with {mine}" in said
    place = f"{server} at tcp://127.0.0.1:{port}"
    assert f"but {place} is of rueda {other_build.RELEASE} with {WORDS[wire]}; {advice}" in said


@WIRES
def test_a_launcher_names_the_ranks_that_cannot_use_its_store(wire: int) -> None:
    status, _, said = Run("-np", 2, PYTHON, FAKE, wire, env={"RUEDA_START_TIMEOUT": "36000"}).finish(LIMIT_S)
    outcome = other_build.WRONG_VERSION if wire == BEFORE_THE_NUMBER else other_build.WRONG_PROTOCOL
    assert status == 1 and f"refused with outcome {outcome}" in said
    assert f"on 127.0.0.1 runs rueda {other_build.RELEASE} with {WORDS[wire]}, but this store is of" in said
    assert OF_LAUNCHER in said


def test_rank_0_that_serves_the_store_ends_with_the_sentence_as_well(secret: bytes, tmp_path: Path) -> None:
    port = free_port()
    zero = start(0, tmp_path, port, ["-c", INIT])
    deadline = time.monotonic() + LIMIT_S
    one = start(1, tmp_path, port, [FAKE, str(WIRE)])
    while "Connection refused" in end_of(one):  # rank 0 does not serve it yet
        assert time.monotonic() < deadline
        one = start(1, tmp_path, port, [FAKE, str(WIRE)])
    said = end_of(zero)
    assert (
        f"it says: rank 1 on 127.0.0.1 runs rueda {other_build.RELEASE} with {WORDS[WIRE]}, but this store"
        in said
    )
