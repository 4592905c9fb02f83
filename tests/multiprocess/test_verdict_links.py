"""A link between hosts that is much slower than the others is named while the job runs; nothing else is."""

import contextlib
import pathlib
import re
import time
from typing import Iterator, List

from robust_support import wait_until
from virtual_hosts import HostJob, VirtualHosts, virtual_hosts

HOSTS = ["a", "b", "c"]
RATE, SLOW = "100mbit", "10mbit"  # low enough that a busy machine reaches it
# A port is named some 9 s after it has become slow, a pair 2 s later; later if ranks get no core to tell.
LIMIT_S = 60.0
OVER_S = 60.0

# Each step sends about 1 MB over each link. All ranks end with the same step.
PROGRAM = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
data = np.zeros(750_000, np.float32)
deadline = time.monotonic() + 240
is_over = False
hvd.allreduce(data, name="first")
print("ready", flush=True)
while not is_over:
    if hvd.rank() == int(os.environ.get("LATE", "-1")):
        time.sleep(0.25)
    data[0] = os.path.exists("end") or time.monotonic() > deadline
    is_over = hvd.allreduce(data, name="gradients", op=hvd.Sum)[0] > 0
hvd.shutdown()
"""


class Running:
    def __init__(self, hosts: VirtualHosts, job: HostJob) -> None:
        self.hosts, self.job = hosts, job

    def verdicts(self) -> List[str]:
        return re.findall(r"Verdict: slow link: .*", self.job.everything())

    def await_start(self) -> None:
        wait_until(lambda: "ready" in self.job.output(0), 120, "the start of the ranks")

    def end(self) -> None:
        (self.job.folder / "end").touch()
        self.job.end(60)


@contextlib.contextmanager
def running(folder: pathlib.Path, name: str, late: str = "-1") -> Iterator[Running]:
    (folder / name).mkdir()
    with virtual_hosts(folder / name, HOSTS, RATE) as hosts:
        if name == "pair":
            hosts.limit_link("a", "c", SLOW)
        if name == "all":
            for host in HOSTS:
                hosts.limit_host(host, SLOW)
        job = HostJob(hosts, PROGRAM, LATE=late)
        try:
            yield Running(hosts, job)
        finally:
            job.remove()


WHO = r"rank {} \(host {}, pid \d+\)"
A, C = WHO.format(0, "a"), WHO.format(2, "c")
# On a machine with more ranks than cores one direction may show long before the other.
SENDS_OR_RECEIVES = "(sends and receives|sends|receives)"
PAIR, ONE_WAY, OTHER_WAY = f"{A} and {C}", f"{A} to {C}", f"{C} to {A}"
SPEEDS = r"at ([\d.]+) MB/s while a connection is busy, and ([\d.]+) MB/s is usual"


def assert_named(case: Running, subject: str) -> None:
    began = time.monotonic()
    wait_until(lambda: len(case.verdicts()) > 0, LIMIT_S, f"a verdict\n{case.job.everything()}")
    print(f"named after {time.monotonic() - began:.1f} s: {subject}")
    (line,) = case.verdicts()
    found = re.search(f"slow link: {subject}.*{SPEEDS}", line)
    assert found, line
    slow, usual = (float(number) for number in found.groups()[-2:])
    assert 0.4 < slow < 2.5 and usual > 3 * slow, line  # 10 Mbit/s are 1.25 MB/s


def test_a_slow_link_is_named_while_the_job_runs_and_nothing_else(tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as jobs:
        port, pair, equal = [jobs.enter_context(running(tmp_path, name)) for name in ("port", "pair", "all")]
        late = jobs.enter_context(running(tmp_path, "late", late="1"))
        for case in (port, pair, equal, late):
            case.await_start()
        port.hosts.limit_host("b", SLOW)  # while the job runs
        assert_named(port, WHO.format(1, "b") + f": its host {SENDS_OR_RECEIVES}")
        assert_named(pair, f"({PAIR}|{ONE_WAY}|{OTHER_WAY}): bytes move")
        port.hosts.limit_host("b", RATE)
        again = r"slow link: rank 1 \(.*\): it is as fast as the others again, after \d"
        wait_until(lambda: re.search(again, port.job.output(0)) is not None, OVER_S, "the end of the verdict")
        for case in (port, pair, equal, late):
            case.end()
        assert len(port.verdicts()) >= 2 and len(pair.verdicts()) >= 1
        for case, named in ((port, WHO.format(1, "b") + ":"), (pair, f"({PAIR}|{ONE_WAY}|{OTHER_WAY}):")):
            for line in case.verdicts():
                assert re.search(f"slow link: {named}", line), line
        for case in (port, pair, equal):
            assert not re.search("Verdict: (?!slow link)", case.job.everything()), case.job.everything()
        assert equal.verdicts() == [], "all links are equally slow"
        assert late.verdicts() == [], "a slow rank is not a slow link"
        named = set(re.findall(r"Verdict: [^:]+: rank (\d)", late.job.everything()))
        assert named <= {"1"}, late.job.everything()


# The tensors of a ResNet-50, almost: 79 MB in 98 pieces. Between 4 hosts they travel in messages of 32 and
# 64 KiB, which take less than a millisecond.
SMALL_TENSORS = """
import os, time
import numpy as np
import rueda.numpy as hvd

hvd.init()
sizes = [2048 * 1000, 64 * 3 * 49]
for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
    sizes += blocks * [width**2, 9 * width**2, 4 * width**2, width, width, 4 * width]
tensors = [np.zeros(size, np.float32) for size in sizes]
deadline = time.monotonic() + 240
is_over = np.zeros(1, np.float32)
hvd.allreduce(is_over, name="first")
print("ready", flush=True)
while is_over[0] == 0:
    handles = [hvd.allreduce_async(tensor, name=f"{i}", op=hvd.Sum) for i, tensor in enumerate(tensors)]
    for handle in handles:
        hvd.synchronize(handle)
    is_over[0] = os.path.exists("end") or time.monotonic() > deadline
    is_over = hvd.allreduce(is_over, name="is over", op=hvd.Sum)
hvd.shutdown()
"""


def test_a_slow_port_of_a_fast_network_is_named_by_its_short_messages(tmp_path: pathlib.Path) -> None:
    with virtual_hosts(tmp_path, ["a", "b", "c", "d"], "1gbit") as hosts:
        hosts.limit_host("b", "100mbit")
        case = Running(hosts, HostJob(hosts, SMALL_TENSORS))
        try:
            case.await_start()
            wait_until(lambda: len(case.verdicts()) > 0, 2 * LIMIT_S, "a verdict")
            case.end()
            (line,) = case.verdicts()
            assert re.search("slow link: " + WHO.format(1, "b") + ": its host (sends|receives)", line), line
        finally:
            case.job.remove()
