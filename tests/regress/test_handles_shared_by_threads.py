"""Threads that synchronized one handle at the same time read memory that the engine had back already.

Each of them took the result for itself, and the first to end released it: the others copied freed memory, or
were told that there was no result. Now one takes it, and those that wait with it get the same. The same went
for operations whose wait a signal handler's exception ended: what the engine still wrote was given up.
"""

import pytest
from harness import assert_all_succeed, launch

SHARED = """
import sys, threading
import numpy as np, torch
import rueda.numpy, rueda.torch
import rueda.{front_end} as hvd
hvd.init()
sys.setswitchinterval(1e-6)
n, full = hvd.size(), {full}
starts = [
    lambda: hvd.reducescatter_async(full((4000 * n,), 1.0), "r", hvd.Sum),
    lambda: hvd.allgather_async(full((4000,), float(n)), "g"),
    lambda: hvd.alltoall_async(full((4000 * n,), float(n)), [4000] * n, "a"),
]
def synchronize(handle, results):
    try:
        results.append(hvd.synchronize(handle))
    except ValueError as error:  # rueda.numpy's answer for a handle that is cleared
        results.append(None if "has been cleared" in str(error) else error)
    except Exception as error:
        results.append(error)
for i in range(200):
    handle, results = starts[i % 3](), []
    threads = [threading.Thread(target=synchronize, args=(handle, results)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [result[0] if isinstance(result, tuple) else result for result in results if result is not None]
    assert len(results) == 3 and taken, results
    for result in taken:
        assert not isinstance(result, Exception) and bool((result == n).all()), (i, results)
"""


@pytest.mark.parametrize("front_end, full", [("torch", "torch.full"), ("numpy", "np.full")])
def test_threads_that_share_a_handle_see_its_result_or_that_it_is_cleared(front_end, full):
    assert_all_succeed(launch(2, SHARED.format(front_end=front_end, full=full), limit_s=60))


WAIT_TOGETHER = """
import threading
import torch
import rueda.torch as hvd
from rueda import in_flight
hvd.init()
wait, together = in_flight.operations.wait, threading.Barrier(2)
def wait_for_both(engine_handle):
    try:
        wait(engine_handle)
    finally:
        together.wait(20)  # neither goes on before the other knows how the operation ended
def synchronize_twice(handle):
    outcomes = []
    def synchronize():
        try:
            outcomes.append(hvd.synchronize(handle))
        except hvd.HorovodInternalError as error:
            outcomes.append(str(error))
    threads = [threading.Thread(target=synchronize) for _ in range(2)]
    in_flight.operations.wait = wait_for_both
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    in_flight.operations.wait = wait
    assert hvd.synchronize(handle) is None
    return outcomes
first, second = synchronize_twice(hvd.allgather_async(torch.ones(2)))
assert first is second and first.tolist() == [1.0] * 4
first, second = synchronize_twice(hvd.allgather_async(torch.ones(2, 1 + hvd.rank()), name="unequal"))
assert first == second and "allgather.unequal" in first, (first, second)
"""


def test_threads_that_wait_together_get_one_result_or_one_failure():
    assert_all_succeed(launch(2, WAIT_TOGETHER, limit_s=30))
