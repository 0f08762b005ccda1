"""Kubernetes: an Indexed Job per wave."""

from typing import Any

import yaml

from rstar2.experiments.schedulers.array import Array, SchedulerError
from rstar2.experiments.worker import STOPPED, USER_ERROR

_CLAIM = "rstar2"
_WORKSPACE = "/workspace"
_RETRIES = 2
"""Of a task that broke down; stops and lost nodes are not counted."""

_HEAD = """\
# Indexed Jobs for Kubernetes 1.29 or newer, one per wave. The volume claim `{claim}` holds the
# checkout, with runs/ in it; tasks on several nodes need it ReadWriteMany. GPUs are AMD's
# (amd.com/gpu); for NVIDIA's write nvidia.com/gpu.
# To start, also a second time with what is left then (a running task makes its checkpoint first):
#   kubectl delete jobs --cascade=foreground -l app.kubernetes.io/instance={name}
#   kubectl apply -f FILE
"""

_NEXT = """\
# Wave {number} is suspended. It is started by hand, when every run of wave {before} is done:
#   kubectl wait --for=condition=complete --timeout=1000h job/{name}-wave-{before}
#   kubectl patch job/{name}-wave-{number} --type=merge --patch='{{"spec":{{"suspend":false}}}}'
"""


def kubernetes_manifest(array: Array) -> str:
    """A YAML text for ``kubectl apply``, a Job per wave; those after the first are suspended.

    A task that was stopped or whose node was lost is begun again, without limit; one that broke
    down twice more. A user's error is not tried again. The preset's ``hours`` are not used:
    nothing ends a pod that works.

    Raises:
        SchedulerError: If there is nothing to do, if a task takes several nodes (a pod lies on
            one), or if the preset names no image.
    """
    waves = array.waves_left()
    nodes, image = array.resources.nodes, array.resources.image
    if nodes > 1:
        raise SchedulerError(
            f"{array.sweep}: a task takes {nodes} nodes, and a pod lies on one; start a Ray "
            "cluster in Kubernetes (KubeRay) and take `rstar2 batch ray`"
        )
    if image is None:
        raise SchedulerError(
            f"{array.sweep}: Kubernetes needs a container image: set resources.image in the preset"
        )
    text = _HEAD.format(claim=_CLAIM, name=array.name)
    for number, wave in enumerate(waves, start=1):
        text += "---\n"
        if number > 1:
            text += _NEXT.format(name=array.name, number=number, before=number - 1)
        text += yaml.dump(
            _job(array, number, wave, image),
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=1000,
        )
    return text


def _job(array: Array, number: int, wave: tuple[int, ...], image: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{array.name}-wave-{number}",
            "labels": {
                "app.kubernetes.io/name": "rstar2",
                "app.kubernetes.io/instance": array.name,
            },
        },
        "spec": {
            **({"suspend": True} if number > 1 else {}),
            "completionMode": "Indexed",
            "completions": len(wave),
            "parallelism": min(array.at_once, len(wave)),
            "backoffLimitPerIndex": _RETRIES,
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailIndex", "onExitCodes": _exit_code(USER_ERROR)},
                    {"action": "Ignore", "onExitCodes": _exit_code(STOPPED)},
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                ]
            },
            "template": {"spec": _pod(array, wave, image)},
        },
    }


def _exit_code(code: int) -> dict[str, Any]:
    return {"containerName": "run", "operator": "In", "values": [code]}


def _pod(array: Array, wave: tuple[int, ...], image: str) -> dict[str, Any]:
    resources = array.resources
    limits = {
        "cpu": resources.cpus_per_node,
        "memory": f"{resources.memory_gib_per_node}Gi",
        **({"amd.com/gpu": resources.gpus_per_node} if resources.gpus_per_node else {}),
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": array.checkpoint_seconds,
        # The first process of the pod, not the command, collects what killed sandboxes leave.
        "shareProcessNamespace": True,
        "containers": [
            {
                "name": "run",
                "image": image,
                "workingDir": _WORKSPACE,
                "command": ["bash", "-c", _shell(array, wave)],
                "resources": {"requests": dict(limits), "limits": limits},
                "volumeMounts": [
                    {"name": "workspace", "mountPath": _WORKSPACE},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "workspace", "persistentVolumeClaim": {"claimName": _CLAIM}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _shell(array: Array, wave: tuple[int, ...]) -> str:
    """The container's command; Kubernetes reads ``$$`` as ``$`` and expands ``$(NAME)``."""
    command = array.command('"${tasks[JOB_COMPLETION_INDEX]}"')
    text = f"tasks=({' '.join(map(str, wave))})\nexec {command}\n"
    return text.replace("$", "$$")


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
