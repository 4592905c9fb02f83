"""`rueda run` on one machine: environment, options, output. Plain programs, no framework."""

import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from launch_support import PYTHON, RUEDA, Run, environments, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")


def test_every_rank_finds_its_place_under_all_names():
    ranks = environments("-np", 3)
    for i, env in enumerate(ranks):
        for names, value in [
            (
                [
                    "RUEDA_RANK",
                    "HOROVOD_RANK",
                    "RANK",
                    "RUEDA_LOCAL_RANK",
                    "HOROVOD_LOCAL_RANK",
                    "LOCAL_RANK",
                ],
                i,
            ),
            (["RUEDA_SIZE", "HOROVOD_SIZE", "WORLD_SIZE"], 3),
            (["RUEDA_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"], 3),
            (["RUEDA_CROSS_RANK", "HOROVOD_CROSS_RANK"], 0),
            (["RUEDA_CROSS_SIZE", "HOROVOD_CROSS_SIZE"], 1),
            (["RUEDA_HOSTNAME", "HOROVOD_HOSTNAME"], "localhost"),
            (["RUEDA_STORE_SERVED", "PYTHONUNBUFFERED"], 1),
        ]:
            assert {env[name] for name in names} == {str(value)}, names
        assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+", env["RUEDA_STORE"])
        assert env["MASTER_ADDR"] == "127.0.0.1" and int(env["MASTER_PORT"]) > 0
    assert len({env["RUEDA_JOB"] for env in ranks}) == 1


