"""A function for elastic jobs: its ranks sum ones, and can tell afterwards whether a step was lost."""

import os
import signal
import time

LIMIT_S = 200.0


def train(steps, size, doomed=None, fails=False, news=None, grown=0):
    """Sums ones until so many steps are made in a job of this size. Returns rank, size, local rank, uid, and
    whether the sums are right.

    grown: and a step was made by so many ranks. doomed: (uid, step) of the process that is killed, or whose
    variable TEST_DOOMED names the process that is. fails: raises LookupError in the fourth step. news: gets
    (step, size) from rank 0.
    """
    import numpy as np

    import rueda.numpy as hvd

    hvd.init()
    state = hvd.elastic.NumpyState(step=0, total=np.zeros(1), most=0)
    uid = os.environ.get("RUEDA_ELASTIC_UID", "")
    deadline = time.monotonic() + LIMIT_S

    @hvd.elastic.run
    def steps_of(state):
        while state.step < steps or hvd.size() != size or state.most < grown:
            assert time.monotonic() < deadline, f"{hvd.size()} ranks, at most {state.most}; not {size}"
            if (uid, state.step) == doomed:
                os.kill(int(os.environ.get("TEST_DOOMED", os.getpid())), signal.SIGKILL)
                time.sleep(LIMIT_S)  # its agent ends it
            ones = hvd.allreduce(np.ones(1), op=hvd.Sum, name="ones")
            if fails and state.step == 3:
                raise LookupError("mine")
            state.total += ones / hvd.size()
            if news is not None and hvd.rank() == 0:
                news((state.step, hvd.size()))
            state.step += 1
            state.most = max(state.most, hvd.size())
            state.commit()
        return hvd.rank(), hvd.size(), hvd.local_rank(), uid, bool(state.total[0] == state.step)

    return steps_of(state)
