"""`rueda preflight` as users call it: on this machine, in a job, and on virtual hosts with faults."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import xml.etree.ElementTree as xml
from typing import Any, Dict, Iterator, List

import pytest
from far_link import far_link, ping_us
from harness import library, make_job_folder, rank_environment
from launch_support import RUEDA
from virtual_hosts import VirtualHosts, virtual_hosts

pytestmark = pytest.mark.skipif(not os.path.exists(RUEDA), reason=f"{RUEDA} is not built")

HOSTS = ["a", "b", "c", "d"]
RATE, SLOW = "200mbit", "40mbit"  # low enough that a busy machine reaches it
JOB = ["-H", "a:2,b:1,c:1,d:1"]

# Three seconds ahead, as a host whose clock nobody sets.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(clock, now);
  if (!failed && clock == CLOCK_REALTIME) now->tv_sec += 3;
  return failed;
}
"""


def preflight(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
    environment = {**clean, "RUEDA_LIBRARY": library(), "RUEDA_PYTHON": sys.executable, **variables}
    words = [RUEDA, "preflight", *arguments]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=150, check=False)


def by_kind(read: Dict[str, Any]) -> Dict[str, List[List[str]]]:
    """The hosts that each kind of problem blames. Advice is left out: it depends on this machine."""
    kinds: Dict[str, List[List[str]]] = {}
    for finding in read["findings"]:
        if finding["is_broken"]:
            kinds.setdefault(finding["kind"], []).append(finding["hosts"])
    return kinds


# ---- one machine ----


def test_one_machine_is_measured_inside_and_the_files_are_written(tmp_path: pathlib.Path) -> None:
    done = preflight("--json", str(tmp_path / "all.json"), "--heat-map", str(tmp_path / "map.svg"))
    assert "one host, so no pair of hosts was measured" in done.stdout, done.stdout + done.stderr
    read = json.loads((tmp_path / "all.json").read_text())
    (host,) = read["hosts"]
    assert read["asked"] == [host["host"]] == [socket.gethostname()]
    assert host["within_gbit_per_s"] > 0 and host["library_problem"] == ""
    assert host["packages"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert xml.parse(tmp_path / "map.svg").getroot().tag.endswith("svg")
    assert done.returncode == (1 if read["is_broken"] else 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rounds", "0"],
        ["--min-rate", "fast"],
        ["--json"],
        ["--json", "/nowhere/at/all.json"],
        ["--heat-map", "/nowhere/at/map.svg"],
        ["--heat-map", "/proc/map.svg"],  # a folder that lets root write, by its mode
        ["--heat-map", "/proc"],
        ["--min-rate", "10gbit"],  # of no pair
        ["-H", "a:x"],
        ["python", "train.py"],
        ["--no-such-option"],
    ],
)
def test_what_cannot_be_understood_is_one_sentence_and_status_2(arguments: List[str]) -> None:
    done = preflight(*arguments)
    assert done.returncode == 2 and done.stdout == "", done.stdout + done.stderr
    assert done.stderr.startswith("rueda preflight: ") and done.stderr.count("\n") == 1, done.stderr


def test_a_picture_that_cannot_be_written_is_refused_before_the_hosts_are_asked(
    tmp_path: pathlib.Path,
) -> None:
    """The host would be named as one that does not answer."""
    done = preflight("-H", "no-such-host.invalid", "--heat-map", "/proc/map.svg", TMPDIR=str(tmp_path))
    assert done.returncode == 2 and done.stdout == "", done.stdout
    assert done.stderr == (
        "rueda preflight: cannot write /proc/map.svg (No such file or directory); "
        "give --heat-map a file in a writable directory\n"
    )


def test_options_of_a_job_that_a_preflight_does_not_need_are_told_or_harmless(tmp_path: pathlib.Path) -> None:
    command = preflight("python", "train.py")
    assert command.returncode == 2 and command.stderr == (
        "rueda preflight: python is no option, and preflight starts no command; see rueda preflight --help\n"
    )
    logs = tmp_path / "logs"
    logs.write_text("no folder")
    done = preflight("-H", "127.0.0.1:2", "--log-dir", str(logs), "--min-rate", "800gbit")
    assert "1 answered" in done.stdout and logs.read_text() == "no folder", done.stdout + done.stderr


def test_a_refused_job_leaves_no_empty_file(tmp_path: pathlib.Path) -> None:
    done = preflight("--json", str(tmp_path / "all.json"), "--heat-map", "/proc/map.svg")
    assert done.returncode == 2 and list(tmp_path.iterdir()) == []


def test_a_rate_that_one_named_host_cannot_show_is_told(tmp_path: pathlib.Path) -> None:
    done = preflight("-H", "127.0.0.1:2", "--min-rate", "10gbit")
    assert (
        "advice:  --min-rate 10.0 Gbit/s was not checked, because 127.0.0.1 is the only host that answered"
        in done.stdout
    )


