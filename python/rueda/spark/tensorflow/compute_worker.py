"""Processes that prepare data for a training job, in the tasks of a Spark application:

    python -m rueda.spark.tensorflow.compute_worker config.json

For spark-submit, write a script that calls `main`. The driver serves the registry and writes the
configuration to the file, which the training job reads. There are `spark.default.parallelism` processes, and
they run until the training job says that it is done (rueda.tensorflow.data.compute_worker).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn

from rueda.spark import run
from rueda.tensorflow.data.compute_service import compute_worker_fn
from rueda.tensorflow.data.compute_worker import command, own_hosts, serving, workers_per_dispatcher


def _end(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def main(
    dispatchers: int, dispatcher_side: str, configfile: str | os.PathLike[str], timeout: float = 60
) -> None:
    """Runs the processes, and returns when the training job has ended the service; the session is stopped
    then. In the main thread, SIGTERM ends them. Raises ValueError for numbers and sides that cannot be meant.
    """
    from pyspark.sql import SparkSession

    session: Any = SparkSession.builder.getOrCreate()
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _end) if is_main else None
    try:
        context = session.sparkContext
        workers = int(context.defaultParallelism)
        shape = (dispatchers, workers_per_dispatcher(workers, dispatchers), dispatcher_side)
        # Where executors find the driver, others most likely do.
        hosts = list(dict.fromkeys([context.getConf().get("spark.driver.host"), *own_hosts()]))
        with serving(shape, configfile, timeout, hosts) as config:
            run(compute_worker_fn, args=(config,), num_proc=workers)
    finally:
        session.stop()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(command(main))
