"""`rueda.run`: a function in several processes, its results and its exceptions."""

import importlib
import os
import signal
import subprocess
import sys
import textwrap
import warnings

import pytest
from launch_support import ROOT, RUEDA, assert_all_gone, marked_processes

import horovod.runner
from rueda.run import RemoteTraceback, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("RUEDA_BIN", RUEDA)


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__("only one")


def test_results_come_in_rank_order_from_lambdas_with_arguments():
    assert run(lambda x, y=0: (int(os.environ["RANK"]), x + y), args=(1,), kwargs={"y": 2}, num_proc=3) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]


def test_one_process_is_the_default():
    assert run(lambda: os.environ["RUEDA_SIZE"]) == ["1"]


def test_large_results_arrive_whole():
    assert [len(r) for r in run(lambda: os.urandom(3_000_000), num_proc=2)] == [3_000_000] * 2


def test_exception_is_transported_with_its_remote_traceback():
    def fails():
        if os.environ["RANK"] == "1":
            raise KeyError("the missing thing")
        return 1

    with pytest.raises(RuntimeError, match=r"(?s)Horovod detected.*Process name: 1\nExit code: 1") as caught:
        run(fails, num_proc=2)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.args == ("the missing thing",)
    remote = caught.value.__cause__.__cause__
    assert isinstance(remote, RemoteTraceback) and remote.rank == 1 and "in fails" in str(remote)


def test_exception_that_cannot_be_pickled_is_transported_as_text():
    def fails():
        raise Unpicklable(1, 2)

    with pytest.raises(RuntimeError) as caught:
        run(fails)
    assert isinstance(caught.value.__cause__, RemoteTraceback) and "Unpicklable" in str(
        caught.value.__cause__
    )


def test_exit_code_of_sys_exit_is_kept():
    with pytest.raises(RuntimeError, match="Exit code: 4"):
        run(lambda: sys.exit(4))


def test_killed_rank_is_reported():
    with pytest.raises(RuntimeError, match="Process name: 0\nExit code: 137"):
        run(lambda: os.kill(os.getpid(), 9))


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (
            {"hosts": "localhost:2", "num_proc": 3},
            "Requested more processes (3) than there are available slots (2)",
        ),
        (
            {"hosts": "a:b:c"},
            "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2.",
        ),
        ({"hostfile": "/does/not/exist"}, "cannot read /does/not/exist"),
        ({"ssh_port": "many"}, "--ssh-port"),  # found by the parser, before any option took effect
    ],
)
def test_arguments_the_launcher_refuses_are_value_errors_with_its_sentence(arguments, sentence):
    with pytest.raises(ValueError) as caught:
        run(lambda: 1, **arguments)
    assert sentence in str(caught.value) and "rueda run:" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arguments_for_mpi_are_ignored():
    assert run(lambda: 1, mpi_args="--oversubscribe -x A") == [1]


def test_horovod_run_raises_the_same(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "compat" / "horovod"))
    horovod_runner = importlib.import_module("horovod.runner")
    with pytest.raises(ValueError, match="Invalid host input"):
        horovod_runner.run(lambda: 1, hosts="a:b:c")


def test_exit_code_2_of_a_rank_is_not_taken_for_a_refusal():
    with pytest.raises(RuntimeError, match="Process name: 0\nExit code: 2"):
        run(lambda: sys.exit(2))


@pytest.mark.parametrize("leaves_refusal", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        "The following argument was not expected: --watch-stdin",  # as earlier builds say it
        "--watch-stdin is no option of rueda run; rueda run --help lists all",
    ],
)
def test_command_of_another_build_is_named(tmp_path, monkeypatch, words, leaves_refusal):
    command = tmp_path / "rueda"
    refusal = f'[ "$2" = --collect-dir ] && echo "{words}" > "$3/refusal"' if leaves_refusal else ":"
    command.write_text(f'#!/bin/sh\n{refusal}\necho "rueda run: {words}" >&2\nexit 2\n')
    command.chmod(0o755)
    monkeypatch.setenv("RUEDA_BIN", str(command))
    with pytest.raises(RuntimeError) as caught:
        run(lambda: 1)
    assert f"The rueda command at {command} is of another build" in str(caught.value)
    assert "reinstall" in str(caught.value)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"hosts": "a:1", "hostfile": "f"}, "Argument hosts and hostfile only allow one provided."),
        ({"use_gloo": True, "use_mpi": True}, "Argument use_gloo and use_mpi only allow one set True."),
        ({"use_mpi": True}, "MPI support has not been built."),
        ({"max_num_proc": 2}, "max_num_proc belongs to elastic jobs"),
    ],
)
def test_contradictions_are_value_errors(arguments, text):
    with pytest.raises(ValueError, match=text):
        run(lambda: 1, **arguments)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"num_proc": "x"}, r"num_proc must be an int, not str \('x'\)"),
        ({"num_proc": 1.5}, r"num_proc must be an int, not float \(1.5\)"),
        ({"hosts": 5}, "hosts must be a string such as"),
        ({"args": 5}, "args must be a list, not int"),
        ({"kwargs": [1]}, "kwargs must be a dict, not list"),
        ({"network_interfaces": 5}, "network_interfaces must be a list of names, not int"),
        ({"executable": 5}, "executable must be a path, not int"),
        ({"func": 5}, r"func must be a function, not int \(5\)"),
    ],
)
def test_arguments_of_a_wrong_kind_are_type_errors(arguments, text):
    with pytest.raises(TypeError, match=f"rueda.run: {text}"):
        run(**{"func": lambda: 1, **arguments})


def test_old_names_warn_and_work():
    with pytest.warns(DeprecationWarning, match="np is deprecated"):
        assert horovod.runner.run(lambda: int(os.environ["RANK"]), np=2) == [0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(lambda: int(os.environ["RANK"]), np=2) == [0, 1]
    with pytest.warns(DeprecationWarning, match="max_np is deprecated"), pytest.raises(ValueError):
        run(lambda: 0, max_np=2)


def test_without_cloudpickle_module_functions_work_and_lambdas_get_a_sentence(tmp_path):
    (tmp_path / "cloudpickle.py").write_text("raise ImportError('not here')\n")
    (tmp_path / "mine.py").write_text("import os\ndef rank(): return int(os.environ['RANK'])\n")
    script = textwrap.dedent("""
        import mine
        from rueda.run import run
        assert run(mine.rank, num_proc=2) == [0, 1]
        for bad in (lambda: 1,):
            try:
                run(bad)
            except RuntimeError as error:
                assert "install cloudpickle" in str(error), error
            else:
                raise SystemExit("no error")
    """)
    env = dict(os.environ, PYTHONPATH=f"{tmp_path}:{ROOT / 'python'}")
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_ranks_and_files_end_with_the_program_that_called_run(end, tmp_path):
    script = textwrap.dedent("""
        import time
        from rueda.run import run
        def wait():
            print("up", flush=True)
            time.sleep(300)
        run(wait, num_proc=2)
    """)
    mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
    own = {"PYTHONPATH": str(ROOT / "python"), "TMPDIR": str(tmp_path)}
    env = dict([*os.environ.items(), mark.split("=")], **own)
    program = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True)
    assert "up" in program.stdout.readline() and "up" in program.stdout.readline()
    everyone = marked_processes(mark)
    assert len(everyone) == 1 + 1 + 2 + 2
    os.kill(program.pid, end)
    program.communicate(timeout=60)
    assert_all_gone(everyone)
    assert not list(tmp_path.glob("rueda-*")), "results of the dead"
