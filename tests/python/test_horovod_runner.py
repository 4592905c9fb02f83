"""How ranks and commands are started through horovod.runner, and how they end."""

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from launch_support import RUEDA, assert_all_gone, marked_processes

import horovod
import rueda
from horovod.runner import arguments
from horovod.runner.common.util import safe_shell_exec


def of_a_job(home: Path) -> dict[str, str]:
    """The variables of a process that starts ranks of these sources."""
    root = Path(__file__).resolve().parents[2]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    library = os.environ.get("RUEDA_LIBRARY") or str(root / "build" / "release" / "librueda.so")
    folders = [Path(rueda.__file__).parents[1], Path(horovod.__file__).parents[1]]
    return {
        **clean,
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "RUEDA_LIBRARY": library,
        "RUEDA_BIN": str(Path(library).parent / "bin" / "rueda"),
    }


@pytest.mark.parametrize("words", [["--version"], ["-v"], ["-np", "2", "--version"]])
def test_horovodrun_tells_horovods_version(tmp_path: Path, words: list[str]):
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner.launch", *words],
        env=of_a_job(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{horovod.__version__}\n"), done.stdout + done.stderr


@pytest.fixture
def reaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUEDA_BIN", RUEDA)


@pytest.mark.usefixtures("reaper")
def test_a_shell_command_ends_with_its_event():
    out = io.StringIO()
    assert safe_shell_exec.execute("echo hello; exit 3", stdout=out, index=1) == 3
    assert out.getvalue() == "[1]<stdout>:hello\n"
    event = threading.Event()
    event.set()
    assert safe_shell_exec.execute("sleep 600 & sleep 600", events=[event]) == 128 + 15


@pytest.mark.usefixtures("reaper")
def test_a_shell_command_takes_words_variables_and_streams():
    out, err = io.StringIO(), io.StringIO()
    command = ["sh", "-c", "echo $WORD; echo problem >&2; kill -9 $$"]
    assert safe_shell_exec.execute(command, {"WORD": "x"}, stdout=out, stderr=err) == 128 + 9
    assert (out.getvalue(), err.getvalue()) == ("x\n", "problem\n")
    with pytest.raises(FileNotFoundError, match="no program 'no-such-program' to execute"):
        safe_shell_exec.execute(["no-such-program"])


KILLED = {
    "execute": """
from horovod.runner.common.util.safe_shell_exec import execute
execute(COMMAND)
""",
    "gloo_run": """
from horovod.runner.common.util.settings import Settings
from horovod.runner.gloo_run import gloo_run
gloo_run(Settings(num_proc=2, hosts="localhost:2"), ["lo"], {}, "127.0.0.1", COMMAND)
""",
}


@pytest.mark.parametrize("how", KILLED)
def test_a_command_ends_when_the_process_that_has_started_it_is_killed(tmp_path: Path, how: str):
    mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
    # A process in the background, one in a session of its own, and the shell itself.
    command = "sleep 600 & setsid sleep 600 & echo started; wait"
    program = KILLED[how].replace("COMMAND", repr(command))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**of_a_job(tmp_path), **dict([mark.split("=")])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert "started" in process.stdout.readline()
        assert len(marked_processes(mark)) >= 4
        process.kill()
        process.wait(30)
        assert_all_gone(marked_processes(mark))
    finally:
        for pid in marked_processes(mark):  # of a failed test
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()


PROGRAM = """
import sys
from horovod.runner import arguments
from horovod.runner.common.util import safe_shell_exec
from horovod.runner.common.util.settings import Settings
from horovod.runner.gloo_run import gloo_run, launch_gloo
import os

rank = [sys.executable, "-c", "import numpy, rueda.numpy as hvd, sys; hvd.init(); "
    "print('sum', hvd.allreduce(numpy.ones(1), op=hvd.Sum)[0], flush=True); sys.exit(int(sys.argv[1]))"]

def start(command, slot, events):
    return safe_shell_exec.execute(command, env=dict(os.environ), index=slot.rank, events=events), 0.0

settings = Settings(num_proc=2, hosts="localhost:4")
launch_gloo([*rank, "0"], start, settings, ["lo"], dict(os.environ), "127.0.0.1")
gloo_run(settings, ["lo"], dict(os.environ), None, [*rank, "0"])
gloo_run(settings, ["lo"], {}, "127.0.0.1", [*rank, "0"])  # variables are added to those of this process
for run in (
    lambda: launch_gloo(["sh", "-c", "echo word $OWN"], start, settings, ["lo"], {"OWN": "a b"}, "127.0.0.1"),
    lambda: gloo_run(settings, ["lo"], {"OWN": "a b"}, "127.0.0.1", ["sh", "-c", "echo word $OWN"]),
):
    run()
for failing in (
    lambda: launch_gloo([*rank, "3"], start, settings, None, dict(os.environ), "127.0.0.1"),
    lambda: gloo_run(settings, None, dict(os.environ), None, [*rank, "3"]),
):
    try:
        failing()
    except RuntimeError as error:
        assert "non-zero status" in str(error) and "Exit code: 3" in str(error), error
        print("told")
"""


def test_ranks_that_an_integration_starts_itself_are_one_job(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=of_a_job(tmp_path),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("word a b\n") == 4, done.stdout + done.stderr
    assert done.stdout.count("sum 2.0") == 10 and done.stdout.count("told") == 2, done.stdout + done.stderr
    assert "[1]<stdout>:sum 2.0" in done.stdout


def test_flags_have_horovods_names_and_become_the_words_of_a_command_line():
    words = "-np 2 --min-np 1 --slots 3 -H a:1,b:1 --fusion-threshold-mb 32 --no-autotune --verbose --tcp"
    found = arguments.parse_args([*words.split(), "python", "train.py", "-np", "7"])
    assert (found.num_proc, found.min_num_proc, found.slots, found.hosts) == (2, 1, 3, "a:1,b:1")
    assert (found.fusion_threshold_mb, found.autotune) == (32.0, False)
    assert found.verbose and found.tcp_flag and not found.disable_cache
    assert found.command == ["python", "train.py", "-np", "7"] and found.host_discovery_script is None
    again = arguments.parse_args(list(arguments.words_of(found)))
    assert vars(again) == vars(found)
    found.reset_limit, found.cooldown_range = 4, [1, 2]
    said = list(arguments.words_of(found))
    assert said[said.index("--reset-limit") + 1] == "4"
    assert said[said.index("--blacklist-cooldown-range") + 1 :][:2] == ["1", "2"]
    with pytest.raises(SystemExit):
        arguments.parse_args(["--no-such-flag", "true"])
