"""Hosts that forbid shared memory: jobs run over TCP and say so once."""

import os
import subprocess

import pytest
from harness import library
from launch_support import PYTHON, ROOT, RUEDA, run

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

LARGE = 300_000  # elements; more than a ring holds

JOB = f"""
import json, os, sys
import forbidden
how = sys.argv[1]
if sys.argv[2] == "all" or os.environ["RUEDA_RANK"] in sys.argv[2].split(","):
    forbidden.WAYS[how]()
import numpy as np
import rueda.numpy as hvd
from rueda import _core
for _ in range(2):
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    total = hvd.allreduce(np.full({LARGE}, rank + 1.0), op=hvd.Sum)
    assert total.tolist() == [size * (size + 1) / 2] * {LARGE}
    assert hvd.allgather(np.full(2, rank)).tolist() == [r for r in range(size) for _ in range(2)]
    handles = [hvd.allreduce_async(np.full(100, float(i + rank)), op=hvd.Sum) for i in range(20)]
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle).tolist() == [size * i + size * (size - 1) / 2] * 100
    assert hvd.broadcast_object("x" * 5000 if rank == 0 else None) == "x" * 5000
    hvd.barrier()
    peers = json.loads(_core.describe())["peers"]
    ways = {{one["rank"]: one["transport"] for one in peers if one["rank"] != rank}}
    hvd.shutdown()
print("ENDED", json.dumps([rank, ways]), flush=True)
"""


def job(folder, how, ranks, victims="all", program=JOB, **environment):
    """(status, what each rank printed last, standard error) of a job whose victims share no memory."""
    script = folder / "job.py"
    script.write_text(program)
    paths = (ROOT / "python", ROOT / "tests" / "multiprocess")
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "RUEDA_LIBRARY": library(),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    status, out, err = run("-np", ranks, PYTHON, script, how, victims, env=variables, timeout=150)
    return status, [line.split("ENDED ")[1] for line in out.splitlines() if "ENDED " in line], out + err


def warnings_in(said):
    return [line for line in said.splitlines() if "cannot share memory with their host" in line]


@pytest.mark.parametrize("how", ["seccomp", "files of 1 KiB", "files of 1 MiB"])
def test_a_host_without_shared_memory_runs_over_tcp_and_says_so_once(tmp_path, how):
    status, ended, said = job(tmp_path, how, 3)
    assert status == 0 and len(ended) == 3, said
    assert all('"tcp"' in one and "shm" not in one for one in ended), ended
    warned = warnings_in(said)
    assert len(warned) == 1, said  # although the job calls init twice
    assert "rank 0 (host" in warned[0] and "; rank 2 (host" in warned[0], warned
    advice = {"seccomp": "Allow memfd_create in the container's seccomp profile"}.get(
        how, "ulimit -f unlimited"
    )
    assert advice in warned[0] and "RUEDA_TRANSPORTS=tcp" in warned[0], warned
    assert ("seccomp" in warned[0]) != ("ulimit" in warned[0]), "one cause has one remedy"


@pytest.mark.parametrize("how", ["seccomp", "files of 1 KiB"])
def test_tcp_alone_wants_no_shared_memory_and_warns_of_nothing(tmp_path, how):
    status, ended, said = job(tmp_path, how, 2, RUEDA_TRANSPORTS="tcp")
    assert status == 0 and len(ended) == 2, said
    assert not warnings_in(said), said


@pytest.mark.parametrize("victim", ["0", "1"])
def test_one_rank_without_shared_memory_is_named_and_the_others_share_theirs(tmp_path, victim):
    status, ended, said = job(tmp_path, "seccomp", 3, victim)
    assert status == 0 and len(ended) == 3, said
    together = [rank for rank in "012" if rank != victim]
    for one in ended:
        rank, ways = one.strip("[]").split(", ", 1)
        for other in "012".replace(rank, ""):
            expected = "shm" if {rank, other} == set(together) else "tcp"
            assert f'"{other}": "{expected}"' in ways, ended
    warned = warnings_in(said)
    assert len(warned) == 1 and f": rank {victim} (host" in warned[0], said
    assert all(f"rank {other} (" not in warned[0] for other in together), warned


