"""An operation that ended just after one slice of its wait had run out was reported as failed.

Python waits in slices, to serve signals. A slice that runs out is followed by a poll, and one that then said
"done" was taken for a failure: "Operation … is still pending", on a rank that had its result.
"""

from harness import assert_all_succeed, launch

SCRIPT = """
import time
import numpy as np
import rueda.numpy as hvd
from rueda import _core
hvd.init()
wait, ran_out = _core.wait, []
def wait_that_runs_out_first(handle, seconds):
    if ran_out:
        return wait(handle, seconds)
    ran_out.append(handle)
    while not _core.poll(handle):
        time.sleep(0.001)
    return _core.TIMEOUT
_core.wait = wait_that_runs_out_first
assert hvd.allreduce(np.ones(2), op=hvd.Sum)[0] == hvd.size()
assert ran_out
"""


def test_a_result_that_arrives_after_the_slice_is_a_result():
    assert_all_succeed(launch(2, SCRIPT, limit_s=30))
