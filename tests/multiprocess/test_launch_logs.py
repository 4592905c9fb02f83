"""What `rueda run` tells while a job starts slowly, and logs that go to a place of fsspec."""

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import launch_support
import pytest
from harness import library
from launch_support import PYTHON, RUEDA, Run, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

VARIABLES = {
    "PYTHONPATH": str(launch_support.ROOT / "python"),
    "RUEDA_LIBRARY": library(),
    "RUEDA_PYTHON": PYTHON,
    "OMP_NUM_THREADS": "1",
}


def test_a_terminal_shows_who_is_missing_in_one_line_that_is_removed(tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "import rueda.numpy as hvd\n"
        "end = time.monotonic() + 100\n"
        f"while os.environ['RANK'] == '0' and not os.path.exists({str(tmp_path / 'go')!r}):\n"
        "    assert time.monotonic() < end\n"
        "    time.sleep(0.02)\n"
        "hvd.init()\n"
        "print('together', flush=True)\n"
    )
    ours, theirs = pty.openpty()
    job = subprocess.Popen(
        ["timeout", "-k", "2", "150", RUEDA, "run", "-np", "2", "--no-prefix", PYTHON, "-c", script],
        env={**os.environ, **VARIABLES},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the terminal's other end was closed
            break
        shown += piece
        if shown.count(b"still waiting for 1 of 2 ranks in init") == 2:
            (tmp_path / "go").touch()
    os.close(ours)
    assert job.wait(60) == 0, shown
    line, rest = shown.split(b"\r\x1b[K", 1)
    assert line.startswith(b"rueda: still waiting for 1 of 2 ranks in init after 5 s: 0 on localhost"), shown
    assert b"\n" not in line and rest.endswith(b"\x1b[Ktogether\r\ntogether\r\n"), shown


def test_logs_are_copied_to_a_url(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    private = tmp_path / "tmp"
    private.mkdir()
    url = f"local://{tmp_path}/logs"
    script = "echo out $RUEDA_LOG_DIR; echo err >&2; exit $RANK"
    status, _, err = run(
        "-np", 2, "--log-dir", url, "sh", "-c", script, env={**VARIABLES, "TMPDIR": str(private)}
    )
    assert status == 1 and f"log: {url}/rank-0001.err" in err
    for rank in range(2):
        assert (
            tmp_path / f"logs/rank-000{rank}.out"
        ).read_text() == f"out {tmp_path}/logs\n"  # as TensorBoard knows it
        assert (tmp_path / f"logs/rank-000{rank}.err").read_text() == "err\n"
    assert not list(private.iterdir())


def test_logs_are_copied_even_if_a_scheduler_signals_every_process(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    options = ("-np", 2, "--grace", 20, "--log-dir", f"local://{tmp_path}/logs")
    job = Run(*options, "sh", "-c", script, env=VARIABLES)
    job.read_until(2, lambda line: "ready" in line)
    for pid in job.processes():
        if "rueda.collect" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGTERM)
            break
    else:
        raise AssertionError("nothing collects the logs")
    job.process.send_signal(signal.SIGTERM)
    status, _, err = job.finish()
    assert status == 143 and "copy" not in err, err
    for rank in range(2):
        assert (tmp_path / f"logs/rank-000{rank}.out").read_text() == "ready\nsaved\n"
    job.assert_gone()


def logs_below(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.out")}


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_logs_of_an_earlier_job_are_neither_lost_nor_mixed_with_the_new_ones(
    tmp_path: Path, scheme: str
) -> None:
    logs = tmp_path / "logs"
    if scheme:
        pytest.importorskip("fsspec")
    errors = ""
    for size in (3, 2):
        status, _, errors = run(
            *("-np", size, "--log-dir", f"{scheme}{logs}", "sh", "-c", f"echo $RANK of {size}"), env=VARIABLES
        )
        assert status == 0, errors
    new = {f"rank-000{rank}.out": f"{rank} of 2\n" for rank in range(2)}
    old = {f"earlier-1/rank-000{rank}.out": f"{rank} of 3\n" for rank in range(3)}
    assert logs_below(logs) == new | old
    assert f"rueda: the logs of an earlier job in {scheme}{logs} are now in " in errors
    assert f"{logs}/earlier-1\n" in errors


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [("", "--log-dir: is empty; give a value or leave the option out"), ("file://", "names no folder")],
)
def test_a_folder_without_a_name_is_refused(folder: str, sentence: str) -> None:
    for arguments in (["--log-dir", folder], [f"--log-dir={folder}"]):
        status, out, err = run("-np", 1, *arguments, "echo", "started")
        assert status == 2 and out == "" and sentence in err and err.count("\n") == 1, err


def test_a_place_that_cannot_be_written_is_refused_before_the_ranks_start(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    variables = {**VARIABLES, "TMPDIR": str(tmp_path)}
    status, out, err = run("-np", 1, "--log-dir", "local:///proc/nowhere", "echo", "started", env=variables)
    assert status == 1 and out == ""
    assert err.startswith("rueda: cannot copy the logs to local:///proc/nowhere: ") and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_place_in_the_memory_of_one_process_is_refused() -> None:
    done = subprocess.run(
        [RUEDA, "run", "-np", "1", "--log-dir", "memory://run", "true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2 and "--log-dir memory://run is a place in the memory" in done.stderr, done


def test_logs_that_cannot_be_copied_at_the_end_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    private = tmp_path / "tmp"
    private.mkdir()
    script = f"echo precious; rm -r {tmp_path}/logs; touch {tmp_path}/logs"
    status, _, err = run(
        "-np",
        1,
        *("--log-dir", f"local://{tmp_path}/logs", "sh", "-c", script),
        env={**VARIABLES, "TMPDIR": str(private)},
    )
    (kept,) = private.iterdir()
    assert status == 1 and f"; the logs are in {kept}" in err
    assert (kept / "rank-0000.out").read_text() == "precious\n"


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    status, out, err = run(
        "-np", 1, "--log-dir", f"file://{tmp_path}/logs", "sh", "-c", "echo $RUEDA_LOG_DIR"
    )
    assert status == 0, err
    assert out == f"[0 localhost] {tmp_path}/logs\n"
    assert (tmp_path / "logs/rank-0000.out").read_text() == f"{tmp_path}/logs\n"


def test_the_program_of_the_page_writes_beside_the_logs(tmp_path: Path) -> None:
    for module in ("torch", "fsspec", "tensorboardX"):
        pytest.importorskip(module)
    page = (launch_support.ROOT / "docs/run.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / "train.py").write_text(block)
    status, _, err = run(
        "-np", 2, "--log-dir", tmp_path / "logs", PYTHON, tmp_path / "train.py", env=VARIABLES, timeout=120
    )
    assert status == 0, err
    assert (tmp_path / "logs/checkpoint-0.pt").stat().st_size > 0
    assert len(list((tmp_path / "logs/tensorboard").iterdir())) == 1, "one rank writes"


COUNTED = """
import os, signal, sys
import numpy as np
import rueda.numpy as hvd

hvd.init()
for step in range(7):
    hvd.allreduce(np.ones(8, np.float32), name="gradients")
if sys.argv[1:2] == ["killed"] and hvd.rank() == 1:
    import time
    end = time.monotonic() + 60
    while not os.path.exists(sys.argv[2]) and time.monotonic() < end:  # they are written every second
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def sample(path: Path, line: str) -> float:
    found = re.search(rf"^{line} (\S+)$", path.read_text(), re.M)
    assert found, path.read_text()
    return float(found[1])


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_the_metrics_of_all_ranks_lie_beside_their_logs(tmp_path: Path, scheme: str) -> None:
    if scheme:
        pytest.importorskip("fsspec")
    logs = tmp_path / "logs"
    private = tmp_path / "tmp"
    private.mkdir()
    program = (PYTHON, "-c", COUNTED)
    for _ in range(2):
        status, _, errors = run(
            *("-np", 2, "--log-dir", f"{scheme}{logs}", *program), env={**VARIABLES, "TMPDIR": str(private)}
        )
        assert status == 0, errors
    for folder in (logs, logs / "earlier-1"):
        for rank in range(2):
            path = folder / f"rank-000{rank}.prom"
            calls = rf'rueda_calls_total\{{rank="{rank}",job="[^"]+",host="[^"]+",collective="allreduce"\}}'
            assert sample(path, calls) == 7
    assert not list(logs.rglob("*.new")) and not list(private.iterdir())


def test_a_rank_that_is_killed_leaves_its_metrics(tmp_path: Path) -> None:
    metrics = tmp_path / "rank-0001.prom"
    program = (PYTHON, "-c", COUNTED, "killed", metrics)
    status, _, errors = run(*("-np", 2, "--log-dir", tmp_path, *program), env=VARIABLES)
    assert status == 137, errors
    assert sample(metrics, r'rueda_size\{rank="1",.*\}') == 2


def test_metrics_go_where_the_user_says(tmp_path: Path) -> None:
    mine = {"RUEDA_METRICS_TEXTFILE": str(tmp_path / "mine.prom")}
    status, _, errors = run(
        *("-np", 2, "--log-dir", tmp_path, PYTHON, "-c", COUNTED), env={**VARIABLES, **mine}
    )
    assert status == 0, errors
    assert sorted(path.name for path in tmp_path.glob("*.prom")) == ["mine.rank0.prom", "mine.rank1.prom"]


def test_two_jobs_do_not_share_a_folder(tmp_path: Path) -> None:
    wait = f"until test -e {tmp_path}/go; do sleep 0.05; done; echo first"
    first = launch_support.Run("-np", 1, "--log-dir", tmp_path / "logs", "sh", "-c", wait, env=VARIABLES)
    try:
        deadline = time.monotonic() + 90
        while not (tmp_path / "logs/rank-0000.out").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        status, _, errors = run("-np", 1, "--log-dir", tmp_path / "logs", "echo", "second", env=VARIABLES)
        assert status == 1, errors
        sentence = f"another job is writing its logs to {tmp_path}/logs; name another folder"
        assert sentence in errors
    finally:
        (tmp_path / "go").touch()
        assert first.finish(60)[0] == 0
    assert (tmp_path / "logs/rank-0000.out").read_text() == "first\n"
