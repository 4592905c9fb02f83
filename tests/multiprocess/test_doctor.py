"""`rueda doctor` as users call it."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys

import fake_gpu
import forbidden
import pytest
from harness import ROOT, library
from launch_support import RUEDA


def doctor(*arguments, before=None, **variables):
    """before: what the process does first."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    environment = {
        **clean,
        "PYTHONPATH": str(ROOT / "python"),
        "RUEDA_LIBRARY": library(),
        "RUEDA_PYTHON": sys.executable,
        **variables,
    }
    command = [RUEDA, "doctor", *arguments]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
    )


def broken_sentences(done):
    return {
        one["section"]: one["sentence"] for one in json.loads(done.stdout)["problems"] if one["is_broken"]
    }


def test_the_page_names_what_would_be_used():
    done = doctor("--no-python", RUEDA_FUSION_TRESHOLD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "rueda\n",
        "processor\n",
        "memory\n",
        "network\n",
        "fabric\n",
        "launching\n",
        library(),
        "127.0.0.1",
        "memfd",
        "between hosts",
    ):
        assert part in done.stdout, part
    assert "did you mean RUEDA_FUSION_THRESHOLD?" in done.stdout


def test_two_ranks_exchange_bytes_over_each_transport_that_is_allowed():
    done = doctor("--no-python", "--json")
    tried = json.loads(done.stdout)["facts"]["transports"]
    assert set(tried) == {"shm", "tcp"} and all(text.startswith("works; ") for text in tried.values()), tried
    facts = json.loads(done.stdout)["facts"]["hardware"]
    names = {"network card", "clock source", "clock is kept", "NVIDIA GPUs", "CUDA driver"}
    assert names <= set(facts), facts
    # Over UCX, where its library cannot be loaded, ranks reach each other in no way.
    done = doctor("--no-python", "--json", RUEDA_TRANSPORTS="ucx", LD_LIBRARY_PATH="", UCX_TLS="no_such_way")
    assert set(json.loads(done.stdout)["facts"]["transports"]) == {"ucx"}
    assert "cannot exchange bytes over ucx" in broken_sentences(done)["transports"], done.stdout


def test_doctor_and_preflight_say_the_same_of_the_clock():
    told = json.loads(doctor("--no-python", "--json").stdout)
    checked = subprocess.run([RUEDA, "preflight", "--json", "-"], capture_output=True, text=True, timeout=90)
    here = {problem["sentence"] for problem in told["problems"] if problem["section"] == "hardware"}
    there = json.loads(checked.stdout)
    advice = [one["sentence"] for one in there["findings"] if one["kind"] == "clock-sync"]
    is_kept = told["facts"]["hardware"]["clock is kept"] == "by a time service"
    assert is_kept == there["hosts"][0]["is_clock_synchronised"] == (advice == [])
    assert all(sentence.partition(": ")[2] in here for sentence in advice), (advice, here)


def test_without_a_driver_no_nccl_is_looked_for():
    done = doctor("--no-python", "--json", RUEDA_CUDA_LIBRARY="/nowhere/libcuda.so")
    facts = json.loads(done.stdout)["facts"]
    assert facts["hardware"]["CUDA driver"].startswith("none: /nowhere/libcuda.so"), facts
    assert facts["rueda"]["NCCL"] == "not looked for, because there is no CUDA driver"


@fake_gpu.needed
def test_the_cuda_driver_and_the_nccl_of_a_job_are_named():
    def told(**variables):
        given = {**fake_gpu.environment(), "RUEDA_GPU_OPERATIONS": "", **variables}
        facts = json.loads(doctor("--no-python", "--json", **given).stdout)["facts"]
        return facts["hardware"]["CUDA driver"], facts["rueda"]["NCCL"]

    driver, nccl = told(RUEDA_NCCL_LIBRARY=str(fake_gpu.NCCL))
    assert re.fullmatch(r"CUDA \d+\.\d+, .*/fake_cuda/libcuda\.so\.1", driver), driver
    assert re.fullmatch(r"2\.\d+\.\d+", nccl), nccl
    missing = told(RUEDA_NCCL_LIBRARY="/nowhere/nccl.so")[1]
    assert missing.startswith("none: RUEDA_NCCL_LIBRARY=/nowhere/nccl.so"), missing
    assert told(RUEDA_GPU_OPERATIONS="staged")[1] == "not used: RUEDA_GPU_OPERATIONS=staged"


def test_the_mpi_of_rueda_run_is_named_beside_that_of_a_process():
    found = shutil.which("mpirun")
    if found is None:
        pytest.skip("there is no mpirun")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=60, check=False)
    done = json.loads(doctor("--no-python", "--json").stdout)
    used = done["facts"]["rueda"]["rueda run --mpi"]
    assert used.startswith("Open MPI") == ("(Open" in version.stdout) and f"(started by {found})" in used
    here = done["facts"]["rueda"]["MPI library"]
    told = [one["sentence"] for one in done["problems"] if "rueda run --mpi uses" in one["sentence"]]
    assert len(told) == (used.split(",")[0] != here.split(",")[0]), (used, here, told)