def test_ranks_of_a_started_job_become_its_preflight() -> None:
    folder = make_job_folder()
    ranks = []
    for rank in range(4):  # two hosts of two ranks
        place = {
            "RUEDA_HOSTNAME": f"h{rank // 2}",
            "RUEDA_LOCAL_RANK": str(rank % 2),
            "RUEDA_LOCAL_SIZE": "2",
            "RUEDA_PYTHON": sys.executable,
        }
        environment = {**rank_environment(rank, 4, folder, "shm,tcp"), **place}
        words = [RUEDA, "preflight", "--json", "-"]
        ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    try:
        said = [rank.communicate(timeout=150)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
        shutil.rmtree(folder, ignore_errors=True)
    read = json.loads(said[0])
    assert said[1:] == ["", "", ""] and [rank.returncode for rank in ranks[1:]] == [0, 0, 0]
    assert [host["host"] for host in read["hosts"]] == ["h0", "h1"]
    (link,) = read["links"]
    assert link["is_right"] and link["gbit_per_s"] > 0
    assert all(host["within_gbit_per_s"] > 0 for host in read["hosts"])
    assert ranks[0].returncode == (1 if read["is_broken"] else 0)


@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="Open MPI is not installed")
def test_mpirun_starts_it_as_ranks() -> None:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = {**os.environ, **root, "RUEDA_LIBRARY": library(), "RUEDA_PYTHON": sys.executable}
    words = ["mpirun.openmpi", "--oversubscribe", "-np", "2", RUEDA, "preflight"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "2 ranks; one host" in done.stdout, done.stdout + done.stderr


# ---- virtual hosts ----


# They blame whom a busy machine makes slow, rightly.
measures_the_network = pytest.mark.alone


@pytest.fixture(name="hosts", scope="module")
def make_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualHosts]:
    folder = tmp_path_factory.mktemp("hosts")
    with virtual_hosts(folder, HOSTS, RATE) as hosts:
        yield hosts


def look(hosts: VirtualHosts, *arguments: str) -> Dict[str, Any]:
    """The JSON; its is_broken agrees with the exit status."""
    done = hosts.run("preflight", *JOB, "--json", "-", *arguments)
    read = json.loads(done.stdout or "{}")
    assert read and done.returncode == (1 if read["is_broken"] else 0), done.stdout + done.stderr
    return read


@measures_the_network
def test_healthy_hosts_are_blamed_for_nothing(hosts: VirtualHosts) -> None:
    read = look(hosts)
    kinds = by_kind(read)
    kinds.pop("shm-size", None)  # this machine's own may be small
    assert kinds == {}, read["findings"]
    assert read["rounds"] == read["rounds_for_all_pairs"] == 3 and len(read["links"]) == 6
    for link in read["links"]:
        assert 0.02 < link["gbit_per_s"] < 0.25 and link["is_right"], link
        assert link["round_trip_from"] == "kernel", link
    # Both are the shortest of several, on a machine that may be busy.
    ping, (link,) = ping_us(hosts, "a", "d"), [one for one in read["links"] if one["hosts"] == ["a", "d"]]
    assert 0 < link["round_trip_us"] < 4 * ping + 100, ping
    assert [host["host"] for host in read["hosts"]] == HOSTS
    assert read["hosts"][0]["within_gbit_per_s"] > 0.25 and read["hosts"][1]["within_gbit_per_s"] is None
    assert all(abs(host["clock_offset_us"]) <= host["clock_error_us"] + 20_000 for host in read["hosts"])


@measures_the_network
def test_the_slow_host_is_named_and_its_links_are_not(hosts: VirtualHosts) -> None:
    hosts.limit_host("d", SLOW)
    try:
        kinds = by_kind(look(hosts))
    finally:
        hosts.limit_host("d", RATE)
    assert kinds["slow-host"] == [["d"]] and "slow-link" not in kinds, kinds


@measures_the_network
def test_a_long_way_between_two_hosts_is_named_and_its_length_is_that_of_ping(hosts: VirtualHosts) -> None:
    with far_link(hosts, "b", "c", delay_ms=4):
        ping = ping_us(hosts, "b", "c")
        read = look(hosts)
    assert by_kind(read)["long-latency"] == [["b", "c"]], read["findings"]
    (link,) = [one for one in read["links"] if one["hosts"] == ["b", "c"]]
    assert link["round_trip_from"] == "kernel" and 8000 <= link["round_trip_us"] < 2 * ping, (link, ping)
    others = [one["round_trip_us"] for one in read["links"] if one is not link]
    assert 0 < max(others) < 2000, read["links"]