def test_threads_are_shared_out_unless_the_user_did():
    assert environments("-np", 2, env={"OMP_NUM_THREADS": "7"})[0]["OMP_NUM_THREADS"] == "7"
    without = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    out = subprocess.run(
        [RUEDA, "run", "--no-prefix", "-np", "2", "sh", "-c", "echo $OMP_NUM_THREADS"],
        env=without,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split()
    assert out == [str(max(1, len(os.sched_getaffinity(0)) // 2))] * 2


def cores_of_ranks(np):
    script = "import os; print(*os.sched_getaffinity(0))"
    status, out, err = run("--bind-cores", "--no-prefix", "-np", np, PYTHON, "-c", script)
    assert status == 0, err
    return [set(line.split()) for line in out.splitlines()], err


def test_bound_ranks_share_no_core():
    usable = {str(core) for core in os.sched_getaffinity(0)}
    if len(usable) < 2:
        pytest.skip("this machine has one core")
    shares, err = cores_of_ranks(2)
    assert len(shares) == 2 and not shares[0] & shares[1] and shares[0] | shares[1] == usable
    assert not err


def test_too_few_cores_to_bind_are_said_and_none_is_bound():
    usable = {str(core) for core in os.sched_getaffinity(0)}
    ranks = len(usable) + 1
    if ranks > 16:
        pytest.skip("this machine has more than 15 cores")
    shares, err = cores_of_ranks(ranks)
    assert shares == [usable] * ranks
    assert f"this host has {len(usable)} CPUs for {ranks} ranks, too few for one each" in err


def test_flags_become_variables_under_both_names():
    env = environments(
        "-np",
        1,
        "--fusion-threshold-mb",
        4,
        "--cycle-time-ms",
        2,
        "--no-stall-check",
        "--timeline-filename",
        "/x/t.json",
        "--timeline-mark-cycles",
        "--log-level",
        "INFO",
        env={"RUEDA_CYCLE_TIME": "9"},
    )[0]
    for prefix in ("RUEDA_", "HOROVOD_"):
        assert env[prefix + "FUSION_THRESHOLD"] == "4194304"
        assert env[prefix + "CYCLE_TIME"] == "2.0"
        assert env[prefix + "STALL_CHECK_DISABLE"] == "1"
        assert env[prefix + "TIMELINE"] == "/x/t.json"
        assert env[prefix + "TIMELINE_MARK_CYCLES"] == "1"
        assert env[prefix + "LOG_LEVEL"] == "INFO"
    assert "HOROVOD_AUTOTUNE" not in env


def test_secret_is_private_and_gone_afterwards():
    script = "stat -c '%a %n' $RUEDA_SECRET_FILE $(dirname $RUEDA_SECRET_FILE)"
    status, out, _ = run("-np", 1, "--no-prefix", "sh", "-c", script)
    assert status == 0
    (file_mode, file), (dir_mode, directory) = (line.split() for line in out.splitlines())
    assert (file_mode, dir_mode) == ("600", "700")
    assert not os.path.exists(file) and not os.path.exists(directory)


def test_no_command_line_shows_the_secret_or_the_environment():
    job = Run(
        "-np",
        1,
        "--no-prefix",
        "sh",
        "-c",
        "cat $RUEDA_SECRET_FILE; echo; sleep 100",
        env={"MY_TOKEN": "hunter2hunter2"},
    )
    secret = job.read_until(1, lambda line: len(line) > 32)[0].strip()
    lines = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in job.processes()]
    job.process.send_signal(signal.SIGTERM)
    job.finish()
    assert len(lines) >= 4
    assert not any(secret.encode() in line or b"hunter2hunter2" in line for line in lines)


def test_exactly_np_ranks_start_although_there_are_more_slots():
    assert len(environments("-np", 2, "-H", "localhost:5")) == 2


def test_two_names_of_this_machine_are_two_hosts():
    ranks = environments("-np", 3, "-H", "localhost:2,127.0.0.1:2")
    assert [e["RUEDA_HOSTNAME"] for e in ranks] == ["localhost", "localhost", "127.0.0.1"]
    assert [e["RUEDA_LOCAL_RANK"] for e in ranks] == ["0", "1", "0"]
    assert [e["RUEDA_CROSS_RANK"] for e in ranks] == ["0", "0", "1"]
    assert [e["RUEDA_CROSS_SIZE"] for e in ranks] == ["2", "1", "2"]


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (
            ["-np", "6", "-H", "localhost:4", "true"],
            "Requested more processes (6) than there are available slots (4)",
        ),
        (["-np", "2", "-H", "a:b:c", "true"], "Invalid host input"),
        (["-np", "2"], "no command was given"),
        (["true"], "the number of processes is missing"),
        (["-np", "0", "true"], "0 is not a whole number from 1 to 65536"),
        (["-np"], "--np needs a value; see rueda run --help"),
        (["--bogus", "-np", "2", "true"], "--bogus is no option of rueda run; rueda run --help lists all"),
        (
            ["--start-timeout", "-np", "2", "true"],
            "--start-timeout = -np cannot be read; see rueda run --help",
        ),
        (["-np", "2", "--log-level", "LOUD", "true"], "RUEDA_LOG_LEVEL='LOUD' is refused"),
        (["-np", "2", "--cycle-time-ms=-1", "true"], "cycle-time-ms=-1 must be >= 0"),
        (["-np", "2", "--jsrun", "true"], "MPI support has not been built for jsrun. Leave --jsrun out"),
        (["-np", "2", "--mpi", "--gloo", "true"], "use_gloo and use_mpi only allow one set True"),
        (["-np", "2", "--mpi", "--mpirun", "no-such-mpirun", "true"], "no-such-mpirun is not there"),
        (["-np", "2", "A=1", "B=2"], "no command was given"),
        (["-np", "2", "-H", "a:1", "--hostfile", "/x", "true"], "only allow one provided"),
        (["-np", "1", "-H", "", "true"], "--hosts: is empty"),
        (["--hostfile", "/tmp", "true"], "cannot read /tmp: it is a directory"),
        (["-np", "1", "--config-file", "/tmp", "true"], "cannot read /tmp: it is a directory"),
        (["-np", "2", "--ranks", "0,2", "true"], "--ranks 0,2 names ranks that this job of 2 does not have"),
        (["-np", "1", "--grace", "nan", "true"], "--grace: nan is not a number of seconds"),
        (["-np", "1", "--fusion-threshold-mb", "1e30", "true"], "fusion-threshold-mb=1e+30 must be <= 65536"),
    ],
)
def test_bad_usage_is_a_sentence_and_status_2(arguments, sentence):
    status, _, err = run(*arguments)
    assert status == 2 and sentence in err


def test_without_ssh_the_caller_lives_on_and_reads_why(tmp_path):
    """What starts the job is in the launcher's process group; nothing may be sent there."""
    script = f"{RUEDA} run -np 1 -H some-other-host:1 true; echo the caller goes on after $?"
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert done.returncode == 0 and done.stdout == "the caller goes on after 1\n", done
    assert "cannot start the agent of some-other-host: command not found: ssh" in done.stderr


def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "w") as full:
        status, _, err = run("-np", 1, "echo", "lost", stdout=full)
    assert status == 1 and "cannot write the ranks' output to stdout: No space left on device" in err


