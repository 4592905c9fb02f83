"""One training script, unchanged, under every launcher: the same ranks, the same places, the same sums."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import boxes
import launch_support
import mpi_support
import pytest
import slurm_support
from harness import PATIENCE, library
from ports import free_port
from robust_support import Jobs, make_jobs, wait_until
from slurm_support import make_slurm

__all__ = ["make_jobs", "make_slurm"]  # the fixtures `jobs` and `slurm`

RANKS = 4
LIMIT_S = 180.0 * PATIENCE

BODY = """
hvd.init()
summed = hvd.allreduce(np.full(1000, hvd.rank() + 1.0), op=hvd.Sum)
gathered = hvd.allgather(np.array([hvd.rank()]))
facts = {name: getattr(hvd, name)() for name in
         ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")}
facts |= {"sum": np.unique(summed).tolist(), "gathered": gathered.tolist()}
print("FACTS " + json.dumps(facts), flush=True)
hvd.shutdown()
"""
IMPORTS = "import json\nimport numpy as np\nimport rueda.numpy as hvd\n"


def expected(hosts: int) -> List[Dict[str, Any]]:
    per_host = RANKS // hosts
    return [
        {
            "rank": rank,
            "size": RANKS,
            "local_rank": rank % per_host,
            "local_size": per_host,
            "cross_rank": rank // per_host,
            "cross_size": hosts,
            "sum": [RANKS * (RANKS + 1) / 2],
            "gathered": list(range(RANKS)),
        }
        for rank in range(RANKS)
    ]


def assert_world(output: str, hosts: int) -> None:
    found = [json.loads(text) for text in re.findall(r"FACTS (\{.*?\})", output)]
    assert sorted(found, key=lambda facts: facts["rank"]) == expected(hosts), output
    assert "ERROR" not in output, output


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launchers")
    (folder / "train.py").write_text(IMPORTS + BODY)
    (folder / "tmp").mkdir()
    # Two mpirun of Open MPI 4 that start at the same moment fail if both make this folder.
    shared = folder / "tmp" / f"ompi.{os.uname().nodename.partition('.')[0]}.{os.getuid()}"
    shared.mkdir(mode=0o700)
    (shared / "stays").touch()  # mpirun removes it if it is empty
    return folder


@pytest.fixture(name="variables")
def make_variables(folder: Path) -> Dict[str, str]:
    return environment(folder)


def installed(folder: Path) -> Dict[str, str]:
    """What every host of a cluster has: rueda, and a home directory for the user's key."""
    return {
        "PYTHONPATH": os.pathsep.join(
            str(launch_support.ROOT / part) for part in ("python", "compat/horovod")
        ),
        "RUEDA_LIBRARY": library(),
        "RUEDA_BIN": launch_support.RUEDA,
        "OMP_NUM_THREADS": "1",
        "XDG_CONFIG_HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def environment(folder: Path) -> Dict[str, str]:
    private = ("RUEDA_", "HOROVOD_", "OMPI_", "PMI", "I_MPI", "SLURM_")
    return {k: v for k, v in os.environ.items() if not k.startswith(private)} | installed(folder)


def run_to_end(command: List[str], variables: Dict[str, str]) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return run_together([command], variables)


# ---- the launchers: (script, hosts) → command; hosts is "" for this machine ----

Launcher = Callable[[str, str], List[str]]


def rueda_run(script: str, hosts: str) -> List[str]:
    if not os.path.exists(launch_support.RUEDA):
        pytest.skip(f"{launch_support.RUEDA} is not built")
    return [launch_support.RUEDA, "run", "-np", str(RANKS), *_option("-H", hosts), sys.executable, script]


def horovodrun(script: str, hosts: str) -> List[str]:
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(RANKS)]
    return [*command, *_option("-H", hosts), sys.executable, script]


def torchrun(script: str, *options: str) -> List[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options, script]


def mpirun_of(mpi: mpi_support.Mpi) -> Launcher:
    def command(script: str, hosts: str) -> List[str]:
        return [mpi.launcher(), "-np", str(RANKS), *mpi.on_hosts(hosts), sys.executable, script]

    return command


def _option(name: str, value: str) -> List[str]:
    return [name, value] if value else []


LAUNCHERS: Dict[str, Launcher] = {"rueda run": rueda_run, "horovodrun": horovodrun}
LAUNCHERS |= {f"mpirun of {mpi.name}": mpirun_of(mpi) for mpi in mpi_support.ALL}


# ---- one host ----


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_on_one_host(launcher: str, folder: Path, variables: Dict[str, str]) -> None:
    command = LAUNCHERS[launcher](str(folder / "train.py"), "")
    assert_world(run_to_end(command, variables), hosts=1)


def test_torchrun_on_one_host(folder: Path, variables: Dict[str, str]) -> None:
    command = torchrun(str(folder / "train.py"), "--standalone", f"--nproc-per-node={RANKS}")
    assert_world(run_to_end(command, variables), hosts=1)


def agents(folder: Path, address: str, port: int) -> List[List[str]]:
    """The command line of each of torchrun's two agents."""
    rendezvous = ["--rdzv-id=two", "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}"]
    return [
        torchrun(str(folder / "train.py"), "--nnodes=2", f"--nproc-per-node={RANKS // 2}", *rendezvous, *own)
        for own in ([f"--local-addr={address}"], [])
    ]


def run_together(commands: List[List[str]], variables: Dict[str, str]) -> str:
    jobs = [
        subprocess.Popen(
            ["timeout", "-k", "5", str(LIMIT_S), *command],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    outputs = [job.communicate()[0] for job in jobs]
    for command, job in zip(commands, jobs):
        assert job.returncode == 0, f"{command} ended with {job.returncode}\n" + "\n".join(outputs)
    return "\n".join(outputs)


def test_two_agents_of_torchrun_count_as_two_hosts(folder: Path, variables: Dict[str, str]) -> None:
    commands = agents(folder, "127.0.0.1", free_port())
    commands[1].insert(-1, "--local-addr=127.0.0.1")
    assert_world(run_together(commands, variables), hosts=2)


@pytest.mark.parametrize("store", ["file", "tcp"])
def test_by_hand(jobs: Jobs, store: str) -> None:
    url = "file://$FOLDER/store" if store == "file" else f"tcp://127.0.0.1:{free_port()}"
    body = "import numpy as np\nimport rueda.numpy as hvd\n" + BODY
    job = jobs.start(RANKS, body, environment={"RUEDA_STORE": url})
    job.assert_ended_well()
    assert_world("\n".join(job.output(rank) for rank in range(RANKS)), hosts=1)


# ---- launchers inside launchers ----


def worlds(output: str) -> List[List[int]]:
    """[rank, size] of everybody, sorted."""
    found = [json.loads(text) for text in re.findall(r"FACTS (\{.*?\})", output)]
    return sorted([facts["rank"], facts["size"]] for facts in found)


@pytest.mark.parametrize("inner", ["rueda run", "mpirun of openmpi-4", "mpirun of mpich-4", "torchrun"])
def test_launcher_inside_rueda_run_gives_the_ranks(
    inner: str, folder: Path, variables: Dict[str, str]
) -> None:
    script = str(folder / "train.py")
    standalone = torchrun(script, "--standalone", f"--nproc-per-node={RANKS}")
    command = standalone if inner == "torchrun" else LAUNCHERS[inner](script, "")
    output = run_to_end([launch_support.RUEDA, "run", "-np", "2", *command], variables)
    assert worlds(output) == [[rank, RANKS] for rank in range(RANKS) for _ in range(2)], output
    assert output.count("launchers are nested") == (1 if inner == "rueda run" else 2), output


@pytest.mark.parametrize("outer", ["mpirun of openmpi-4", "mpirun of mpich-4"])
def test_rueda_run_inside_mpirun_starts_a_job_in_each_rank(
    outer: str, folder: Path, variables: Dict[str, str]
) -> None:
    command = LAUNCHERS[outer](str(folder / "train.py"), "")
    command[-2:-2] = [launch_support.RUEDA, "run", "-np", "1"]
    output = run_to_end(command, variables)
    assert worlds(output) == [[0, 1]] * RANKS, output
    assert output.count("launchers are nested: each of the 4 ranks") == 1, output


NESTED = [  # outer with two ranks, inner with one or four
    ("torchrun", "openmpi-4", 1),
    ("torchrun", "mpich-4", 4),
    ("openmpi-4", "torchrun", 1),
    ("mpich-4", "torchrun", 1),
    ("mpich-4", "openmpi-4", 4),
    ("openmpi-5", "mpich-5", 4),
    ("mpich-4", "mpich-4", 4),
    ("torchrun", "torchrun", 4),
]
NESTED_TOO = [  # with other counts and releases
    ("torchrun", "openmpi-4", 4),
    ("torchrun", "mpich-4", 1),
    ("openmpi-4", "torchrun", 4),
    ("openmpi-4", "mpich-4", 4),
    ("openmpi-4", "mpich-4", 1),
    ("mpich-4", "openmpi-4", 1),
    ("mpich-5", "openmpi-5", 4),
    ("torchrun", "openmpi-5", 1),
    ("torchrun", "intel", 4),
]


@pytest.mark.parametrize(
    ("outer", "inner", "ranks"),
    NESTED + [pytest.param(*case, marks=pytest.mark.thorough) for case in NESTED_TOO],
)
def test_the_innermost_launcher_gives_the_ranks(
    outer: str, inner: str, ranks: int, folder: Path, variables: Dict[str, str]
) -> None:
    def command(name: str, count: int, program: List[str]) -> List[str]:
        if name == "torchrun":
            options = ["--standalone", f"--nproc-per-node={count}", "--no-python"]
            return [sys.executable, "-m", "torch.distributed.run", *options, *program]
        mpi = next(one for one in mpi_support.ALL if one.name == name)
        return [mpi.launcher(), *mpi.crowd, "-np", str(count), *program]

    script = [sys.executable, str(folder / "train.py")]
    output = run_to_end(command(outer, 2, command(inner, ranks, script)), variables)
    assert worlds(output) == [[rank, ranks] for rank in range(ranks) for _ in range(2)], output
    told = re.findall(r"launchers are nested: .* the inner one, (\w+) .*, and not of (\w+) ", output)
    families = ["torchrun", "openmpi", "mpich"]
    names = [next((one for one in families if name.startswith(one)), "mpich") for name in (inner, outer)]
    assert told == [tuple(names)] * 2, output  # each job has a rank 0


# ---- two hosts ----


@pytest.fixture(scope="module", name="two_boxes")
def make_boxes(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[boxes.Boxes]:
    reason: Optional[str] = boxes.why_not()
    if reason:
        pytest.skip(reason)
    with boxes.boxes(tmp_path_factory.mktemp("boxes"), installed(folder)) as made:
        yield made


def assert_nothing_runs(two_boxes: boxes.Boxes) -> None:
    wait_until(lambda: not two_boxes.processes(), 60, f"the end of {two_boxes.processes()}")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_on_two_hosts(launcher: str, two_boxes: boxes.Boxes, folder: Path, variables: Dict[str, str]) -> None:
    command = LAUNCHERS[launcher](str(folder / "train.py"), "a:2,b:2")
    assert_world(run_to_end(two_boxes.command("a", *command), variables), hosts=2)
    assert_nothing_runs(two_boxes)


def test_torchrun_on_two_hosts(two_boxes: boxes.Boxes, folder: Path, variables: Dict[str, str]) -> None:
    commands = agents(folder, two_boxes.address("a"), 29500)
    commands = [two_boxes.command(name, *command) for name, command in zip(boxes.NAMES, commands)]
    assert_world(run_together(commands, variables), hosts=2)
    assert_nothing_runs(two_boxes)


FAKE_BLAUNCH = '#!/bin/sh\nhost=$1; shift\necho "$host" >>blaunched\nexec ssh "$host" "$@"\n'
SCHEDULERS = {
    "lsf": {"LSB_JOBID": "17", "LSB_MCPU_HOSTS": "a 2 b 2"},
    "pbs": {"PBS_JOBID": "9.server", "PBS_NODEFILE": "$FOLDER/nodes"},
}


def documented_script(scheduler: str) -> str:
    page = (launch_support.ROOT / "docs" / "schedulers.md").read_text()
    found = re.search(rf"^```sh {scheduler}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found, f"docs/schedulers.md has no script for {scheduler}"
    return found[1]


def with_programs(folder: Path, variables: Dict[str, str]) -> Dict[str, str]:
    """PATH has rueda, this interpreter as `python`, and a stand-in for blaunch."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in {
        "rueda": f'#!/bin/sh\nexec {launch_support.RUEDA} "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
        "blaunch": FAKE_BLAUNCH,
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return {**variables, "PATH": f"{programs}:{variables['PATH']}"}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_documented_script_with_the_hosts_of(
    scheduler: str, two_boxes: boxes.Boxes, folder: Path, variables: Dict[str, str]
) -> None:
    """Neither LSF nor PBS: their variables as the manuals have them."""
    (folder / "nodes").write_text("a\na\nb\nb\n")
    (folder / f"{scheduler}.sh").write_text(documented_script(scheduler))
    given = {name: text.replace("$FOLDER", str(folder)) for name, text in SCHEDULERS[scheduler].items()}
    inside = f"cd {folder}; exec sh {scheduler}.sh"
    output = run_to_end(two_boxes.command("a", "sh", "-c", inside), with_programs(folder, variables) | given)
    assert_world(output, hosts=2)
    blaunched = folder / "blaunched"
    assert (blaunched.read_text() if blaunched.exists() else "") == ("b\n" if scheduler == "lsf" else "")
    blaunched.unlink(missing_ok=True)
    assert_nothing_runs(two_boxes)


# ---- Slurm ----


@pytest.mark.thorough("4-none", "2-pmi2")
@pytest.mark.parametrize(
    ("nodes", "mpi"), [(1, "none"), (2, "none"), (2, "pmi2"), (2, "pmix"), (4, "none"), (4, "pmix")]
)
def test_srun(
    slurm: slurm_support.Slurm, folder: Path, variables: Dict[str, str], nodes: int, mpi: str
) -> None:
    if not slurm.has_mpi(mpi):
        pytest.skip(f"this Slurm has no plug-in for --mpi={mpi}")
    spread = [f"-N{nodes}", f"-n{RANKS}", f"--ntasks-per-node={RANKS // nodes}", f"--mpi={mpi}"]
    command = ["srun", *spread, sys.executable, str(folder / "train.py")]
    output = run_to_end(command, variables | {"SLURM_CONF": slurm.environment["SLURM_CONF"]})
    assert_world(output, hosts=nodes)


@pytest.mark.thorough("mpich-5", "openmpi-5", "mpich-4-1")
@pytest.mark.parametrize(
    ("outer", "ranks"),
    [("mpich-4", 1), ("mpich-4", 2), ("openmpi-4", 2), ("mpich-5", 2), ("openmpi-5", 1), ("intel", 2)],
)
def test_srun_inside_mpirun_gives_the_ranks(
    slurm: slurm_support.Slurm, folder: Path, variables: Dict[str, str], outer: str, ranks: int
) -> None:
    """srun hands on what its caller has, so its tasks have the variables of a rank of MPI as well."""
    mpi = next(one for one in mpi_support.ALL if one.name == outer)
    step = ["srun", "-N1", "-n2", "--mpi=none", "--overlap", sys.executable, str(folder / "train.py")]
    output = run_to_end(
        [mpi.launcher(), *mpi.crowd, "-np", str(ranks), *step],
        variables | {"SLURM_CONF": slurm.environment["SLURM_CONF"]},
    )
    assert worlds(output) == [[rank, 2] for rank in (0, 1) for _ in range(ranks)], output
    line = f"the inner one, slurm (rank 0 of 2), and not of {'openmpi' if 'open' in outer else 'mpich'} "
    assert output.count(line) == ranks, output


def test_srun_inside_torchrun_gives_the_ranks(
    slurm: slurm_support.Slurm, folder: Path, variables: Dict[str, str]
) -> None:
    step = ["srun", "-N1", "-n2", "--overlap", sys.executable, str(folder / "train.py")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    output = run_to_end(
        [*command, "--no-python", *step], variables | {"SLURM_CONF": slurm.environment["SLURM_CONF"]}
    )
    assert worlds(output) == [[0, 2], [1, 2]], output
    line = "the inner one, slurm (rank 0 of 2), and not of torchrun (rank 0 of 1) around it"
    assert output.count(line) == 1, output
