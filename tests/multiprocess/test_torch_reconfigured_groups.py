"""A process group whose ranks change, as torchft's Manager uses one: replicas come and go, and one stays."""

import importlib.util
import signal
import textwrap
from pathlib import Path

import pytest
from harness import assert_all_succeed
from nursery import launch
from ports import free_port

pytestmark = pytest.mark.timeout(600)

HEAD = """
import os, signal, sys, threading
from datetime import timedelta
import torch
import torch.distributed as dist
import rueda.torch as hvd
from rueda.torch.distributed import ReconfigurableProcessGroup

number, count, port = int(os.environ["RUEDA_RANK"]), int(os.environ["RUEDA_SIZE"]), int(os.environ["PORT"])
for name in list(os.environ):  # what the harness says in a launcher's place
    if name.startswith("RUEDA_") and name not in ("RUEDA_LIBRARY", "RUEDA_TRANSPORTS"):
        del os.environ[name]
PATIENCE = timedelta(seconds=90)
store = dist.TCPStore("127.0.0.1", port, None, number == 0, PATIENCE, wait_for_workers=False)
group = ReconfigurableProcessGroup(PATIENCE)

def configure(view, rank, size):
    group.configure(f"127.0.0.1:{port}/view/{view}", f"replica_{number}", rank, size)
    assert (group.rank(), group.size(), group.errored()) == (rank, size, None)

def add(value):
    tensor = torch.tensor([float(value)])
    group.allreduce([tensor], dist.AllreduceOptions()).wait()
    return tensor.item()

def fails(call, words):
    try:
        call()
    except Exception as error:
        assert words in str(error), str(error)
        return error
    sys.exit(f"no error with {words!r}")

def end():
    # The store ends with its process, so that goes last.
    if number == 0:
        store.wait([f"done/{one}" for one in range(1, count)], PATIENCE)
    else:
        store.set(f"done/{number}", "")
"""


def run(size, body, **variables):
    return launch(size, HEAD + textwrap.dedent(body), environment={"PORT": str(free_port()), **variables})


def test_a_replica_goes_on_alone_whenever_the_other_is_lost_and_takes_in_the_next_one():
    done = run(
        4,
        """
        def held():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        if number > 0:  # the life of the other replica with this number
            store.wait([f"turn/{number}"], 3 * PATIENCE)
            configure(f"{number}/both", 1, 2)
            for step in range(20):
                assert add(1) == 3
            store.set(f"lives/{number}", "")
            os.kill(os.getpid(), signal.SIGKILL)

        configure("alone", 0, 1)
        assert add(5) == 5
        counts = []
        for life in range(1, count):
            store.set(f"turn/{life}", "")
            configure(f"{life}/both", 0, 2)
            for step in range(20):
                assert add(2) == 3
            error = fails(lambda: add(2), "rank 1")
            assert isinstance(error, hvd.HorovodInternalError)
            configure(f"{life}/alone", 0, 1)
            assert add(5) == 5
            counts.append(held())
        assert all(now <= max(before) for now, *before in zip(*reversed(counts))), counts
        """,
    )
    assert done[0].status == 0, done[0].output
    assert [one.status for one in done[1:]] == [-signal.SIGKILL] * 3, [one.output for one in done]


def test_replicas_that_stay_meet_again_after_each_abort():
    done = run(
        2,
        """
        for view in range(5):
            configure(view, number, 2)
            for step in range(5):
                assert add(number + 1) == 3
            if number == view % 2:
                late = group.allreduce([torch.ones(1)], dist.AllreduceOptions())
                watchdog = threading.Thread(target=group.abort)
                watchdog.start()
                fails(late.wait, "")
                watchdog.join()
                assert "was aborted" in str(group.errored())
                fails(lambda: add(1), "was aborted; call configure")
            else:
                fails(lambda: group.recv([torch.zeros(1)], 1 - number, 0).wait(), "")
        configure("last", number, 2)
        assert add(number + 1) == 3
        end()
        """,
    )
    assert_all_succeed(done)


def test_what_is_wrong_with_a_configure_is_one_sentence_and_the_next_one_works():
    done = run(
        2,
        """
        fails(lambda: add(1), "not configured yet; call configure")
        fails(lambda: group.configure("here", "r", 0, 1), "'here', but it must be host:port/prefix")
        fails(lambda: group.configure(f"127.0.0.1:{port}/x", "r", 2, 2), "rank 2 of 2 ranks")
        hvd.init()
        fails(lambda: configure("x", 0, 1), "use another backend, such as gloo")
        hvd.shutdown()
        group.set_timeout(timedelta(seconds=1))
        if number == 0:
            fails(lambda: configure("nobody", 0, 2), "The 2 ranks of torch.distributed did not all come")
            fails(lambda: group.configure("127.0.0.1:1/x", "r", 0, 1), "The store at 127.0.0.1:1 cannot")
        group.set_timeout(PATIENCE)
        configure("all", number, 2)
        assert add(number + 1) == 3
        end()
        """,
    )
    assert_all_succeed(done)


MANAGED = """
sys.path.append(os.environ["TORCHFT"])
import torchft
from torchft.coordination import LighthouseServer

def manager(lighthouse):
    own = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False)
    state = {"step": 0}
    made = torchft.Manager(
        pg=group,
        min_replica_size=1,
        load_state_dict=lambda given: state.update(given),
        state_dict=lambda: dict(state),
        replica_id=f"replica_{number}",
        store_addr="127.0.0.1",
        store_port=own.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        timeout=timedelta(seconds=30),
        quorum_timeout=PATIENCE,
        connect_timeout=PATIENCE,
        hostname="127.0.0.1",
    )
    return own, state, made
"""


FOUND = importlib.util.find_spec("torchft")
TORCHFT = FOUND.origin if FOUND is not None else None  # a folder of this name has no origin


@pytest.mark.skipif(TORCHFT is None, reason="torchft is not installed")
def test_torchfts_manager_drives_it_through_losses():
    done = run(
        3,
        MANAGED
        + """
if number == 0:
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100)
    store.set("lighthouse", lighthouse.address())
else:
    store.wait([f"turn/{number}"], 3 * PATIENCE)
own, state, made = manager(store.get("lighthouse").decode())

def step():
    made.start_quorum()
    tensor = torch.ones(4)
    made.allreduce(tensor).wait()
    made.wait_quorum()
    if made.should_commit():
        state["step"] += 1
    return made.num_participants()

if number > 0:  # it gets the state of the other, and trains with it for a while
    together = 0
    while together < 10:
        together += step() == 2
    store.set(f"lives/{number}", "")
    os.kill(os.getpid(), signal.SIGKILL)
for life in (1, 2):
    store.set(f"turn/{life}", "")
    while not store.check([f"lives/{life}"]):
        step()
    while step() > 1:
        pass
assert state["step"] == made.current_step() > 20, (state, made.current_step())
made.shutdown(wait=False)
lighthouse.shutdown()
os._exit(0)
""",
        TORCHFT=str(Path(TORCHFT).parents[1]),
    )
    assert done[0].status == 0, done[0].output
    assert [one.status for one in done[1:]] == [-signal.SIGKILL] * 2, [one.output for one in done]