def test_an_mpirun_that_does_not_work_is_advice(tmp_path):
    (tmp_path / "mpirun").write_text(
        "#!/bin/sh\n[ $1 = --version ] && echo 'mpirun (Open MPI) 5.0' || echo no slots\n"
    )
    (tmp_path / "mpirun").chmod(0o755)
    done = doctor("--no-python", "--json", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout
    (told,) = [one["sentence"] for one in json.loads(done.stdout)["problems"] if "mpirun" in one["sentence"]]
    assert told.startswith(f"rueda run --mpi cannot use {tmp_path}/mpirun: no slots;"), told


def test_what_will_not_work_is_a_sentence_and_status_1():
    done = doctor("--no-python", "--json", RUEDA_INTERFACE="no-such-interface", RUEDA_CYCLE_TIME="soon")
    assert done.returncode == 1
    assert "RUEDA_CYCLE_TIME='soon' is refused" in broken_sentences(done)["settings"]
    done = doctor("--no-python", "--json", RUEDA_INTERFACE="no-such-interface")
    assert "'no-such-interface' does not belong to this machine" in broken_sentences(done)["network"]
    done = doctor("--no-python", RUEDA_LIBRARY="/nowhere/librueda.so")
    assert done.returncode == 1 and "BROKEN: cannot load /nowhere/librueda.so" in done.stdout
    done = doctor("--no-python", RUEDA_RANK="0")
    assert done.returncode == 1 and "RUEDA_RANK=0 is set but RUEDA_SIZE is not" in done.stdout


def test_every_front_end_that_can_be_imported_is_tried(tmp_path):
    # Stands for frameworks that are broken, dead or hanging: none of them may take the others down.
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('built for another machine')")
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text("raise RuntimeError('no backend')")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "python")])
    done = doctor("--json", PYTHONPATH=path)
    report = json.loads(done.stdout)
    facts, broken = (
        report["facts"]["python"],
        [one["sentence"] for one in report["problems"] if one["is_broken"]],
    )
    assert done.returncode == 1
    assert facts["torch"].endswith("rueda.torch works"), facts
    assert facts["torch, arena"].startswith("passes its self-test"), facts
    assert facts["numpy"].endswith("rueda.numpy works")
    assert any("rueda.tensorflow does not work: built for another machine" in one for one in broken), broken
    assert any("the front end for jax ended with signal 11" in one for one in broken), broken
    assert len(broken) == 3, broken


def test_an_unknown_option_is_refused():
    done = doctor("--verbose")
    assert done.returncode == 2 and "--verbose is no option of rueda doctor" in done.stderr


def test_another_projects_package_of_that_name_is_not_taken_for_a_missing_one(tmp_path):
    (tmp_path / "rueda").mkdir()
    (tmp_path / "rueda/__init__.py").write_text('"""Measures the wind."""')
    done = doctor("--json", PYTHONPATH=str(tmp_path))
    (said,) = [
        one["sentence"] for one in json.loads(done.stdout)["problems"] if "has a package" in one["sentence"]
    ]
    assert "has a package rueda that is another project's" in said and "pip uninstall rueda" in said
    (tmp_path / "rueda/__init__.py").unlink()
    (tmp_path / "rueda").rmdir()
    without = doctor("--json", PYTHONPATH=str(tmp_path), PYTHONNOUSERSITE="1")
    assert "another project" not in without.stdout


def all_of(terminal):
    """What a terminal was sent, whose other end is closed. It arrives in pieces."""
    said = b""
    with contextlib.suppress(OSError):  # at its end
        while piece := terminal.read(65536):
            said += piece
    return said.decode()


def test_on_a_terminal_it_says_what_it_looks_at():
    terminal, its_end = os.openpty()
    with open(terminal, "rb", buffering=0) as shown:
        environment = {**os.environ, "RUEDA_LIBRARY": library()}
        command = [RUEDA, "doctor", "--no-python"]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=its_end, timeout=120, check=False
        )
        os.close(its_end)
        said = all_of(shown)
    assert done.returncode == 0
    assert "rueda doctor: two ranks try each transport …" in said and said.endswith("\r\x1b[K"), said
    assert "two ranks try" not in done.stdout.decode()
    # Into a pipe or a log it says the same, in lines.
    lines = doctor("--no-python").stderr.splitlines()
    assert len(lines) > 2 and all(one.startswith("rueda doctor: ") and one.endswith(" …") for one in lines), (
        lines
    )


@pytest.mark.parametrize("how", list(forbidden.WAYS))
def test_a_host_without_shared_memory_is_advice_because_jobs_run_over_tcp(how):
    done = doctor("--no-python", "--json", before=forbidden.WAYS[how])
    report = json.loads(done.stdout)
    assert done.returncode == 0 and not report["is_broken"], report["problems"]
    tried = report["facts"]["transports"]
    assert tried["shm"] == "not available (see memory); jobs use tcp inside this host", tried
    assert tried["tcp"].startswith("works; "), tried
    assert report["facts"]["fabric"]["within a host"] == "tcp"
    sentences = [one["sentence"] for one in report["problems"]]
    (told,) = [one for one in sentences if one.startswith("shared memory is not available here: cannot ")]
    assert told.count("rank 0 warns of it once") == 1 and "over TCP" in told, told
    assert ("seccomp" in told) == (how == "seccomp") and ("ulimit -f" in told) == (how != "seccomp"), told


def test_shared_memory_alone_is_broken_where_there_is_none():
    done = doctor("--no-python", "--json", before=forbidden.WAYS["seccomp"], RUEDA_TRANSPORTS="shm")
    assert done.returncode == 1, done.stdout
    assert "RUEDA_TRANSPORTS=shm,tcp" in broken_sentences(done)["transports"], done.stdout
