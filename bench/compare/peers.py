"""The libraries that take part. Each runs one part once, with its best settings; returns medians by label.

The labels of a collective are sizes in bytes; those of a burst are the ways of sending it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import venv
from pathlib import Path
from typing import ClassVar, Dict, List

import tools
from tools import Unavailable

Medians = Dict[str, float]  # label -> microseconds


def calls_for(size: int) -> int:
    """How many calls take about the same time at every size."""
    for most, calls in ((16 << 10, 500), (64 << 10, 300), (1 << 20, 100), (16 << 20, 20)):
        if size <= most:
            return calls
    return 8


def only_allreduce(what: str) -> None:
    if what != "allreduce":
        raise Unavailable(f"its {what} is not measured here")


class Peer:
    """One library over one transport. prepare() raises Unavailable with the reason if it cannot take part."""

    name = ""
    transports: ClassVar[List[str]] = []
    settings = ""  # the settings chosen for it, for the report

    def __init__(self, transport: str, ranks: int, out: Path) -> None:
        self.transport, self.ranks, self.out = transport, ranks, out
        self.times = out / f"{self.name}-{transport}.times"

    def prepare(self) -> None:
        """Builds or installs what it needs."""

    def collective(self, what: str, sizes: List[int]) -> Medians:
        raise Unavailable(f"its {what} is not measured here")

    def burst(self, model: str, calls: int) -> Medians:
        raise Unavailable("bursts are not measured with it")

    def specs(self, sizes: List[int]) -> List[str]:
        return [f"{size}:{calls_for(size)}" for size in sizes]


class Rueda(Peer):
    name = "rueda"
    transports: ClassVar[List[str]] = ["shm", "tcp"]
    settings = "defaults"
    memory = "private"

    def bench(self, arguments: List[str]) -> List[Dict[str, object]]:
        report = self.out / f"{self.name}-{self.transport}.json"
        report.unlink(missing_ok=True)
        options = ["-np", str(self.ranks), "--transport", self.transport, "--memory", self.memory]
        tools.run([tools.rueda_command(), "bench", *arguments, *options, "--json", str(report)], 300)
        rows: List[Dict[str, object]] = json.loads(report.read_text())["results"]
        return rows

    def collective(self, what: str, sizes: List[int]) -> Medians:
        found = {}
        for size in sizes:  # each with as many calls as the peers make
            calls = str(calls_for(size))
            (row,) = self.bench([what, "--sizes", f"{size}B", "--iterations", calls])
            found[str(size)] = float(str(row["median_us"]))
        return found

    def burst(self, model: str, calls: int) -> Medians:
        rows = self.bench(["burst", "--model", model, "--iterations", str(calls)])
        return {str(row["mode"]): float(str(row["median_us"])) for row in rows}


class RuedaShared(Rueda):
    name = "rueda (shared)"
    settings = "tensors in memory of rueda_alloc"
    memory = "shared"


class Gloo(Peer):
    name = "gloo"
    transports: ClassVar[List[str]] = ["tcp"]
    settings = "torch.distributed, its default (ring) algorithm, interface lo, one torch thread"

    def start(self, *what: str) -> Medians:
        meeting = self.out / "gloo.meeting"
        meeting.unlink(missing_ok=True)
        script = [sys.executable, str(tools.HERE / "gloo_peer.py"), str(self.times)]
        commands = [[*script, str(r), str(self.ranks), str(meeting), *what] for r in range(self.ranks)]
        tools.run_ranks(commands, 300, {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"})
        return tools.call_medians(self.times, self.ranks)

    def prepare(self) -> None:
        import importlib.util

        if importlib.util.find_spec("torch") is None:
            raise Unavailable("PyTorch is not installed in this Python")

    def collective(self, what: str, sizes: List[int]) -> Medians:
        only_allreduce(what)
        return self.start("collective", *self.specs(sizes))

    def burst(self, model: str, calls: int) -> Medians:
        return self.start("burst", f"{tools.model_path(model)}:{calls}")


class Mpi(Peer):
    """What both MPI libraries share: the program, and how it is started."""

    transports: ClassVar[List[str]] = ["shm", "tcp"]
    compiler = launcher = ""

    def prepare(self) -> None:
        if shutil.which(self.launcher) is None:
            raise Unavailable(f"{self.launcher} is not installed")
        self.program = tools.compile_peer(self.compiler, "mpi_peer.c", self.out, [])

    def command(self) -> List[str]:
        raise NotImplementedError

    def environment(self) -> Dict[str, str]:
        return {}

    def start(self, specs: List[str]) -> Medians:
        command = [*self.command(), str(self.program), str(self.times), *specs]
        tools.run(command, 300, self.environment())
        return tools.call_medians(self.times, self.ranks)

    def collective(self, what: str, sizes: List[int]) -> Medians:
        kind = "" if what == "allreduce" else f"{what}:"
        return self.start([kind + spec for spec in self.specs(sizes)])

    def burst(self, model: str, calls: int) -> Medians:
        counts = self.out / f"{model}.counts"
        counts.write_text("\n".join(map(str, tools.model_counts(model))))
        return self.start([f"burst:{counts}:{calls}"])


class OpenMpi(Mpi):
    name = "Open MPI"
    compiler, launcher = "mpicc.openmpi", "mpirun.openmpi"

    @property
    def settings(self) -> str:  # type: ignore[override]
        how = "btl vader,self" if self.transport == "shm" else "btl tcp,self on lo"
        return f"MPI_IN_PLACE, pml ob1, {how}, ranks bound to cores where there are enough, else yielding"

    def command(self) -> List[str]:
        pairs = [("pml", "ob1"), ("btl", "vader,self" if self.transport == "shm" else "tcp,self")]
        pairs += [("oob_tcp_if_include", "lo")]
        if self.transport == "tcp":
            pairs += [("btl_tcp_if_include", "lo")]
        is_crowded = self.ranks > (os.cpu_count() or 1)
        bound = ["--oversubscribe", "--bind-to", "none"] if is_crowded else ["--bind-to", "core"]
        if is_crowded:
            pairs += [("mpi_yield_when_idle", "1")]
        options = [word for key, value in pairs for word in ("--mca", key, value)]
        return [self.launcher, "-np", str(self.ranks), *bound, *options]

    def environment(self) -> Dict[str, str]:
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Mpich(Mpi):
    name = "MPICH"
    compiler, launcher = "mpicc.mpich", "mpirun.mpich"

    @property
    def settings(self) -> str:  # type: ignore[override]
        how = "defaults" if self.transport == "shm" else "UCX_TLS=tcp,self on lo, shared memory off"
        return f"MPI_IN_PLACE, {how}, ranks bound to cores where there are enough"

    def command(self) -> List[str]:
        bound = [] if self.ranks > (os.cpu_count() or 1) else ["-bind-to", "core"]
        return [self.launcher, "-np", str(self.ranks), *bound]

    def environment(self) -> Dict[str, str]:
        if self.transport == "shm":
            return {}
        # Without the second one, ranks of one host use its own shared memory instead of UCX.
        return {"UCX_TLS": "tcp,self", "MPIR_CVAR_NOLOCAL": "1", "UCX_NET_DEVICES": "lo"}


class OneCcl(Peer):
    name = "oneCCL"
    transports: ClassVar[List[str]] = ["shm", "tcp"]
    versions: ClassVar[List[str]] = ["oneccl==2022.1.2", "oneccl-devel==2022.1.2"]

    @property
    def settings(self) -> str:  # type: ignore[override]
        how = "CCL_ATL_SHM=1" if self.transport == "shm" else "CCL_ATL_SHM=0, FI_PROVIDER=tcp"
        return f"in place, cached schedules, CCL_WORKER_OFFLOAD=0, {how}, ranks bound to cores"

    def prepare(self) -> None:
        given = os.environ.get("COMPARE_ONECCL")  # a virtual environment that has the two wheels
        self.prefix = Path(given) if given else self.out / "oneccl-venv"
        if not (self.prefix / "include/oneapi/ccl.hpp").exists():
            if given:
                raise Unavailable(f"{given} has no oneapi/ccl.hpp")
            venv.create(self.prefix, with_pip=True)
            pip = [str(self.prefix / "bin/pip"), "install", "-q", *self.versions]
            tools.run(pip, 600)
        lib = self.prefix / "lib"
        flags = ["-std=c++20", f"-I{self.prefix}/include", f"-L{lib}", "-lccl", f"-Wl,-rpath,{lib}"]
        self.program = tools.compile_peer(
            "g++", "ccl_peer.cc", self.out, [*flags, "-Wl,--allow-shlib-undefined"]
        )

    def collective(self, what: str, sizes: List[int]) -> Medians:
        only_allreduce(what)
        Path(f"{self.times}.address").unlink(missing_ok=True)
        script = [str(self.program), str(self.times)]
        commands = [[*script, str(r), str(self.ranks), *self.specs(sizes)] for r in range(self.ranks)]
        env = {
            "CCL_WORKER_OFFLOAD": "0",
            "CCL_ATL_TRANSPORT": "ofi",
            "CCL_ATL_SHM": "1" if self.transport == "shm" else "0",
            "FI_PROVIDER_PATH": str(self.prefix / "lib"),
            "CCL_KVS_IFACE": "lo",
            "FI_TCP_IFACE": "lo",
            "CCL_LOG_LEVEL": "error",
            "CCL_ROOT": str(self.prefix),
            "LD_LIBRARY_PATH": str(self.prefix / "lib"),  # it loads parts of itself by name
        }
        if self.transport == "tcp":
            env["FI_PROVIDER"] = "tcp"
        tools.run_ranks(commands, 300, env)
        return tools.call_medians(self.times, self.ranks)


ALL = [Rueda, RuedaShared, Gloo, OpenMpi, Mpich, OneCcl]
