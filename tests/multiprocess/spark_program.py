"""A Spark application of its own process, for tests that kill parts of it: starts ranks that wait, and says
how `run` ended. Reads one line from stdin before each of its jobs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import spark_support


def wait(mark: str) -> None:
    """A rank: it joins the others, hides a child, says who it is, and waits to be killed."""
    import os
    import subprocess
    import time

    import rueda.numpy as hvd

    hvd.init()
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    worker = os.getppid()  # the reaper
    print(mark, hvd.rank(), os.getpid(), worker, child.pid, flush=True)
    time.sleep(300)


def main() -> None:
    folder, use_daemon = Path(sys.argv[1]), sys.argv[2]
    settings = {"spark.python.use.daemon": use_daemon}
    session = spark_support.builder("local-cluster[1,2,1024]", folder, **settings).getOrCreate()
    import rueda.spark

    print("ready", flush=True)
    for _ in sys.stdin:
        try:
            rueda.spark.run(wait, args=("rank",), num_proc=2, verbose=0)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        except RuntimeError as error:
            print("failed:", " ".join(str(error).split()), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
