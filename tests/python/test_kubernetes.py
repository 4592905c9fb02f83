"""The manifests of deploy/kubernetes: every field exists, and what must agree agrees. No cluster is asked."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any, Dict, Iterator, List, Tuple

import pytest

for needed in ("yaml", "kubernetes_validate", "kubeflow_trainer_api"):
    pytest.importorskip(needed, reason="`make setup` installs it")

import yaml  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kubernetes_schemas import RELEASES, Document, faults  # noqa: E402 (found beside this file)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import setup_extras  # noqa: E402 (found in tools)

DEPLOY = ROOT / "deploy/kubernetes"
MANIFESTS = sorted(path for path in (DEPLOY / "base").rglob("*.yaml") if path.name != "kustomization.yaml")
BASES = sorted(path.name for path in (DEPLOY / "base").iterdir())
# Maps whose keys are the user's own.
FREE_MAPS = {"labels", "annotations", "selector", "matchLabels", "limits", "requests"}


def read(path: Path) -> Document:
    (document,) = yaml.safe_load_all(path.read_text())
    assert isinstance(document, dict)
    return document


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def maps_with_fields(value: Any, is_free: bool = False) -> Iterator[Dict[str, Any]]:
    """Every map in a document whose keys are fields of a kind."""
    if isinstance(value, dict):
        if not is_free:
            yield value
        for name, inner in value.items():
            yield from maps_with_fields(inner, name in FREE_MAPS)
    elif isinstance(value, list):
        for inner in value:
            yield from maps_with_fields(inner)


def find(value: Any, name: str) -> Any:
    """The value of the only field of this name."""
    (found,) = [fields[name] for fields in maps_with_fields(value) if name in fields]
    return found


def variables(document: Document) -> Dict[str, str]:
    (container,) = find(document, "containers")
    return {entry["name"]: entry["value"] for entry in container.get("env", [])}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("path", MANIFESTS, ids=named)
def test_manifest_is_valid(path: Path, release: str) -> None:
    assert faults(read(path), release) == []


@pytest.mark.parametrize("path", MANIFESTS, ids=named)
def test_no_field_can_be_misspelt(path: Path) -> None:
    document = read(path)
    accepted = []
    fields = [(number, name) for number, one in enumerate(maps_with_fields(document)) for name in one]
    assert len(fields) > 5
    for number, name in fields:
        if name in ("kind", "apiVersion"):  # without them there is nothing to compare with
            continue
        broken = copy.deepcopy(document)
        target = list(maps_with_fields(broken))[number]
        target[name + "x"] = target.pop(name)
        if not faults(broken):
            accepted.append(name)
    assert accepted == []


def test_a_wrong_type_is_refused_deep_inside_of_a_custom_resource() -> None:
    document = read(DEPLOY / "base/jobset/jobset.yaml")
    find(document, "volumes")[0]["secret"]["defaultMode"] = "0400"
    assert any("defaultMode" in fault for fault in faults(document))


def one_rank_in_a_pod() -> List[Tuple[str, Document, str, str]]:
    job = read(DEPLOY / "base/indexed-job/job.yaml")
    jobset = read(DEPLOY / "base/jobset/jobset.yaml")
    replicated = find(jobset, "replicatedJobs")[0]["name"]
    name, set_name = job["metadata"]["name"], jobset["metadata"]["name"]
    # <job>-<index>.<subdomain>, and <jobset>-<replicated job>-<job index>-<pod index>.<jobset>
    return [
        ("indexed-job", job, f"{name}-0.{find(job, 'subdomain')}", "train"),
        ("jobset", jobset, f"{set_name}-{replicated}-0-0.{set_name}", "train"),
    ]


@pytest.mark.parametrize("case", one_rank_in_a_pod(), ids=lambda case: case[0])
def test_size_and_place_agree_with_the_job(case: Tuple[str, Document, str, str]) -> None:
    _, document, first_pod, _ = case
    given = variables(document)
    assert find(document, "completionMode") == "Indexed"
    assert given["RUEDA_SIZE"] == str(find(document, "completions")) == str(find(document, "parallelism"))
    assert re.fullmatch(rf"tcp://{re.escape(first_pod)}:\d+", given["RUEDA_STORE"])
    assert int(given["RUEDA_START_TIMEOUT"]) >= 300


def test_torchrun_agrees_with_its_job() -> None:
    job = read(DEPLOY / "base/indexed-job-torchrun/job.yaml")
    command = find(job, "containers")[0]["command"]
    assert command[0] == "torchrun" and f"--nnodes={find(job, 'completions')}" in command
    assert find(job, "completions") == find(job, "parallelism")
    assert f"--master-addr={job['metadata']['name']}-0.{find(job, 'subdomain')}" in command
    assert "RUEDA_SIZE" not in variables(job), "it would be taken for the number of ranks"


@pytest.mark.parametrize("base", ["indexed-job", "indexed-job-torchrun"])
def test_service_names_the_pods_of_its_job_before_they_are_ready(base: str) -> None:
    job, service = (read(DEPLOY / "base" / base / name) for name in ("job.yaml", "service.yaml"))
    assert service["metadata"]["name"] == find(job, "subdomain")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}


@pytest.mark.parametrize("base", ["indexed-job", "indexed-job-torchrun", "jobset", "trainjob"])
def test_secret_is_a_file_that_only_its_user_reads(base: str) -> None:
    document = read(next(path for path in MANIFESTS if path.parent.name == base and path.name[0] in "jr"))
    (volume,) = [one for one in find(document, "volumes") if "secret" in one]
    assert volume["secret"]["defaultMode"] == 0o400
    (container,) = find(document, "containers")
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == volume["name"]]
    assert mount["readOnly"]
    assert str(PurePosixPath(variables(document)["RUEDA_SECRET_FILE"]).parent) == mount["mountPath"]


@pytest.mark.parametrize("path", MANIFESTS, ids=named)
def test_no_secret_is_an_environment_variable(path: Path) -> None:
    assert "secretKeyRef" not in path.read_text() and "secretRef" not in path.read_text()


@pytest.mark.parametrize("path", MANIFESTS, ids=named)
def test_every_variable_is_one_that_rueda_reads(path: Path) -> None:
    known = set(re.findall(r"`(RUEDA_\w+)", (ROOT / "docs/settings.md").read_text()))
    known |= set(re.findall(r"`(RUEDA_\w+)", (ROOT / "docs/run.md").read_text()))
    used = set(re.findall(r"name: (RUEDA_\w+)", path.read_text()))
    assert used <= known


def test_user_of_the_pods_is_the_user_of_the_image() -> None:
    (user,) = re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for path in MANIFESTS:
        for fields in maps_with_fields(read(path)):
            assert str(fields.get("runAsUser", user)) == user, path
    (home,) = re.findall(r"useradd --uid 1000 --create-home (\w+)", (DEPLOY / "Dockerfile").read_text())
    assert find(read(DEPLOY / "base/mpijob/mpijob.yaml"), "sshAuthMountPath") == f"/home/{home}/.ssh"


# ---- kustomize ----


OVERLAYS = sorted((DEPLOY / "overlays").iterdir())


def render(folder: Path) -> List[Document]:
    """What kustomize makes of a folder: that of `make setup`, in PATH, or in kubectl."""
    for kustomize in (str(setup_extras.kustomize_program()), "kustomize", "kubectl"):
        if shutil.which(kustomize) is not None:
            break
    else:
        pytest.skip("neither kustomize nor kubectl is installed")
    words = [kustomize, *(["kustomize"] if kustomize == "kubectl" else ["build"]), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if "unknown command" in done.stderr or (kustomize == "kubectl" and "Component" in done.stderr):
        pytest.skip("this kubectl is too old for components of kustomize")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout)]


@pytest.mark.parametrize(
    "folder", [*(DEPLOY / "base" / name for name in BASES), *OVERLAYS], ids=lambda it: it.name
)
def test_every_base_and_overlay_renders_to_valid_documents(folder: Path) -> None:
    documents = render(folder)
    assert documents and [faults(one, release) for one in documents for release in RELEASES] == [[]] * (
        len(documents) * len(RELEASES)
    )


def test_overlay_changes_what_it_says() -> None:
    documents = render(DEPLOY / "overlays/example")
    assert [faults(one) for one in documents] == [[], []]
    job = next(one for one in documents if one["kind"] == "Job")
    (container,) = find(job, "containers")
    assert find(job, "completions") == find(job, "parallelism") == int(variables(job)["RUEDA_SIZE"]) == 8
    assert container["image"] == "registry.example.com/vision/resnet:7"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {one["metadata"]["namespace"] for one in documents} == {"training"}
    assert (
        variables(job)["RUEDA_STORE"] == "tcp://train-0.train:29400"
    )  # what the overlay does not name stays


def test_gpu_component_fits_every_base(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "kubernetes")
    for base in BASES:
        folder = tmp_path / "kubernetes/overlays" / base
        folder.mkdir()
        (folder / "kustomization.yaml").write_text(
            f"resources: [../../base/{base}]\ncomponents: [../../components/gpu]\n"
        )
        documents = render(folder)
        assert [fault for one in documents for fault in faults(one)] == []
        assert str(documents).count("'nvidia.com/gpu': '1'") == 1, base
