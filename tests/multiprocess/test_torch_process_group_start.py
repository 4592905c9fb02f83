"""Jobs on backend "rueda" whose ranks only torch.distributed knows: no launcher tells the engine of them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from harness import ROOT, assert_all_succeed, library
from nursery import launch
from ports import free_port

HEAD = """
import json, os, secrets, sys, tempfile
from datetime import timedelta
import torch
import torch.distributed as dist
import rueda.torch as hvd

rank, size, port = int(os.environ["RUEDA_RANK"]), int(os.environ["RUEDA_SIZE"]), os.environ["PORT"]
for name in list(os.environ):  # what the harness says in a launcher's place
    if name.startswith("RUEDA_") and name not in ("RUEDA_LIBRARY", "RUEDA_TRANSPORTS"):
        del os.environ[name]
MINE = {"rank": rank, "world_size": size, "timeout": timedelta(seconds=30)}

def told():
    kinds = ("RUEDA_", "HOROVOD_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_", "LOCAL_")
    return {name: value for name, value in os.environ.items() if name.startswith(kinds)}

def use():
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [size * (size - 1) / 2] * 2
    assert (dist.get_rank(), dist.get_world_size(), hvd.rank(), hvd.size()) == (rank, size, rank, size)

def end():
    dist.barrier()
    hvd.shutdown()
    dist.destroy_process_group()
"""


def run(size, body):
    return launch(size, HEAD + textwrap.dedent(body), environment={"PORT": str(free_port())})


TUTORIAL = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import rueda.torch

def train(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = sys.argv[1]
    dist.init_process_group("rueda", rank=rank, world_size=world_size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    sys.stdout.write(f"trained {dist.get_rank()} of {dist.get_world_size()}\\n")  # both write here
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
"""


def test_the_spawn_tutorial_runs_as_it_stands(tmp_path: Path):
    (tmp_path / "train.py").write_text(TUTORIAL)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    found = {"PYTHONPATH": str(ROOT / "python"), "RUEDA_LIBRARY": library(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "train.py", str(free_port())],
        env={**clean, **found},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n"))[1:] == ["trained 0 of 2", "trained 1 of 2"], done.stdout


def test_ranks_meet_by_any_of_torchs_stores_one_after_the_other():
    body = """
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}  # of nodes, as some launchers number them
    before = told()
    dist.init_process_group("rueda", init_method=f"tcp://127.0.0.1:{port}", **MINE)
    use()
    assert told() == before
    end()

    del os.environ["RANK"]
    os.environ["WORLD_SIZE"] = str(size)
    before = told()
    dist.init_process_group("rueda", init_method=f"file:///tmp/rueda-test-store-{port}", **MINE)
    use()
    end()

    store = dist.TCPStore("localhost", int(port) + 1, size, rank == 0, timedelta(seconds=30))
    dist.init_process_group("rueda", store=store, **MINE)
    use()
    end()

    # A group on another backend, and a part of it on rueda: members or not, all ranks start the engine.
    store.set(f"came{rank}", "")
    store.wait([f"came{other}" for other in range(size)])
    dist.init_process_group("gloo", store=dist.PrefixStore("again", store), **MINE)
    ends = dist.new_group([0, size - 1], backend="rueda")
    assert (hvd.rank(), hvd.size()) == (rank, size)
    if rank != 1:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=ends)
        assert tensor.item() == 2
    end()
    assert told() == before
    """
    assert_all_succeed(run(3, body))


def test_a_group_made_again_needs_no_new_port():
    """PyTorch's store at MASTER_PORT ends with the group before, on rank 0, when others may have found it."""
    body = """
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    for _ in range(8):
        dist.init_process_group("rueda", **MINE)
        use()
        dist.destroy_process_group()
    """
    assert_all_succeed(run(2, body))


def test_the_secret_is_the_users_where_there_is_one_and_goes_through_no_directory():
    body = """
    from rueda.torch.distributed import start

    def meet(place):
        store = dist.PrefixStore(place, shared)
        dist.init_process_group("rueda", store=store, **MINE)
        use()
        name, = (name for name in seen if name.startswith(place))
        secret = seen[name]
        store, number = met.pop()
        assert not store.check([f"rueda/{number}/job"])  # deleted before rank 0 took part in use()
        end()
        return secret

    seen = {}
    secret_file = start._secret_file
    def look(secret):
        seen[f"{place}{rank}"] = secret
        return secret_file(secret)
    start._secret_file = look
    met, by_store = [], start.by_store
    def remember(store, rank, size, number):
        met.append((store, number))
        by_store(store, rank, size, number)
    start.by_store = remember
    shared = dist.TCPStore("localhost", int(port), size, rank == 0, timedelta(seconds=30))
    place = "first"
    first = meet(place)
    place = "second"
    assert len(first) == 64 and meet(place) not in (first, None)  # of one start
    for fd in os.listdir("/proc/self/fd"):
        try:
            assert "rueda-secret" not in os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            pass
    path = f"{tempfile.gettempdir()}/rueda-test-secret-{port}-{rank}"
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write("ab" * 32)
    os.environ["RUEDA_SECRET_FILE"] = path
    place = "third"
    assert meet(place) is None
    os.remove(path)
    """
    assert_all_succeed(run(2, body))


def test_a_rank_that_does_not_come_is_told_in_a_sentence():
    body = """
    store = dist.TCPStore("localhost", int(port), size, rank == 0, timedelta(seconds=30))
    store.set(f"came{rank}", "")
    store.wait([f"came{other}" for other in range(size)])
    if rank == 0:
        try:
            store.set_timeout(timedelta(seconds=0.5))
            dist.init_process_group("rueda", store=store, **MINE)
        except hvd.HorovodInternalError as error:
            assert "2 ranks of torch.distributed did not all come to start rueda" in str(error), error
        else:
            raise AssertionError("started")
        store.set("over", "")
    store.wait(["over"])
    """
    assert_all_succeed(run(2, body))


def test_an_aborted_group_ends_its_waits_at_once_and_survivors_make_a_new_one(tmp_path):
    done = run(
        3,
        f"""
        import threading, time

        def group(name, rank, size):
            store = dist.FileStore({str(tmp_path)!r} + "/" + name, size)
            mine = {{"rank": rank, "world_size": size, "timeout": timedelta(seconds=60)}}
            dist.init_process_group("rueda", store=store, **mine)

        group("first", rank, size)
        use()
        if rank == 2:  # takes part in nothing any more
            try:
                dist.recv(torch.zeros(1), src=0)
            except hvd.HorovodInternalError:
                os._exit(0)
            sys.exit("the others did not abort")
        try:
            work = dist.all_reduce(torch.ones(2), async_op=True)  # the other may have aborted before
            dist.distributed_c10d._get_default_group().abort()
            work.wait()
            sys.exit("an aborted sum ended well")
        except hvd.HorovodInternalError:
            pass
        dist.distributed_c10d._get_default_group().abort()
        try:
            dist.all_reduce(torch.ones(2))
            sys.exit("an aborted group went on")
        except hvd.HorovodInternalError as error:
            assert "was destroyed" in str(error)
        dist.destroy_process_group()
        group("second", rank, 2)
        size = 2
        use()
        end()
        """,
    )
    assert_all_succeed(done)