@pytest.mark.parametrize(
    "option, name", [("--log-dir", "rank-0000.out"), ("--output-filename", "rank.0/stdout")]
)
def test_a_log_that_cannot_be_written_is_a_failure_that_names_it(tmp_path, option, name):
    log = tmp_path / name
    log.parent.mkdir(exist_ok=True)
    log.symlink_to("/dev/full")
    status, out, err = run("-np", 1, option, tmp_path, "echo", "shown")
    assert status == 1 and out == "[0 localhost] shown\n"
    assert f"cannot write the log {log}: No space left on device" in err
    assert run("-np", 1, option, tmp_path, "sh", "-c", "echo shown; exit 5")[0] == 5


def test_a_missing_tmpdir_is_named_as_what_to_change(tmp_path):
    status, _, err = run("-np", 1, "true", env={"TMPDIR": str(tmp_path / "missing")})
    assert status == 1 and f"cannot make a private directory in {tmp_path}/missing: No such file" in err
    assert "set TMPDIR to" in err


def test_a_file_size_limit_is_a_sentence_and_ranks_find_the_default_signal():
    script = (
        f"{RUEDA} run -np 1 --no-prefix grep SigIgn /proc/self/status; ulimit -f 0; {RUEDA} run -np 1 true"
    )
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=60)
    ignored = int(done.stdout.split()[1], 16)
    assert done.returncode == 1 and not ignored >> (signal.SIGXFSZ - 1) & 1
    sentence = r"could not be started: cannot write \S+/secret: File too large; raise ulimit -f"
    assert re.search(sentence, done.stderr), done


def test_a_silent_failure_shows_the_last_lines_of_stdout():
    status, _, err = run("-np", 1, "sh", "-c", "echo last words; exit 5")
    assert status == 5 and "last lines of its stdout:\n  | last words\n" in err


@pytest.mark.parametrize("name", ["RUEDA_START_TIMEOUT", "HOROVOD_START_TIMEOUT"])
def test_the_start_timeout_is_read_as_ranks_read_it(name):
    status, _, err = run("-np", 1, "true", env={name: "soon"})
    assert status == 2 and f"{name}='soon' is refused" in err
    # Without it ssh and rueda would try for longer than this test may take.
    status, _, err = run("-np", 2, "-H", "10.255.255.1:2", "true", env={name: "1"}, timeout=25)
    assert status != 0, err


def test_lines_carry_rank_and_host_and_stay_whole():
    script = (
        "import sys\nfor i in range(200): print('x' * 300, i)\nprint('é' * 5000)\nprint('no newline', end='')"
    )
    status, out, _ = run("-np", 3, PYTHON, "-c", script)
    assert status == 0
    for rank in range(3):
        lines = [line for line in out.splitlines() if line.startswith(f"[{rank} localhost] ")]
        assert lines[:200] == [f"[{rank} localhost] {'x' * 300} {i}" for i in range(200)]
        assert lines[200:] == [f"[{rank} localhost] {'é' * 5000}", f"[{rank} localhost] no newline"]


