"""What `rueda run` accepts as horovodrun does: options without effect, assignments, files of settings."""

import os
import signal
import subprocess
import sys

import pytest
from harness import ROOT, library
from launch_support import RUEDA, Run, environments, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")


ONE_HOST = {
    "lsf, slots of hosts": {"LSB_JOBID": "17", "LSB_MCPU_HOSTS": "localhost 3"},
    "lsf, a file": {"LSB_JOBID": "17", "LSB_DJOB_HOSTFILE": "NODES"},
    "pbs": {"PBS_JOBID": "9.server", "PBS_NODEFILE": "NODES"},
}


@pytest.fixture(name="batch_job", params=ONE_HOST)
def make_batch_job(request, tmp_path):
    """The environment of a job whose scheduler calls its only host localhost; nothing may reach out to it."""
    (tmp_path / "nodes").write_text("localhost\n" * 3)
    for program in ("ssh", "blaunch"):
        (tmp_path / program).write_text(f"#!/bin/sh\ntouch {tmp_path}/reached\nexit 1\n")
        (tmp_path / program).chmod(0o755)
    given = {k: v.replace("NODES", str(tmp_path / "nodes")) for k, v in ONE_HOST[request.param].items()}
    yield {**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert not (tmp_path / "reached").exists()


def test_a_scheduler_may_call_its_only_host_localhost(batch_job):
    status, out, err = run("sh", "-c", "echo $RANK of $WORLD_SIZE", env=batch_job)
    assert status == 0, err
    assert sorted(out.splitlines()) == [f"[{rank} localhost] {rank} of 3" for rank in range(3)]


def test_preflight_checks_the_ranks_of_the_scheduler(batch_job):
    variables = {"RUEDA_LIBRARY": library(), "RUEDA_PYTHON": sys.executable}
    done = subprocess.run(
        [RUEDA, "preflight"], env={**batch_job, **variables}, capture_output=True, text=True, timeout=90
    )
    assert done.stdout.startswith("1 host, 1 answered, 3 ranks; "), done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["-n", "2"], ["-n=2"], ["-np", "2"]])
def test_n_is_short_for_np(arguments):
    assert len(environments(*arguments)) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--mpi-args=--oversubscribe"],
        ["--mpi-args="],
        ["--mpi-args", "-x A -x B"],
        ["--binding-args=-bind-to none"],
        ["--max-np", "4"],
        ["--max-num-proc=4"],
        ["--slots", "2"],
        ["--slots-per-host", "2"],
        ["--reset-limit", "3"],
        ["--elastic-timeout", "600"],
        ["--blacklist-cooldown-range", "10", "100"],
    ],
)
def test_what_concerns_mpi_or_elastic_jobs_alone_is_accepted_and_said_to_be_ignored(arguments):
    status, out, err = run("-np", 1, *arguments, "echo", "ran")
    assert (status, out) == (0, "[0 localhost] ran\n")
    typed = arguments[0].partition("=")[0]
    name = {"--max-num-proc": "--max-np", "--slots-per-host": "--slots"}.get(typed, typed)
    assert err.startswith(f"rueda: {name} has no effect: ") and err.count("\n") == 1


@pytest.mark.parametrize("option", ["--network-interface", "--network-interfaces"])
def test_interfaces_are_listed_or_given_one_by_one(option):
    for arguments in ([f"{option}=lo,other"], [option, "lo", option, "other"]):
        env = environments("-np", 1, *arguments)[0]
        assert (env["RUEDA_INTERFACE"], env["NCCL_SOCKET_IFNAME"]) == ("lo,other", "lo,other")


def test_a_host_uses_the_first_interface_that_it_has():
    environment = {**os.environ, "RUEDA_LIBRARY": library(), "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", "import rueda.numpy as hvd; hvd.init(); print(hvd.size())"]
    for interfaces, status in (("no1,127.0.0.1,no2", 0), ("no1,no2", 1)):
        status_seen, out, err = run("-np", 2, "--network-interface", interfaces, *command, env=environment)
        assert status_seen == status, err
        if status:
            sentence = (
                "none of the network interfaces or addresses 'no1,no2' belongs to this machine, which has lo"
            )
            assert sentence in out + err


def test_a_script_without_its_number_of_processes_is_part_of_the_example():
    status, _, err = run("np1.py")
    assert status == 2
    assert err == "rueda run: the number of processes is missing; write rueda run -np 4 python np1.py\n"


def test_a_misspelt_setting_before_the_command_is_told():
    status, _, err = run("-np", 1, "RUEDA_CYCLE_TIEM=5", "A=1", "true")
    assert status == 0
    assert err.startswith("rueda: RUEDA_CYCLE_TIEM is not a setting of this version and has no effect; ")


def test_a_misspelt_setting_is_told_once_with_the_name_that_was_meant():
    environment = {"RUEDA_CYCLE_TIEM": "2", "RUEDA_OF_THE_SITE": "1"}
    status, out, err = run("-np", 2, "--no-prefix", "echo", "ran", env=environment)
    assert (status, out) == (0, "ran\nran\n")
    assert err == (
        "rueda: RUEDA_CYCLE_TIEM is not a setting of this version and has no effect; "
        "did you mean RUEDA_CYCLE_TIME?\n"
    )


