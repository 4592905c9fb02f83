"""Ids of removed process sets are given out again, and names of unnamed operations count per id.

A rank that had used the first set went on counting from where it was, its partners in the second set from 1;
they never met, and the next collective of the second set waited for ever.
"""

from harness import assert_all_succeed, launch

SCRIPT = """
import numpy as np
import rueda.numpy as hvd
hvd.init(process_sets="dynamic")
ids = []
for ranks in ([2], [1, 2]):
    some = hvd.add_process_set(ranks)
    ids.append(some.process_set_id)
    if some.included():
        assert hvd.allreduce(np.ones(2), op=hvd.Sum, process_set=some)[0] == len(ranks)
    hvd.remove_process_set(some)
assert ids[0] == ids[1], ids
"""


def test_unnamed_operations_of_a_set_meet_whatever_set_had_its_id_before():
    assert_all_succeed(launch(3, SCRIPT, limit_s=30))