def test_without_prefix_the_bytes_come_out_as_they_are():
    script = "import sys; sys.stdout.write('\\r10%\\r20%\\n' + 'x' * 300_000 + '\\n\\nno end')"
    out = subprocess.run(
        [RUEDA, "run", "-np", "1", "--no-prefix", PYTHON, "-c", script], capture_output=True, timeout=60
    ).stdout
    assert out == b"\r10%\r20%\n" + b"x" * 300_000 + b"\n\nno end"


def test_lines_without_prefix_stay_whole():
    script = "import os\nfor i in range(40): print(os.environ['RANK'] * 60_000)"
    status, out, _ = run("-np", 2, "--no-prefix", PYTHON, "-c", script)
    assert status == 0 and sorted(out.splitlines()) == ["0" * 60_000] * 40 + ["1" * 60_000] * 40


def test_only_the_ranks_asked_for_are_shown_but_all_are_logged(tmp_path):
    status, out, _ = run(
        "-np", 3, "--ranks", "0,2", "--log-dir", tmp_path / "logs", "sh", "-c", "echo I am $RANK"
    )
    assert status == 0
    assert sorted(out.splitlines()) == ["[0 localhost] I am 0", "[2 localhost] I am 2"]
    assert (tmp_path / "logs" / "rank-0001.out").read_text() == "I am 1\n"
    assert (tmp_path / "logs" / "rank-0001.err").read_text() == ""


def test_horovod_output_and_files_for_a_single_process(tmp_path):
    status, out, err = run(
        "-np",
        1,
        "--horovod-output",
        "--output-filename",
        tmp_path / "o",
        "sh",
        "-c",
        "echo out; echo err >&2",
    )
    assert (status, out, err) == (0, "[0]<stdout>:out\n", "[0]<stderr>:err\n")
    assert (tmp_path / "o" / "rank.0" / "stdout").read_text() == "[0]<stdout>:out\n"
    status, out, _ = run("-np", 1, "--horovod-output", "--prefix-timestamp", "echo", "x")
    assert re.fullmatch(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:x\n", out)


def test_carriage_returns_are_kept():
    out = subprocess.run(
        [RUEDA, "run", "-np", "1", "printf", r"10%%\r20%%\rdone\n"], capture_output=True, timeout=60
    ).stdout
    assert out == b"[0 localhost] 10%\r[0 localhost] 20%\r[0 localhost] done\n"


def test_check_build_lists_frameworks_in_the_known_layout():
    out = subprocess.run([RUEDA, "check-build"], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0
    assert (
        out.stdout.startswith("rueda v")
        and "\n    [X] Gloo\n" in out.stdout
        and "\n    [ ] MPI\n" in out.stdout
    )


def test_check_build_takes_no_folder_beside_it_for_python(tmp_path):
    """A folder may be entered, which access() reports as executable."""
    command = shutil.copy(RUEDA, tmp_path / "rueda")
    (tmp_path / "python").mkdir()
    (tmp_path / "path").mkdir()
    probe = tmp_path / "path" / "python"
    probe.write_text("#!/bin/sh\necho torch\n")
    probe.chmod(0o755)
    env = dict(os.environ, PATH=f"{tmp_path / 'path'}:/usr/bin:/bin")
    env.pop("RUEDA_PYTHON", None)
    out = subprocess.run([command, "check-build"], env=env, capture_output=True, text=True, timeout=60)
    assert out.returncode == 0 and "[X] PyTorch" in out.stdout, out


def test_env_explain_names_the_launcher():
    out = subprocess.run(
        [RUEDA, "run", "-np", "1", "--no-prefix", RUEDA, "env", "--explain"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert out.returncode == 0 and re.search(r"^launcher +rueda$", out.stdout, re.M), out


def test_options_end_where_the_command_begins(tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=1\n")
    for separator in ([], ["--"]):
        status, out, _ = run(
            "-np", 1, "-hostfile", tmp_path / "hosts", "--no-prefix", *separator, "echo", "-np", 7, "--help"
        )
        assert (status, out) == (0, "-np 7 --help\n")
