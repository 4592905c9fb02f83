"""Every rank logged a stall in full, and again each period: of 1000 ranks a thousand copies a minute. It
comes in full once, from rank 0; a line says that it lasts.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "multiprocess"))

from harness import assert_all_succeed, launch

BODY = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
log = f"stderr.{hvd.rank()}"
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
if hvd.rank() == 1:
    deadline = time.monotonic() + 90
    while open(log).read().count("waiting for rank 1") < 3:
        assert time.monotonic() < deadline, open(log).read()
        time.sleep(0.02)
hvd.allreduce(np.ones(2), name="late")
text = open(log).read()
hvd.barrier()
assert text.count("Missing ranks:") == (1 if hvd.rank() == 0 else 0), text
assert text.count("One tensor is waiting for rank 1, the longest (allreduce.late) for ") >= 2, text
"""


def test_a_stall_is_logged_in_full_once():
    assert_all_succeed(launch(2, BODY, {"RUEDA_STALL_CHECK_TIME_SECONDS": "0.3"}))