def test_a_job_that_may_use_nothing_else_is_told_what_to_do(tmp_path):
    status, ended, said = job(tmp_path, "seccomp", 2, RUEDA_TRANSPORTS="shm")
    assert status != 0 and not ended, said
    assert "Operation not permitted" in said and "RUEDA_TRANSPORTS=shm,tcp" in said, said


def test_a_single_process_needs_no_shared_memory(tmp_path):
    for how in ("seccomp", "files of 1 KiB"):
        status, ended, said = job(tmp_path, how, 1)
        assert status == 0 and len(ended) == 1, said
        assert not warnings_in(said), said


def measure(folder, how, *options):
    """`rueda bench allreduce` of two ranks, where how is in force."""
    paths = os.pathsep.join(map(str, (ROOT / "python", ROOT / "tests" / "multiprocess")))
    start = "import forbidden, os, sys; forbidden.WAYS[sys.argv[1]](); os.execv(sys.argv[2], sys.argv[2:])"
    command = [PYTHON, "-c", start, how, RUEDA, "bench", "allreduce", "-np", "2", *options]
    variables = {**os.environ, "PYTHONPATH": paths, "RUEDA_LIBRARY": library()}
    return subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("how", ["seccomp", "files of 1 KiB"])
def test_bench_measures_what_there_is(tmp_path, how):
    sizes = ("--sizes", "4B,64B,1KiB,4KiB,16KiB")  # whose results together are more than 1 KiB
    done = measure(tmp_path, how, *sizes)
    assert done.returncode == 0 and "shared" not in done.stdout, done
    assert done.stdout.count("private") == done.stdout.count(" ok") == 5, done.stdout
    assert done.stderr.count("shared buffers are not measured: cannot ") == 1, done.stderr
    assert "RUEDA_ARENA_BYTES" not in done.stderr, "a smaller value would not help"
    done = measure(tmp_path, how, *sizes, "--memory", "shared")
    refused = {"seccomp": "Operation not permitted"}.get(how, "ulimit -f")
    assert done.returncode != 0 and refused in done.stderr, done


@pytest.mark.parametrize(
    ("how", "given", "way_on"),
    [
        ("seccomp", "shm,tcp", "leave it out: --transport tcp."),
        ("files of 1 KiB", "tcp,shm", "leave it out: --transport tcp."),
        ("seccomp", "shm", "choose another: --transport tcp."),
    ],
)
def test_bench_of_shm_alone_advises_an_option_and_not_what_was_given(tmp_path, how, given, way_on):
    done = measure(tmp_path, how, "--sizes", "4B", "--iterations", "5", "--transport", given)
    assert done.returncode != 0 and "of shared memory" in done.stderr, done
    assert "--transport measures each by itself, and shm cannot be used here; " + way_on in done.stderr, done
    assert "RUEDA_TRANSPORTS" not in done.stderr, done
    assert (" ok" in done.stdout) == given.startswith("tcp,"), done


# torch.distributed starts the engine, since no launcher is left that would.
TORCH_JOB = """
import os, sys
import forbidden
forbidden.WAYS[sys.argv[1]]()
rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
for name in list(os.environ):
    if name.startswith(("RUEDA_", "HOROVOD_", "LOCAL_")) and name != "RUEDA_LIBRARY":
        del os.environ[name]
for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    del os.environ[name]
import torch
import torch.distributed as dist
import rueda.torch
dist.init_process_group("rueda", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
total = torch.ones(5)
dist.all_reduce(total)
assert total.tolist() == [dist.get_world_size()] * 5
dist.destroy_process_group()
print("ENDED yes", flush=True)
"""


def test_secrets_of_torch_distributed_need_no_memory_files(tmp_path):
    pytest.importorskip("torch")
    status, ended, said = job(tmp_path, "seccomp", 2, program=TORCH_JOB)
    assert status == 0 and len(ended) == 2, said
