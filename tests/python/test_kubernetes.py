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
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
# Maps whose keys are the user's own.
FREE_MAPS = {"labels", "annotations", "selector", "matchLabels", "limits", "requests"}
FROM_THE_POD = "metadata.labels['batch.kubernetes.io/controller-uid']"


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
    """Those with a value; of the others, where Kubernetes takes it from."""
    (container,) = find(document, "containers")
    return {
        entry["name"]: entry.get("value", str(entry.get("valueFrom"))) for entry in container.get("env", [])
    }


def pod_templates(document: Document) -> List[Dict[str, Any]]:
    """Every pod template in a manifest."""
    found = [fields["template"] for fields in maps_with_fields(document) if "template" in fields]
    return [one for one in found if "containers" in one.get("spec", {})]


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
    """OpenShift refuses a user that the pod names. Without one it is the image's, or one of OpenShift's."""
    image = (DEPLOY / "Dockerfile").read_text()
    user = re.findall(r"^USER (\w+)$", image, re.MULTILINE)[-1]
    (made,) = re.findall(r"useradd --uid (\d+) --create-home \w+", image)
    assert user == made and int(user) > 1000, "1000 is taken in images of Ubuntu 24.04"
    for path in MANIFESTS:
        for fields in maps_with_fields(read(path)):
            assert "runAsUser" not in fields, path
            assert str(fields.get("fsGroup", user)) == user, path
    (home,) = re.findall(r"useradd --uid \d+ --create-home (\w+)", image)
    assert find(read(DEPLOY / "base/mpijob/mpijob.yaml"), "sshAuthMountPath") == f"/home/{home}/.ssh"


def test_image_takes_the_wheel_that_fits_images_with_cuda() -> None:
    image = (DEPLOY / "Dockerfile").read_text()
    assert "`make wheels`" in image and "dist/portable/rueda_train-" in image
    assert re.search(r"^ARG BASE=", image, re.MULTILINE) and "FROM ${BASE}" in image
    assert image.index("FROM ${BASE}") < image.index("ARG PACKAGES=torch"), "an ARG before FROM ends there"


def with_pods() -> List[Path]:
    return [path for path in MANIFESTS if pod_templates(read(path))]


@pytest.mark.parametrize("path", with_pods(), ids=named)
def test_every_pod_can_be_told_apart_and_has_no_proxy(path: Path) -> None:
    for template in pod_templates(read(path)):
        about = template["metadata"]
        assert about["labels"]["app.kubernetes.io/part-of"] == "rueda"
        assert about["labels"]["sidecar.istio.io/inject"] == "false"
        assert about["annotations"]["linkerd.io/inject"] == "disabled"


