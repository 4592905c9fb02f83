"""Whole jobs on backend "rueda": under torchrun, beside hvd.init(), with a rank that dies, to the exit."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from harness import NO_PEER_TIMEOUT, ROOT, assert_all_succeed, library
from launch_support import RUEDA
from nursery import launch

HEAD = """
import os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
import rueda.torch as hvd
"""


def run(size, body, **options):
    return launch(size, HEAD + textwrap.dedent(body), **options)


def environment():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    paths = os.pathsep.join(str(ROOT / part) for part in ("python", "compat/horovod"))
    return {
        **clean,
        "PYTHONPATH": paths,
        "RUEDA_LIBRARY": library(),
        "RUEDA_BIN": RUEDA,
        "OMP_NUM_THREADS": "1",
    }


SCRIPT = """
import sys
import torch
import torch.distributed as dist
import rueda.torch

dist.init_process_group("rueda")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = [torch.zeros(1, 4) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(one, weights[0]) for one in weights)
sys.stdout.write(f"trained {dist.get_rank()} of {dist.get_world_size()}\\n")
"""


def run_script(command, folder: Path, script=SCRIPT):
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [*command, "train.py"],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_torchrun_and_rueda_run_train_and_leave_in_silence(tmp_path: Path):
    """The script destroys nothing: leaving is enough, without a word on stderr."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for command in (torchrun, [RUEDA, "run", "-np", "2", sys.executable]):
        done = run_script(command, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in range(2):
            assert f"trained {rank} of 2" in done.stdout
        assert "Traceback" not in done.stderr and "error" not in done.stderr.lower(), done.stderr


def test_groups_are_made_again_under_a_launcher_that_names_a_port(tmp_path: Path):
    """PyTorch's store at that port ends with the group before, on rank 0, when others may have found it."""
    script = """
import torch
import torch.distributed as dist
import rueda.torch

for _ in range(8):
    dist.init_process_group("rueda")
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
print("done", flush=True)
"""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    for command in (torchrun, [RUEDA, "run", "-np", "2", sys.executable]):
        done = run_script(command, tmp_path, script)
        assert done.returncode == 0 and done.stdout.count("done") == 2, done.stdout + done.stderr


def test_a_killed_rank_ends_waits_futures_and_ddp_at_once():
    body = """
    dist.init_process_group("rueda")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    model(torch.ones(1, 4)).sum().backward()
    if dist.get_rank() == 1:
        time.sleep(0.5)  # mostly the others wait for it by now; if not, they hear of it when they submit
        os.kill(os.getpid(), signal.SIGKILL)
    for attempt in (
        lambda: dist.all_reduce(torch.ones(2), async_op=True).get_future().wait(),
        lambda: dist.barrier(),
        lambda: model(torch.ones(1, 4)).sum().backward(),
        lambda: dist.recv(torch.ones(1), 1),
    ):
        try:
            attempt()
        except RuntimeError as error:
            assert "ank 1" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    print("noticed")
    """
    finished = run(3, body, environment=NO_PEER_TIMEOUT)
    assert finished[1].status == -9
    for rank in (0, 2):
        assert finished[rank].status == 0 and "noticed" in finished[rank].output, finished[rank].output


def test_groups_need_no_setting_after_hvd_init_and_leave_hvds_rules_alone():
    body = """
    hvd.init()
    dist.init_process_group("rueda")
    pair = dist.new_group([0, 2])
    if hvd.rank() != 1:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=pair)
        assert tensor.tolist() == [2, 2]
        if hvd.rank() == 0:
            dist.send(tensor, 2)
        else:
            dist.recv(tensor, 0)
    else:
        assert pair is dist.GroupMember.NON_GROUP_MEMBER
    try:
        hvd.add_process_set([0, 2])
    except ValueError as error:
        assert "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding process sets" in str(error)
    else:
        raise AssertionError("added")
    assert "RUEDA_DYNAMIC_PROCESS_SETS" not in os.environ
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0, 1, 2]}
    hvd.barrier()
    # A group ends with the engine, and says so; both can be made again.
    hvd.shutdown()
    try:
        dist.barrier()
    except RuntimeError as error:
        assert "init" in str(error), error
    else:
        raise AssertionError("worked")
    dist.destroy_process_group()
    hvd.init()
    dist.init_process_group("rueda")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 3
    """
    assert_all_succeed(run(3, body))


def test_open_futures_end_with_the_engine_and_so_does_the_process():
    body = """
    dist.init_process_group("rueda")
    box = torch.zeros(1)
    failures = []
    if dist.get_rank() == 0:
        work = dist.irecv(box, 1)  # never sent
        future = work.get_future()
        future.add_done_callback(lambda done: failures.append(done))
    dist.barrier()
    hvd.shutdown()
    if dist.get_rank() == 0:
        assert future.done() and failures
        try:
            future.wait()
        except RuntimeError as error:
            assert "hut" in str(error), error
        else:
            raise AssertionError("received")
    """
    finished = run(2, body)
    assert_all_succeed(finished)


def test_ranks_missing_from_new_group_end_the_wait_with_a_sentence():
    body = """
    dist.init_process_group("rueda")
    if dist.get_rank() == 0:
        try:
            dist.new_group([0], timeout=timedelta(seconds=0.5))
        except RuntimeError as error:
            assert "timed out" in str(error), error  # what programs look for
            assert "call new_group on every rank, members or not" in str(error), error
        else:
            raise AssertionError("made")
    hvd.barrier()
    print("done")
    os._exit(0)  # the request for the set stays open for ever
    """
    assert_all_succeed(run(2, body))


def test_no_store_of_torch_listens_on_all_interfaces():
    """Where no URL is given, PyTorch's unauthenticated store must not be reachable from outside the job."""
    body = """
    dist.init_process_group("rueda")
    mine, addresses = set(), []
    for fd in range(3, 1000):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).read().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in mine:
                addresses.append(fields[1].partition(":")[0])
    assert dist.get_rank() != 0 or len(addresses) >= 2, addresses  # the store's and the engine's
    assert set(addresses) <= {"0100007F"}, addresses
    dist.barrier()
    """
    assert_all_succeed(run(2, body))


def test_a_rank_that_leaves_while_ddp_waits_raises_in_backward():
    """The failure comes through a future to the reducer, in C++."""
    body = """
    dist.init_process_group("rueda")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(3):
        if step == 2 and dist.get_rank() == 1:
            time.sleep(2)  # the other one waits in its allreduce by now
            raise KeyError("the cause")
        try:
            model(torch.ones(2, 4)).sum().backward()
        except RuntimeError as error:
            assert step == 2 and "shut down" in str(error), error
            print("told")
    """
    survivor, leaver = run(2, body)
    assert survivor.status == 0 and "told" in survivor.output, survivor.output
    assert leaver.status == 1 and "the cause" in leaver.output


def test_a_single_process_job_needs_no_launcher_after_hvd_init():
    script = "hvd.init(); dist.init_process_group('rueda'); assert dist.get_world_size() == 1"
    command = [sys.executable, "-c", HEAD + script]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


PROFILED = """
import torch
import torch.distributed as dist
from torch.profiler import profile
import rueda.torch

dist.init_process_group("rueda")

def profiled():
    with profile() as result:
        dist.all_reduce(torch.ones(4))
        works = [dist.all_reduce(torch.ones(400_000), async_op=True) for _ in range(20)]
    result.itself = result  # so that it is freed at the exit
    for work in works:  # some end after the profiler
        work.wait()
    print("sees", sum(event.name == "rueda:all_reduce" for event in result.events()), flush=True)

profiled()
dist.destroy_process_group()
"""


def test_operations_that_outlast_a_profiler_leave_its_memory_alone(tmp_path: Path):
    for _ in range(2):
        done = run_script([RUEDA, "run", "-np", "2", sys.executable], tmp_path, PROFILED)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("sees 21") == 2
