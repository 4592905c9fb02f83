"""Real Spark applications on this machine, on loopback only, with their files in one folder."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from harness import LEAN, QUICK_XLA, library
from launch_support import RUEDA, assert_all_gone, marked_processes

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "local-cluster[2,2,1024]"
# An application lives for a minute. The second compiler of the JVM and a collector with threads of its own
# would take half of its processor time, and give nothing back before it ends.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def missing() -> Optional[str]:
    """Why no Spark application can run here; None if one can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    if shutil.which("java") is None:
        return "there is no Java (Debian's default-jre-headless)"
    return None


def java_options(folder: Path) -> str:
    """Of each JVM of an application: one that is killed leaves libraries in its folder."""
    return f"-Djava.io.tmpdir={folder} {SHORT_LIVED_JVM}"


def environment(folder: Path) -> Dict[str, str]:
    """What the JVM and the Python workers of an application find."""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([LEAN, *(str(ROOT / part) for part in ("python", "compat/horovod"))]),
        "RUEDA_LIBRARY": library(),
        "RUEDA_INTERFACE": "lo",
        "RUEDA_BIN": RUEDA,
        "RUEDA_START_TIMEOUT": "120",  # ranks of one job may start far apart on a busy machine
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **QUICK_XLA,
        "TMPDIR": str(folder),
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED_JVM,
        "SPARK_SUBMIT_OPTS": java_options(folder),
    }


def builder(master: str, folder: Path, **settings: str) -> Any:
    """A session builder for a quiet application."""
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master(master).appName("rueda tests")
    quiet = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": java_options(folder),
        "spark.log.level": "ERROR",
        **settings,
    }
    for name, value in quiet.items():
        made = made.config(name, value)
    return made


def end_jvm() -> None:
    """Ends the JVM that pyspark would keep until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(timeout=90)
    SparkContext._gateway = SparkContext._jvm = None


class Application:
    """A running application, and what its processes and files are known by."""

    def __init__(self, session: Any, folder: Path, mark: str) -> None:
        self.session = session
        self.context = session.sparkContext
        self.folder = folder
        self.mark = mark

    def ranks(self) -> List[str]:
        """The command lines of the reapers and ranks that are alive."""
        lines = [command_line(pid) for pid in marked_processes(self.mark)]
        return [line for line in lines if " keep below " in line or "rueda.spark._rank" in line]

    @contextlib.contextmanager
    def occupied(self, slots: int) -> Iterator[None]:
        """A job of somebody else runs on that many slots meanwhile."""
        flag, began = self.folder / "occupied", self.folder / "began"
        flag.touch()
        began.mkdir()

        def wait(part: int) -> None:
            (began / str(part)).touch()
            while flag.exists():
                time.sleep(0.05)

        parts = self.context.parallelize(range(slots), slots)
        job = threading.Thread(target=lambda: parts.foreach(wait))
        job.start()
        try:
            deadline = time.monotonic() + 60
            while len(list(began.iterdir())) < slots and time.monotonic() < deadline:
                time.sleep(0.05)
            yield
        finally:
            flag.unlink()
            job.join(60)
            shutil.rmtree(began)


def command_line(pid: int) -> str:
    """Its arguments; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def await_executors(context: Any) -> None:
    """Executors of a cluster register one by one, and each adds to the application's parallelism."""
    executors = re.match(r"local-cluster\[(\d+),", context.master)
    if not executors or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    deadline = time.monotonic() + 120
    while context._jsc.sc().getExecutorMemoryStatus().size() <= int(
        executors[1]
    ):  # the driver is one of them
        assert time.monotonic() < deadline, "the executors do not come"
        time.sleep(0.05)


@contextlib.contextmanager
def application(master: str, folder: Path, **settings: str) -> Iterator[Application]:
    """An application. Afterwards none of its processes and none of its files is left."""
    before = dict(os.environ)
    os.environ.update(environment(folder))
    (folder / "local").mkdir(exist_ok=True)
    mark = f"RUEDA_TEST_MARK={os.urandom(8).hex()}"
    os.environ.update([mark.split("=")])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = builder(master, folder, **settings).getOrCreate()
        try:
            await_executors(session.sparkContext)
            yield Application(session, folder, mark)
        finally:
            session.stop()
            end_jvm()
        assert_all_gone(marked_processes(mark))
        assert not list((folder / "local").iterdir()), "files of Spark or rueda are left"
    finally:
        os.environ.clear()
        os.environ.update(before)
