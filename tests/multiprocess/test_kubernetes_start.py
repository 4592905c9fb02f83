"""How jobs start that the manifests of deploy/kubernetes describe. No cluster is involved: see `pods`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List

import launch_support
import pytest
from harness import LEAN, ROOT
from pods import Cluster, Pod, command_of, variables_of

yaml = pytest.importorskip("yaml", reason="`make setup` installs it")

BASE = launch_support.ROOT / "deploy/kubernetes/base"

TRAIN = """
import os, signal, sys
import numpy as np
if os.environ.get("TEST_ENDS_EARLY"):
    sys.exit("no data")
import rueda.numpy as hvd
print("about to init", flush=True)
hvd.init()
total = hvd.allreduce(np.full(1000, hvd.rank() + 1.0), op=hvd.Sum)
place = f"{hvd.rank()} {hvd.size()} {hvd.local_rank()} {hvd.local_size()}"
# In one write, without a buffer: the ranks of torchrun share one output.
os.write(1, f"FACTS {place} {total[0]:g} {total[-1]:g}\\n".encode())
for step in range(10**6 if os.environ.get("TEST_TRAINS_LONG") else 3):
    hvd.allreduce(np.ones(10), name="step")
hvd.shutdown()
"""


@pytest.fixture(name="cluster")
def make_cluster(tmp_path: Path) -> Iterator[Cluster]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network name spaces need root and the command ip")
    probe = subprocess.run(["unshare", "--net", "--mount", "--uts", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("this machine allows no name spaces")
    (tmp_path / "train.py").write_text(TRAIN)
    with contextlib.closing(Cluster(tmp_path)) as cluster:
        yield cluster


def container_of(path: str) -> Dict[str, Any]:
    """The only container in a manifest."""

    def search(value: Any) -> List[Dict[str, Any]]:
        if isinstance(value, dict):
            inner = [one for each in value.values() for one in search(each)]
            return inner + list(value.get("containers", []))
        return [one for each in value for one in search(each)] if isinstance(value, list) else []

    (container,) = search(yaml.safe_load((BASE / path).read_text()))
    return container


class Ranks:
    """The pods of a job that has one rank in each."""

    def __init__(self, cluster: Cluster, manifest: str, host: str, service: str) -> None:
        self.cluster, self.container, self.host = cluster, container_of(manifest), host
        self.size = int(variables_of(self.container)["RUEDA_SIZE"])
        self.first = f"{host}-0.{service}"

    def mount_secret(self) -> None:
        path = variables_of(self.container)["RUEDA_SECRET_FILE"]
        self.cluster.mount_secret(path, secrets.token_hex(32))

    def start(self, index: int, without: str = "", **more: str) -> Pod:
        given = {**variables_of(self.container, index), **more}
        given.pop(without, None)
        command = command_of(self.container, given)
        assert command == ["python", "train.py"]
        return self.cluster.start(f"{self.host}-{index}", [sys.executable, "train.py"], given)

    def assert_right(self, pods: Dict[int, Pod]) -> None:
        total = self.size * (self.size + 1) // 2
        for index, pod in pods.items():
            assert pod.wait() == 0, pod.output
            assert f"FACTS {index} {self.size} 0 1 {total} {total}\n" in pod.output


@pytest.fixture(name="ranks")
def make_ranks(cluster: Cluster) -> Ranks:
    return Ranks(cluster, "indexed-job/job.yaml", "train", "train")


def test_rank_0_starts_before_the_dns_knows_its_name(ranks: Ranks) -> None:
    ranks.mount_secret()
    pods = {0: ranks.start(0)}
    ranks.cluster.await_question(ranks.first, more_than=6)  # it keeps asking
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    pods |= {index: ranks.start(index) for index in range(1, ranks.size)}
    ranks.assert_right(pods)


def test_pods_start_apart_and_in_any_order(cluster: Cluster) -> None:
    ranks = Ranks(cluster, "jobset/jobset.yaml", "train-node-0", "train")
    ranks.mount_secret()
    pods = {index: ranks.start(index) for index in (3, 1)}
    for pod in pods.values():
        pod.await_text("about to init")
    cluster.await_question(ranks.first, more_than=4)
    cluster.publish(ranks.first, "10.77.0.1")
    pods[0] = ranks.start(0)
    pods[0].await_text("about to init")
    pods[2] = ranks.start(2)
    ranks.assert_right(pods)


def test_pod_that_fails_before_init_is_replaced(ranks: Ranks) -> None:
    ranks.mount_secret()
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    pods = {index: ranks.start(index) for index in (0, 1, 3)}
    assert ranks.start(2, TEST_ENDS_EARLY="1").wait() == 1
    pods[2] = ranks.start(2)
    ranks.assert_right(pods)


def test_job_whose_pod_is_killed_fails_everywhere_and_starts_again(ranks: Ranks) -> None:
    ranks.mount_secret()
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    pods = {index: ranks.start(index, TEST_TRAINS_LONG="1") for index in range(ranks.size)}
    for pod in pods.values():
        pod.await_text("FACTS")
    pods[2].process.kill()
    for index in (0, 1, 3):
        assert pods[index].wait() == 1
        assert "rank 2 (host train-2" in pods[index].output
    ranks.assert_right({index: ranks.start(index) for index in reversed(range(ranks.size))})


def test_the_script_of_the_page_goes_on_where_it_was(ranks: Ranks) -> None:
    for module in ("torch", "fsspec"):
        pytest.importorskip(module)
    page = (launch_support.ROOT / "docs/kubernetes.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    folder = ranks.cluster.folder
    (folder / "train.py").write_text(block)
    packages = f"{LEAN}:{ROOT / 'python'}"
    ranks.mount_secret()
    ranks.cluster.publish(ranks.first, "10.77.0.1")

    def start(epochs: int) -> Dict[int, Pod]:
        given = {"CHECKPOINT": f"local://{folder}/state.pt", "EPOCHS": str(epochs), "PYTHONPATH": packages}
        return {index: ranks.start(index, **given) for index in range(ranks.size)}

    pods = start(10**6)
    pods[0].await_text("epoch 3 of")
    pods[2].process.kill()
    for index in (0, 1, 3):
        assert pods[index].wait() == 1, pods[index].output
    before = [int(epoch) for epoch in re.findall(r"epoch (\d+) of .*, from 0: loss", pods[0].output)]
    assert before == list(range(len(before)))
    pods = start(before[-1] + 4)
    for pod in pods.values():
        assert pod.wait() == 0, pod.output
    after = re.findall(r"epoch (\d+) of \d+, from (\d+): loss ([\d.]+)", pods[0].output)
    first = int(after[0][1])
    assert first in (before[-1] + 1, before[-1] + 2)  # told after it was saved, so killed in between perhaps
    assert [int(epoch) for epoch, _, _ in after] == list(range(first, before[-1] + 4))
    assert float(after[-1][2]) < 0.1, pods[0].output  # it has learned, before and after


def test_pods_with_another_command_are_a_preflight(ranks: Ranks) -> None:
    if not Path(launch_support.RUEDA).exists():
        pytest.skip("needs the built rueda")
    ranks.mount_secret()
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    pods = [
        ranks.cluster.start(
            f"{ranks.host}-{index}",
            [launch_support.RUEDA, "preflight", "--json", "-"],
            variables_of(ranks.container, index) | {"RUEDA_PYTHON": sys.executable},
        )
        for index in range(ranks.size)
    ]
    for pod in pods:
        assert pod.wait(120) in (0, 1), pod.output  # a busy machine may make a host or a link slow
    told = json.loads(pods[0].output[pods[0].output.index("{") :])
    assert told["asked"] == [f"train-{index}" for index in range(4)] and len(told["links"]) == 6
    assert not {"missing-host", "no-job", "library"} & {one["kind"] for one in told["findings"]}, told


def test_manifest_without_the_mount_is_told_where_it_belongs(ranks: Ranks) -> None:
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    pod = ranks.start(0)
    assert pod.wait() == 1
    assert "must mount the job's Secret at /run/secrets/rueda, readable for user 0" in pod.output
    unset = ranks.start(1, without="RUEDA_SECRET_FILE")
    assert unset.wait() == 1
    assert "RUEDA_SECRET_FILE is not set" in unset.output


def test_manifest_without_a_size_or_with_too_small_a_size_is_refused(ranks: Ranks) -> None:
    ranks.mount_secret()
    pods = [ranks.start(2, without="RUEDA_SIZE"), ranks.start(4), ranks.start(2, without="RUEDA_STORE")]
    sentences = [
        "JOB_COMPLETION_INDEX=2 and RUEDA_STORE=tcp://train-0.train:29400 are set but RUEDA_SIZE is not",
        "JOB_COMPLETION_INDEX=4 is not below RUEDA_SIZE=4",
        "set RUEDA_STORE to tcp://train-0.SERVICE:29400",
    ]
    for pod, sentence in zip(pods, sentences):
        assert pod.wait() == 1
        assert sentence in pod.output, pod.output


def test_name_that_never_comes_is_named_with_its_variable(ranks: Ranks) -> None:
    ranks.mount_secret()
    pods = [ranks.start(index, RUEDA_START_TIMEOUT="2") for index in (0, 1)]
    for pod in pods:
        assert pod.wait() == 1
        assert "host name train-0.train (RUEDA_STORE) of rank 0" in pod.output, pod.output


def other_secret(cluster: Cluster) -> str:
    """A Secret that was made anew, as another pod has it mounted."""
    cluster.mount_secret("/run/secrets/anew/key", secrets.token_hex(32))
    return "/run/secrets/anew/key"


def test_pod_with_another_secret_ends_long_before_the_start_timeout(ranks: Ranks) -> None:
    ranks.mount_secret()
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    first = ranks.start(0)
    refused = ranks.start(1, RUEDA_SECRET_FILE=other_secret(ranks.cluster))
    assert refused.wait() == 1
    assert "does not know the secret of job" in refused.output
    first.await_text("refused a connection")


def test_pods_wait_for_the_end_of_an_earlier_job_of_their_name(ranks: Ranks) -> None:
    ranks.mount_secret()
    ranks.cluster.publish(ranks.first, "10.77.0.1")
    earlier = ranks.start(0, RUEDA_JOB="earlier", RUEDA_SECRET_FILE=other_secret(ranks.cluster))
    pods = {1: ranks.start(1)}
    pods[1].await_text("still looking for rank 0")
    earlier.process.terminate()
    earlier.wait()
    pods |= {index: ranks.start(index) for index in (0, 2, 3)}
    ranks.assert_right(pods)


# What Kubeflow Trainer adds to the trainer's container.
def pet_variables(nodes: int, per_node: int, node: int) -> Dict[str, str]:
    return {
        "PET_NNODES": str(nodes),
        "PET_NPROC_PER_NODE": str(per_node),
        "PET_NODE_RANK": str(node),
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29400",
    }


def test_train_job_of_one_process_in_a_pod_needs_no_torchrun(cluster: Cluster) -> None:
    container = container_of("trainjob/runtime.yaml")
    given = variables_of(container, 0)
    cluster.mount_secret(given["RUEDA_SECRET_FILE"], secrets.token_hex(32))
    pods = []
    for node in range(2):
        variables = {**variables_of(container, node), **pet_variables(2, 1, node)}
        pods.append(cluster.start(f"train-node-0-{node}", [sys.executable, "train.py"], variables))
        cluster.await_question("train-node-0-0.train", more_than=node)
    cluster.publish("train-node-0-0.train", "10.77.0.1")
    for node, pod in enumerate(pods):
        assert pod.wait() == 0, pod.output
        assert f"FACTS {node} 2 0 1 3 3\n" in pod.output


def test_train_job_with_another_secret_in_one_pod_ends_there(cluster: Cluster) -> None:
    """The ranks know only the host of rank 0, and try 16 ports."""
    container = container_of("trainjob/runtime.yaml")
    cluster.mount_secret(variables_of(container)["RUEDA_SECRET_FILE"], secrets.token_hex(32))
    cluster.publish("train-node-0-0.train", "10.77.0.1")
    pods = []
    for node, more in enumerate([{}, {"RUEDA_SECRET_FILE": other_secret(cluster)}]):
        variables = {**variables_of(container, node), **pet_variables(2, 1, node), **more}
        pods.append(cluster.start(f"train-node-0-{node}", [sys.executable, "train.py"], variables))
    assert variables["RUEDA_START_TIMEOUT"] == "600"
    assert pods[1].wait() == 1
    assert "does not know the secret of job" in pods[1].output


def test_torchrun_starts_two_ranks_in_each_of_two_pods(cluster: Cluster) -> None:
    pytest.importorskip("torch")
    container = container_of("indexed-job-torchrun/job.yaml")
    cluster.mount_secret(variables_of(container)["RUEDA_SECRET_FILE"], secrets.token_hex(32))
    cluster.publish("train-0.train", "10.77.0.1")
    pods = []
    for index in range(2):
        given = variables_of(container, index)
        command = command_of(container, given)
        assert command[0] == "torchrun"
        torchrun = [sys.executable, "-m", "torch.distributed.run"]
        words = [word.replace("--nproc-per-node=4", "--nproc-per-node=2") for word in command[1:]]
        pods.append(cluster.start(f"train-{index}", torchrun + words, given))
    facts = []
    for pod in pods:
        assert pod.wait(90) == 0, pod.output
        facts += re.findall(r"FACTS (.*)", pod.output)
    assert sorted(facts) == ["0 4 0 2 10 10", "1 4 1 2 10 10", "2 4 0 2 10 10", "3 4 1 2 10 10"]


def test_launcher_of_an_mpi_job_reaches_its_worker_through_the_operators_hostfile(cluster: Cluster) -> None:
    if shutil.which("/usr/sbin/sshd") is None or not Path(launch_support.RUEDA).exists():
        pytest.skip("needs sshd and the built rueda")
    job = yaml.safe_load((BASE / "mpijob/mpijob.yaml").read_text())
    replicas = job["spec"]["mpiReplicaSpecs"]
    launcher, worker = (
        replicas[name]["template"]["spec"]["containers"][0] for name in ("Launcher", "Worker")
    )
    folder = cluster.folder
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    # What the operator and its webhook make: the hostfile, the keys, and the launcher's role.
    (folder / "etc/mpi/hostfile").write_text("train-worker-0.train slots=2\n")
    cluster.publish("train-worker-0.train", "10.77.0.2")
    shell, flag, script = worker["command"]
    script = script.replace("/tmp/host_key", str(folder / "host_key"))
    keys = f" -o AuthorizedKeysFile={folder}/key.pub"
    server = cluster.start("train-worker-0", [shell, flag, script + keys], variables_of(worker))
    server.await_text("listening on")
    command = command_of(launcher, {})
    assert command[:2] == ["rueda", "run"] and command[-2:] == ["python", "train.py"]
    options = [*command[2:-2], f"--ssh-identity-file={folder}/key"]
    words = [launch_support.RUEDA, "run", *options, sys.executable, "train.py"]
    pod = cluster.start("train-launcher", words, {"K_MPI_JOB_ROLE": "launcher"})
    assert pod.wait() == 0, pod.output + server.output
    assert sorted(re.findall(r"FACTS (.*)", pod.output)) == ["0 2 0 2 3 3", "1 2 1 2 3 3"]
