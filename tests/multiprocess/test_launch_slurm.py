"""`rueda run` inside a Slurm allocation of two virtual nodes: agents through srun, without ssh."""

import json
import os
import re
import signal
import subprocess

import pytest
import slurm_support
from launch_support import (
    HIDING_CHILD,
    PRINT_ENVIRONMENT,
    PYTHON,
    RUEDA,
    Run,
    assert_all_gone,
    name_of,
    parent_of,
    run,
)

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")


@pytest.fixture(scope="module", name="slurm")
def make_slurm():
    if reason := slurm_support.why_not():
        pytest.skip(reason)
    made = slurm_support.Slurm()
    yield made
    made.stop()


@pytest.fixture(name="allocation")
def make_allocation(slurm):
    """The variables of an allocation with two tasks on n1 and one on n2, each node with its CPUs."""
    options = ["-N2", "-n3", "--no-shell", "--immediate=60"]
    made = subprocess.run(
        ["timeout", "90", "salloc", *options], env=slurm.environment, capture_output=True, text=True
    )
    found = re.search(r"Granted job allocation (\d+)", made.stderr)
    assert found, made.stderr
    yield {
        "SLURM_CONF": slurm.environment["SLURM_CONF"],
        "SLURM_JOB_ID": found[1],
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_TASKS_PER_NODE": "2,1",
        "SLURM_JOB_CPUS_PER_NODE": "2,1",
        "SLURM_NTASKS": "3",
    }
    subprocess.run(["timeout", "10", "scancel", found[1]], env=slurm.environment, check=False)


def test_ranks_run_on_the_nodes_of_the_allocation(allocation):
    outside = {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "MY_SETTING": "a b'c\"\n$d", "SLURM_LABELIO": "1"}
    status, out, err = run("--no-prefix", PYTHON, "-c", PRINT_ENVIRONMENT, env=allocation | outside)
    assert status == 0, err
    ranks = sorted((json.loads(line) for line in out.splitlines()), key=lambda env: int(env["RANK"]))
    assert [env["RUEDA_HOSTNAME"] for env in ranks] == ["n1", "n1", "n2"]
    assert [env["SLURMD_NODENAME"] for env in ranks] == ["n1", "n1", "n2"]
    assert [env["RUEDA_LOCAL_RANK"] for env in ranks] == ["0", "1", "0"]
    assert {env["RUEDA_SIZE"] for env in ranks} == {"3"}
    assert {env["MY_SETTING"] for env in ranks} == {outside["MY_SETTING"]}
    # What Slurm says about the job, and nothing about the step of the agent.
    assert {env["SLURM_NTASKS"] for env in ranks} == {"3"}
    assert not any("SLURM_PROCID" in env or "SLURM_STEP_ID" in env for env in ranks)


@pytest.mark.parametrize("command", ["salloc", "sbatch"])
def test_a_script_needs_no_hosts_in(slurm, tmp_path, command):
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {RUEDA} run sh -c 'echo \"rank $RANK of $WORLD_SIZE\"'\n")
    script.chmod(0o755)
    log = tmp_path / "log"
    options = ["-N2", "-n3"]
    options += ["--wait", f"--output={log}"] if command == "sbatch" else []
    done = subprocess.run(
        ["timeout", "40", command, *options, script], env=slurm.environment, capture_output=True, text=True
    )
    printed = log.read_text() if command == "sbatch" else done.stdout
    assert done.returncode == 0, printed + done.stderr
    assert sorted(printed.splitlines()) == [
        "[0 n1] rank 0 of 3",
        "[1 n1] rank 1 of 3",
        "[2 n2] rank 2 of 3",
    ]


def test_more_ranks_than_slots_are_refused(allocation):
    status, _, err = run("-np", 4, "true", env=allocation)
    assert status == 2 and "Requested more processes (4) than there are available slots (3)" in err


def test_hosts_that_are_named_come_first(allocation):
    status, out, err = run("-np", 2, "-H", "localhost:2", "sh", "-c", "true; echo $RANK", env=allocation)
    assert status == 0, err
    assert sorted(out.splitlines()) == ["[0 localhost] 0", "[1 localhost] 1"]


def test_failure_is_named_with_its_node(allocation):
    script = "[ $RANK = 2 ] && { echo lost my disk >&2; exit 9; }; sleep 60"
    status, _, err = run("--grace", 1, "sh", "-c", script, env=allocation)
    assert status == 9
    assert "rank 2 on n2" in err and "  | lost my disk" in err


def test_an_allocation_that_has_ended_is_named_in_the_words_of_srun(allocation):
    gone = allocation | {"SLURM_JOB_ID": "4000000"}
    status, _, err = run("true", env=gone)
    assert status == 1
    assert "srun could not start it" in err and "Invalid job id" in err


def test_without_srun_a_sentence_says_so(allocation, tmp_path):
    status, _, err = run("true", env=allocation | {"PATH": str(tmp_path)})
    assert status == 1 and "cannot start the agent of n1" in err and "srun" in err


def processes_of(job):
    """The marked processes, and the agents: srun starts them without the mark of the job's environment."""
    marked = set(job.processes())
    agents = {parent_of(pid) for pid in marked if name_of(parent_of(pid)) == "rueda-agent"}
    return marked | agents | {parent_of(pid) for pid in agents}


@pytest.mark.parametrize("victim", ["launcher", "srun", "rueda-agent", "rueda-guardian"])
def test_whoever_is_killed_nothing_is_left_on_any_node(allocation, victim):
    job = Run("--grace", "0.5", PYTHON, "-c", HIDING_CHILD, env=allocation)
    job.read_until(3, lambda line: "hidden" in line)
    everyone = processes_of(job)
    # srun has a child of the same name, which cleans up after srun. Its own death ends nothing.
    named = [pid for pid in everyone if name_of(pid) == victim != name_of(parent_of(pid))]
    named = named or [job.process.pid]
    os.kill(named[0], signal.SIGKILL)
    if victim == "launcher":
        job.process.communicate(timeout=90)
    else:
        status, _, err = job.finish()
        assert status != 0 and "was lost with its host" in err, err
    assert_all_gone(everyone)