def test_a_misspelt_setting_is_told_by_rank_0_where_no_launcher_of_rueda_has_told_it():
    program = "import rueda.numpy as hvd; hvd.init()"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "RUEDA_CYCLE_TIEM": "2",
        "RUEDA_OF_THE_SITE": "1",
    }
    alone = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert alone.returncode == 0
    (line,) = [line for line in alone.stderr.splitlines() if " is not a setting " in line]
    assert line.endswith(
        "RUEDA_CYCLE_TIEM is not a setting of this version and has no effect; did you mean RUEDA_CYCLE_TIME?"
    )
    status, _, err = run("-np", 2, sys.executable, "-c", program, env=environment)
    assert status == 0 and err.count(" is not a setting ") == 1, err


def test_a_malformed_thread_affinity_is_refused():
    status, _, err = run("-np", 1, "true", env={"RUEDA_THREAD_AFFINITY": "x"})
    assert status == 2 and "RUEDA_THREAD_AFFINITY='x' is refused; allowed: comma list of core numbers" in err


@pytest.mark.parametrize("outage_s, is_told", [("", True), ("4", False)])
def test_an_agent_timeout_below_what_the_ranks_survive_is_told(outage_s, is_told):
    given = {"RUEDA_PEER_TIMEOUT_SECONDS": outage_s}
    status, _, err = run("-np", 1, "--agent-timeout", 5, "true", env=given)
    assert status == 0
    sentence = "--agent-timeout 5 ends the job in an outage of the network that its ranks would survive"
    assert (sentence in err) == is_told, err


def test_assignments_before_the_command_are_its_environment():
    for separator in ([], ["--"]):
        script = ["sh", "-c", "echo $MINE,$OTHER"]
        status, out, err = run("-np", 1, "--no-prefix", *separator, "MINE=a b", "OTHER=", *script)
        assert (status, out, err) == (0, "a b,\n", "")
    status, _, err = run("-np", 1, "1MINE=a", "true")
    assert status == 127 and "command not found: 1MINE=a" in err


def test_config_file_gives_defaults_that_flags_override(tmp_path):
    yaml = tmp_path / "c.yaml"
    yaml.write_text(
        "# tuned\nparams:\n  cycle_time_ms: 3.5  # ms\n  fusion_threshold_mb: 8\n"
        "stall_check:\n  enabled: false\n"
    )
    env = environments("-np", 1, "--config-file", yaml, "--fusion-threshold-mb", 2)[0]
    assert (env["RUEDA_CYCLE_TIME"], env["RUEDA_FUSION_THRESHOLD"]) == ("3.5", "2097152")
    assert env["RUEDA_STALL_CHECK_DISABLE"] == "1"


LAUNCHER_SETTINGS = """
max_restarts: 1
restart_pause: 0.25
grace: 7.5
agent_timeout: 5
start_timeout: 45
network_interfaces: lo
bind_cores: true
"""


def test_a_config_file_holds_the_settings_of_the_launcher_too(tmp_path):
    yaml = tmp_path / "c.yaml"
    yaml.write_text(LAUNCHER_SETTINGS)
    show = 'echo "$RUEDA_START_TIMEOUT $RUEDA_INTERFACE"'
    script = f"{show}; test $RUEDA_RESTART_COUNT = 1 || exit 7; exec sleep 300"
    ranks = len(os.sched_getaffinity(0)) + 1
    job = Run("-np", ranks, "--ranks", 0, "--no-prefix", "--config-file", yaml, "sh", "-c", script)
    assert [job.process.stdout.readline() for _ in range(2)] == ["45.0 lo\n"] * 2
    job.process.send_signal(signal.SIGTERM)
    status, _, err = job.finish()
    assert status == 128 + signal.SIGTERM, err
    assert "is started again in 0.25 s (restart 1 of 1)" in err, err
    assert "the ranks, which have 7.5 s to end" in err, err
    assert "--agent-timeout 5 ends the job in an outage of the network" in err, err
    assert "too few for one each" in err and "is not a known setting" not in err, err


@pytest.mark.parametrize(
    "option, value, sentence",
    [
        ("--grace", "-1", "-1 is not a number of seconds from 0 to 86400"),
        ("--restart-pause", "1e9", "1000000000 is not a number of seconds from 0 to 86400"),
        ("--agent-timeout", "1.5", "1.5 is not a number of seconds from 2 to 86400"),
        ("--agent-timeout", "nan", "nan is not a number of seconds from 2 to 86400"),
    ],
)
def test_seconds_beyond_the_limits_are_refused_as_flags_and_in_files(tmp_path, option, value, sentence):
    status, _, err = run("-np", 1, option, value, "true")
    assert status == 2 and sentence in err, err
    yaml = tmp_path / "c.yaml"
    yaml.write_text(f"{option[2:].replace('-', '_')}: {value}\n")
    status, _, err = run("-np", 1, "--config-file", yaml, "true")
    assert status == 2 and sentence.partition(" ")[2] in err and option[2:] in err, err
    assert run("-np", 1, "--config-file", yaml, option, 3, "true")[0] == 0, "the flag wins"


