"""What is measured of pods, and of how they are asked for?"""

from __future__ import annotations

from ...signals.metrics import Instrument, MetricSpec
from ...signals.telemetry import AttributeSpec

RESOURCE_NAME = "gpu.resource.name"
STATE = "otel_gpu.pod.state"
OUTCOME = "otel_gpu.kubernetes.outcome"

REQUEST = MetricSpec(
    "gpu.pod.request", "{gpu}", Instrument.GAUGE, "GPUs, or parts of one, that a pod requests.", (RESOURCE_NAME,)
)
LIMIT = MetricSpec("gpu.pod.limit", "{gpu}", Instrument.GAUGE, "The same that it is limited to.", (RESOURCE_NAME,))
ALLOCATED = MetricSpec(
    "gpu.pod.allocated",
    "{gpu}",
    Instrument.GAUGE,
    "GPUs that the kubelet has given to a pod: one series for each, with its id, so that what is measured of a GPU can be "
    "joined with its pod. More than 1 where a GPU is shared in parts.",
    (RESOURCE_NAME, "hw.id"),
)
USED = MetricSpec(
    "gpu.pod.used",
    "{gpu}",
    Instrument.GAUGE,
    "GPUs on which NVML finds processes of a pod that are observed; left out where NVML is not asked or not there.",
)
SPECS = (REQUEST, LIMIT, ALLOCATED, USED)
"""Of pods, on a resource of theirs."""

PODS = MetricSpec(
    "otel_gpu.pods",
    "{pod}",
    Instrument.GAUGE,
    "Pods of this node that are known: those that are there, and deleted ones whose processes may live on.",
    (STATE,),
)
PODS_REFUSED = MetricSpec(
    "otel_gpu.pods.refused",
    "{pod}",
    Instrument.COUNTER,
    "Pods that were not taken in: there are too many, or what was said of them makes no sense.",
)
REQUESTS = MetricSpec(
    "otel_gpu.kubernetes.requests",
    "{request}",
    Instrument.COUNTER,
    "Requests to the API server, or to the kubelet, by what became of them.",
    (OUTCOME,),
)
AGE = MetricSpec(
    "otel_gpu.kubernetes.age",
    "s",
    Instrument.GAUGE,
    "For how long nothing has been heard of pods because nobody answers; 0 while somebody does.",
    floating=True,
)
SELF_SPECS = (PODS, PODS_REFUSED, REQUESTS, AGE)
"""On the agent's resource."""

ATTRIBUTES = (
    AttributeSpec(
        RESOURCE_NAME, "What Kubernetes calls such GPUs: `nvidia.com/gpu`, `nvidia.com/mig-1g.5gb`, `amd.com/gpu`."
    ),
    AttributeSpec(STATE, "Whether the pod is there.", ("running", "deleted")),
    AttributeSpec(
        OUTCOME,
        "What became of a request: `expired` where the server does not remember so far back and all is listed anew.",
        ("answered", "expired", "refused", "unreachable", "malformed"),
    ),
)