def test_what_hosts_are_is_compared_and_what_they_lack_is_named(
    hosts: VirtualHosts, tmp_path: pathlib.Path
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the wrong clock needs a C compiler")
    (tmp_path / "clock.c").write_text(CLOCK)
    clock = str(tmp_path / "clock.so")
    words = [compiler, "-shared", "-fPIC", "-o", clock, str(tmp_path / "clock.c"), "-ldl"]
    subprocess.run(words, check=True, timeout=60)
    other = tmp_path / "librueda.so"  # the same code, other bytes: as another build of the release
    other.write_bytes(pathlib.Path(library()).read_bytes() + b"\n")
    hosts.plant("a", "ulimit -n 64")
    hosts.plant("b", f"export LD_PRELOAD={clock}")
    hosts.plant("c", "mount -t tmpfs -o size=1m tmpfs /dev/shm")
    hosts.plant("d", f"mount --bind {other} {library()}")
    try:
        read = look(hosts)
    finally:
        for name in HOSTS:
            hosts.plant(name, "")
    kinds = by_kind(read)
    assert kinds["clock"] == [["b"]], read
    assert 2.5e6 < read["hosts"][1]["clock_offset_us"] < 3.5e6
    assert kinds["open-files"] == [["a"]]
    assert ["c"] in kinds["shm-size"]
    assert kinds["library"] == [["d"]]


def test_a_host_that_does_not_answer_is_named_and_the_others_are_measured(hosts: VirtualHosts) -> None:
    hosts.plant("b", "echo 'this host is down for repair' >&2; exit 255")
    try:
        read = look(hosts, "--start-timeout", "10")
    finally:
        hosts.plant("b", "")
    kinds = by_kind(read)
    assert kinds["missing-host"] == [["b"]]
    (sentence,) = [one["sentence"] for one in read["findings"] if one["kind"] == "missing-host"]
    assert "this host is down for repair" in sentence
    assert read["asked"] == HOSTS and len(read["links"]) == 3


def test_a_host_whose_ranks_cannot_be_reached_is_named_and_the_others_are_measured(
    hosts: VirtualHosts,
) -> None:
    """The launcher reaches the host, the other hosts do not: a wrong route, as by a firewall."""
    others = [hosts.address(HOSTS.index(name)) for name in "abd"]
    hosts.plant("c", "; ".join(f"ip route replace unreachable {address}/32" for address in others))
    try:
        done = hosts.run("preflight", *JOB, "--json", "-", RUEDA_START_TIMEOUT="8")
    finally:
        hosts.plant(
            "c", "; ".join(f"ip route del unreachable {address}/32 2>/dev/null" for address in others)
        )
        hosts.run("run", "-H", "c:1", "true")
        hosts.plant("c", "")
    read = json.loads(done.stdout)
    assert by_kind(read)["no-job"] == [["c"]] and done.returncode == 1, read["findings"]
    (sentence,) = [one["sentence"] for one in read["findings"] if one["kind"] == "no-job"]
    assert sentence.startswith("c: the launcher reaches it, but with no other host its ranks become a job"), (
        sentence
    )
    assert sorted(link["hosts"] for link in read["links"]) == [["a", "b"], ["a", "d"], ["b", "d"]]
    assert [host["host"] for host in read["hosts"]] == ["a", "b", "d", "c"], (
        "what is known of the host is reported all the same"
    )
    assert read["hosts"][3]["gbit_per_s"] is None and read["hosts"][3]["cores"] > 0


def test_two_hosts_that_cannot_reach_one_another_are_both_named(hosts: VirtualHosts) -> None:
    """A cable or a rule between two hosts: each of them works with the others."""
    route = f"unreachable {hosts.address(HOSTS.index('d'))}/32"
    hosts.plant("b", f"ip route replace {route}")
    try:
        done = hosts.run("preflight", *JOB, "--json", "-", RUEDA_START_TIMEOUT="8")
    finally:
        hosts.plant("b", f"ip route del {route} 2>/dev/null")
        hosts.run("run", "-H", "b:1", "true")
        hosts.plant("b", "")
    read = json.loads(done.stdout)
    assert by_kind(read)["no-job"] == [["b", "d"]] and done.returncode == 1, read["findings"]
    assert sorted(link["hosts"] for link in read["links"]) == [["a", "b"], ["a", "c"], ["b", "c"]]


@measures_the_network
def test_the_slow_link_is_named_and_its_ends_are_not_and_another_order_avoids_it(hosts: VirtualHosts) -> None:
    hosts.limit_link("b", "c", SLOW)  # stays; the last test of these hosts
    read = look(hosts, "--min-rate", "60mbit")
    kinds = by_kind(read)
    assert kinds["slow-link"] == kinds["rate"] == [["b", "c"]] and "slow-host" not in kinds, kinds
    # Around a ring, b and c are opposite one another in two orders, and a begins.
    order = read["host_order"]
    assert order["pays"] and order["gbit_per_s"] > 0.06 > order["given_gbit_per_s"], order
    assert order["option"] in ("a:2,b:1,d:1,c:1", "a:2,c:1,d:1,b:1"), order
    (advice,) = [one["sentence"] for one in read["findings"] if one["kind"] == "host-order"]
    assert f"-H {order['option']} gives" in advice and "b - c as its slowest link" in advice, advice