@pytest.mark.parametrize(
    "name, text",
    [
        ("c.yaml", "mine: 3\nparams:\n  cycle_tim_ms: 3\n  cycle_time_ms: 2\n"),
        ("c.json", '{"mine": {"deep": [1]}, "params": {"cycle_tim_ms": 3, "cycle_time_ms": 2}}'),
    ],
)
def test_unknown_settings_are_named_and_ignored(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    status, out, err = run(
        "-np", 1, "--no-prefix", "--config-file", file, "sh", "-c", "echo $RUEDA_CYCLE_TIME"
    )
    assert (status, out) == (0, "2.0\n")
    sentences = err.splitlines()
    assert len(sentences) == 2 and sentences[0].startswith("rueda: mine")
    assert sentences[1] == f"rueda: params.cycle_tim_ms in {file} has no effect: it is not a known setting"


@pytest.mark.parametrize(
    "written, meant",
    [
        ('"/tmp/run #1.json"', "/tmp/run #1.json"),
        ("'/tmp/run #1.json'  # the first: run", "/tmp/run #1.json"),
        ("'it''s.json'", "it's.json"),
        (r'"a \"b\" \\ c\td\ne"', 'a "b" \\ c\td\ne'),
        (r"'a\tb'", r"a\tb"),
        ("/tmp/run#1.json # the first", "/tmp/run#1.json"),
        ('say "it"', 'say "it"'),
        (r'"\x41\u00e9"', "A\u00e9"),
        ("/tmp/a\n    b.json", "/tmp/a b.json"),
        (">-\n    folded\n    text", "folded text"),
    ],
)
def test_quoted_values_mean_what_yaml_says(tmp_path, written, meant):
    yaml = tmp_path / "c.yaml"
    yaml.write_text(f"timeline:\n  filename: {written}\n")
    assert environments("-np", 1, "--config-file", yaml)[0]["RUEDA_TIMELINE"] == meant


@pytest.mark.parametrize(
    "text, sentence",
    [
        ('x: 1\ntimeline:\n  filename: "a" b\n', "line 3 of {} has text after the closing quote"),
        ("timeline:\n  filename: 'a\n", "line 2 of {} has no closing quote"),
        (r'filename: "\q"', "line 1 of {} has a backslash before a letter that YAML gives no meaning there"),
        (
            "params:\n  cycle_time_ms: soon\n",
            'params.cycle_time_ms = "soon" in {} has the wrong type',
        ),
        ("params\n", 'line 1 of {} is not "key: value"'),
        ("a: 1\nparams\n", 'line 2 of {} is not "key: value": params'),
        ("[1]", 'line 1 of {} is not "key: value"'),
        ("params:\n  cycle_time_ms: [1]\n", 'params.cycle_time_ms = "a list" in {} has the wrong type'),
        ("a:\n\tb: 1\n", "line 2 of {} is neither YAML nor JSON"),
        ('{"params": 1\n', "line 2 of {} is neither YAML nor JSON (did not find expected ',' or '}}')\n"),
        ("mine: 1\nmine: 2\n", "line 2 of {} gives a key a second time: mine: 2"),
        ("params:\n  a: 1\n  a:\n", "line 3 of {} gives a key a second time: a:"),
        ("params:\n  a: 1\nb: 1\nparams: {c: 1}\n", "line 4 of {} gives a key a second time: params:"),
        ('{"a": 1,\n "a": 1}', 'line 2 of {} gives a key a second time: "a"'),
        ("a: 1\n---\na: 2\n", "line 2 of {} begins a second document, but one is read: ---"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "{} is nested more than 16 levels deep"),
        ('{"a":' + "[" * 200_000, "{} is nested more than 16 levels deep"),
    ],
)
def test_files_that_cannot_be_read_are_refused_in_a_sentence(tmp_path, text, sentence):
    file = tmp_path / "settings"
    file.write_text(text)
    status, _, err = run("-np", 1, "--config-file", file, "true")
    assert status == 2 and sentence.format(file) in err and err.count("\n") == 1


@pytest.mark.parametrize("option", ["--config-file", "--hostfile"])
def test_a_file_without_end_is_refused_in_a_sentence(option):
    status, _, err = run("-np", 1, option, "/dev/zero", "true")
    assert status == 2 and "cannot read /dev/zero: it has more than 1 MiB" in err and err.count("\n") == 1


def test_equal_keys_in_two_mappings_and_the_marks_of_one_document_are_taken(tmp_path):
    file = tmp_path / "settings"
    file.write_text("---\nparams: {cycle_time_ms: 2}\nmine: [{x: 1}, {x: 2}]\n...\n")
    assert environments("-np", 1, "--config-file", file)[0]["RUEDA_CYCLE_TIME"] == "2.0"


@pytest.mark.parametrize("arguments", [["run", "--help"], ["--version"], ["env"]])
def test_a_text_that_cannot_be_written_is_a_failure(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([RUEDA, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=90)
    assert done.returncode == 1
    assert done.stderr == "rueda: standard output could not be written (No space left on device)\n"
