"""Strict validators for the kinds that deploy/kubernetes uses: an unknown field is refused.

Schemas of Kubernetes' own kinds are in kubernetes-validate; those of JobSet and Kubeflow Trainer are made
from the models in kubeflow-trainer-api. MPI Operator and Prometheus Operator publish no such package: their
few fields are listed here, and pod templates are checked as Kubernetes' own. What admission webhooks refuse
is not covered.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from typing import Any, Dict, Iterator, List, Tuple

import jsonschema
import kubernetes_validate
import referencing
from kubeflow_trainer_api import models

Document = Dict[str, Any]

# The oldest release in which Jobs have backoffLimitPerIndex by default, and the newest known.
RELEASES = ["1.29", kubernetes_validate.latest_version()]

_MODELS = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}
_API_VERSIONS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainingRuntime": "trainer.kubeflow.org/v1alpha1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "MPIJob": "kubeflow.org/v2beta1",
    "PodMonitor": "monitoring.coreos.com/v1",
}


def faults(document: Document, release: str = RELEASES[-1]) -> List[str]:
    """What is wrong with a manifest: "path: message", empty if nothing is."""
    found = [_text(error, "") for error in _validator(document, release).iter_errors(document)]
    for path, template in _pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        found += [_text(error, path) for error in _core("PodTemplate", "v1", release).iter_errors(pod)]
    return found


def _text(error: jsonschema.ValidationError, prefix: str) -> str:
    return f"{prefix}{error.json_path}: {error.message}"


def _pod_templates(document: Document) -> Iterator[Tuple[str, Document]]:
    if document["kind"] == "MPIJob":
        for name, replicas in document.get("spec", {}).get("mpiReplicaSpecs", {}).items():
            yield f"$.spec.mpiReplicaSpecs.{name}.template, ", replicas.get("template", {})


def _validator(document: Document, release: str) -> jsonschema.protocols.Validator:
    kind = document["kind"]
    return _custom(kind) if kind in _API_VERSIONS else _core(kind, document["apiVersion"], release)


@functools.cache
def _core(kind: str, api_version: str, release: str) -> jsonschema.protocols.Validator:
    newest = [one for one in kubernetes_validate.utils.all_versions() if one.startswith(release)][-1]
    folder = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
    group, _, version = api_version.rpartition("/")
    name = "-".join([kind.lower(), *([group.split(".")[0]] if group else []), version]) + ".json"
    schema, definitions = (
        json.loads((folder / f"v{newest}-local-strict" / file).read_text())
        for file in (name, "_definitions.json")
    )
    resources = [referencing.Resource.from_contents(one) for one in (schema, definitions)]
    registry: Any = resources @ referencing.Registry()
    return jsonschema.Draft202012Validator(schema, registry=registry)


@functools.cache
def _custom(kind: str) -> jsonschema.protocols.Validator:
    by_hand = {"MPIJob": _MPI_JOB, "PodMonitor": _POD_MONITOR}
    schema = by_hand.get(kind) or _MODELS[kind].model_json_schema(by_alias=True)
    schema["properties"]["apiVersion"] = {"const": _API_VERSIONS[kind]}
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema.Draft202012Validator(_strict(schema))


def _strict(schema: Any) -> Any:
    """The same schema, in which objects with known fields have no others."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "oneof_schema_1_validator" in schema.get("properties", {}):  # a quantity
        return {"type": ["string", "number"]}
    made = {name: _strict(one) for name, one in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def _fields(required: Tuple[str, ...] = (), **properties: Any) -> Document:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXT, _NUMBER, _FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
_MAP = {"type": "object", "additionalProperties": {"type": "string"}}
_REPLICAS = _fields(
    ("template",),
    replicas=_NUMBER,
    restartPolicy={"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
    template={"type": "object"},
)
_MPI_JOB = _fields(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata=_fields(("name",), name=_TEXT, namespace=_TEXT, labels=_MAP, annotations=_MAP),
    spec=_fields(
        ("mpiReplicaSpecs",),
        slotsPerWorker=_NUMBER,
        runLauncherAsWorker=_FLAG,
        sshAuthMountPath=_TEXT,
        launcherCreationPolicy={"enum": ["AtStartup", "WaitForWorkersReady"]},
        mpiImplementation={"enum": ["OpenMPI", "Intel", "MPICH"]},
        mpiReplicaSpecs=_fields(("Launcher",), Launcher=_REPLICAS, Worker=_REPLICAS),
        runPolicy=_fields(
            activeDeadlineSeconds=_NUMBER,
            backoffLimit=_NUMBER,
            cleanPodPolicy={"enum": ["All", "Running", "None"]},
            managedBy=_TEXT,
            schedulingPolicy={"type": "object"},
            suspend=_FLAG,
            ttlSecondsAfterFinished=_NUMBER,
        ),
    ),
)
_POD_MONITOR = _fields(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata=_fields(("name",), name=_TEXT, namespace=_TEXT, labels=_MAP, annotations=_MAP),
    spec=_fields(
        ("selector", "podMetricsEndpoints"),
        selector=_fields(matchLabels=_MAP),
        podMetricsEndpoints={
            "type": "array",
            "items": _fields(
                port=_TEXT,
                path=_TEXT,
                interval=_TEXT,
                authorization=_fields(credentials=_fields(("key",), name=_TEXT, key=_TEXT)),
            ),
        },
    ),
)