@pytest.mark.parametrize("path", with_pods(), ids=named)
def test_no_rank_starts_a_thread_on_each_core_of_its_node(path: Path) -> None:
    document = read(path)
    ranks = {"one-pod": 4, "indexed-job-torchrun": 4, "mpijob": 4, "trainjob": 4}.get(path.parent.name, 1)
    container = pod_templates(document)[0]["spec"]["containers"][
        0
    ]  # `rueda run` hands its own to the workers
    (given,) = [one for one in container["env"] if one["name"] == "OMP_NUM_THREADS"]
    cores = int(pod_templates(document)[-1]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    if ranks == 1:
        assert given["valueFrom"] == {"resourceFieldRef": {"resource": "requests.cpu"}}
    else:
        assert int(given["value"]) == cores // ranks


@pytest.mark.parametrize("base", ["indexed-job", "indexed-job-torchrun", "jobset", "trainjob"])
def test_a_job_made_again_is_another_job(base: str) -> None:
    document = read(next(path for path in MANIFESTS if path.parent.name == base and path.name[0] in "jr"))
    assert variables(document)["RUEDA_JOB"] == str({"fieldRef": {"fieldPath": FROM_THE_POD}})


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
    assert [faults(one) for one in documents] == [[]] * 3
    assert sorted(one["kind"] for one in documents) == ["Job", "NetworkPolicy", "Service"]
    job = next(one for one in documents if one["kind"] == "Job")
    (container,) = find(job, "containers")
    assert find(job, "completions") == find(job, "parallelism") == int(variables(job)["RUEDA_SIZE"]) == 8
    assert container["image"] == "registry.example.com/vision/resnet:7"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert job["spec"]["activeDeadlineSeconds"] == 86400
    assert {one["metadata"]["namespace"] for one in documents} == {"training"}
    assert (
        variables(job)["RUEDA_STORE"] == "tcp://train-0.train:29400"
    )  # what the overlay does not name stays


def render_with(folder: Path, base: str, *components: str) -> List[Document]:
    """A base with components. folder: of this test; gets a copy of deploy/kubernetes."""
    shutil.copytree(DEPLOY, folder / "kubernetes", dirs_exist_ok=True)
    overlay = folder / "kubernetes/overlays" / "-".join([base, *components])
    overlay.mkdir()
    listed = ", ".join(f"../../components/{name}" for name in components)
    (overlay / "kustomization.yaml").write_text(f"resources: [../../base/{base}]\ncomponents: [{listed}]\n")
    documents = render(overlay)
    assert [fault for one in documents for release in RELEASES for fault in faults(one, release)] == []
    return documents


def workload_of(documents: List[Document]) -> Document:
    """The document with the pods of the ranks."""
    (found,) = [one for one in documents if pod_templates(one)]
    return found


def ranks_of(documents: List[Document]) -> Dict[str, Any]:
    """The pod in which ranks run."""
    return dict(pod_templates(workload_of(documents))[-1]["spec"])


@pytest.mark.parametrize("base", BASES)
def test_all_components_fit_every_base_together(base: str, tmp_path: Path) -> None:
    kinds = {one["kind"] for one in render_with(tmp_path, base, *COMPONENTS)}
    assert {"NetworkPolicy", "PodMonitor"} <= kinds


@pytest.mark.parametrize("base", BASES)
def test_gpu_component_asks_for_gpus_and_tolerates_their_nodes(base: str, tmp_path: Path) -> None:
    documents = render_with(tmp_path, base, "gpu")
    pod = ranks_of(documents)
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert str(documents).count("'nvidia.com/gpu': '1'") == 1


@pytest.mark.parametrize("base", BASES)
def test_spread_component_prefers_a_node_for_each_pod(base: str, tmp_path: Path) -> None:
    documents = render_with(tmp_path, base, "spread")
    (term,) = find(ranks_of(documents), "preferredDuringSchedulingIgnoredDuringExecution")
    wanted = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert wanted.items() <= pod_templates(workload_of(documents))[-1]["metadata"]["labels"].items()


@pytest.mark.parametrize("base", BASES)
def test_rdma_component_names_ucx_and_a_device(base: str, tmp_path: Path) -> None:
    documents = render_with(tmp_path, base, "rdma")
    container = ranks_of(documents)["containers"][0]
    assert container["resources"]["limits"]["rdma/hca"] == "1"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    first = pod_templates(workload_of(documents))[0]["spec"]["containers"][0]
    assert {"name": "RUEDA_TRANSPORTS", "value": "shm,ucx"} in first["env"]


@pytest.mark.parametrize("base", BASES)
def test_metrics_component_opens_a_port_that_a_pod_monitor_finds(base: str, tmp_path: Path) -> None:
    documents = render_with(tmp_path, base, "metrics", "network-policy")
    (monitor,) = [one for one in documents if one["kind"] == "PodMonitor"]
    (policy,) = [one for one in documents if one["kind"] == "NetworkPolicy"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    pod, workload = ranks_of(documents), workload_of(documents)
    container = pod["containers"][0]
    (port,) = [one["containerPort"] for one in container["ports"] if one["name"] == endpoint["port"]]
    first = pod_templates(workload)[0]["spec"]["containers"][0]
    given = {one["name"]: one.get("value") for one in first["env"]}
    assert given["RUEDA_METRICS_PORT"] == str(port) and given["RUEDA_METRICS_ADDRESS"] == "0.0.0.0"
    assert [one["port"] for rule in policy["spec"]["ingress"] for one in rule.get("ports", [])] == [port]
    labels = pod_templates(workload)[-1]["metadata"]["labels"].items()
    for selector in (monitor["spec"]["selector"], policy["spec"]["podSelector"]):
        assert selector["matchLabels"].items() <= labels
    (volume,) = [one for one in pod["volumes"] if one["name"] == "rueda-metrics"]
    credentials = endpoint["authorization"]["credentials"]
    assert volume["secret"]["secretName"] == credentials["name"] and volume["secret"]["defaultMode"] == 0o400
    assert PurePosixPath(given["RUEDA_METRICS_TOKEN_FILE"] or "").name == credentials["key"]
    assert {
        "name": "rueda-metrics",
        "mountPath": "/run/secrets/rueda-metrics",
        "readOnly": True,
    } in container["volumeMounts"]
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("settings.md", "run.md"))
    known = set(re.findall(r"`(RUEDA_\w+)", pages))
    assert {name for name in given if name.startswith("RUEDA_")} <= known


@pytest.mark.parametrize("base", BASES)
def test_deadline_component_ends_the_job_and_no_restart_begins_anew(base: str, tmp_path: Path) -> None:
    workload = workload_of(render_with(tmp_path, base, "deadline"))
    assert find(workload, "activeDeadlineSeconds") == 86400
    if workload["kind"] in ("JobSet", "TrainingRuntime"):
        (rule,) = find(workload, "failurePolicy")["rules"]
        assert (rule["action"], rule["onJobFailureReasons"]) == ("FailJobSet", ["DeadlineExceeded"])


@pytest.mark.parametrize("base", BASES)
def test_openshift_component_names_neither_user_nor_group(base: str, tmp_path: Path) -> None:
    for template in pod_templates(workload_of(render_with(tmp_path, base, "openshift"))):
        assert template["spec"]["securityContext"]["runAsNonRoot"]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(template["spec"]["securityContext"])


@pytest.mark.parametrize("base", BASES)
def test_kueue_component_names_a_queue(base: str, tmp_path: Path) -> None:
    documents = render_with(tmp_path, base, "kueue")
    asked = [one for one in documents if one["kind"] in ("Job", "JobSet", "TrainJob", "MPIJob")]
    assert [one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for one in asked] == ["training"]


def test_every_component_is_in_the_documentation() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    assert [name for name in COMPONENTS if f"components/{name}" not in page] == []
