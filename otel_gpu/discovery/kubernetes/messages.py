"""How does the kubelet say which devices pods have? Messages of its pod-resources service, v1, as far as they are read.

The numbers are those of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto; fields that are left out here are skipped.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

LIST = "/v1.PodResourcesLister/List"
_PACKAGE = "otel_gpu.pods"
_FIELD = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "Response": (("pods", 1, "Pod", True),),
    "Pod": (("name", 1, "", False), ("namespace", 2, "", False), ("containers", 3, "Container", True)),
    "Container": (("name", 1, "", False), ("devices", 2, "Devices", True), ("claims", 5, "Claim", True)),
    "Devices": (("resource_name", 1, "", False), ("device_ids", 2, "", True)),
    "Claim": (("name", 2, "", False), ("resources", 4, "ClaimResource", True)),
    "ClaimResource": (("driver", 2, "", False), ("pool", 3, "", False), ("device", 4, "", False)),
}
"""By name: (field, number, message or text, whether there are several)."""


def response_class() -> Any:
    """Return the class of an answer to `List`."""
    file = descriptor_pb2.FileDescriptorProto(name="otel_gpu/pod_resources.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, is_repeated in fields:
            message.field.add(
                name=field,
                number=number,
                label=_FIELD.LABEL_REPEATED if is_repeated else _FIELD.LABEL_OPTIONAL,
                type=_FIELD.TYPE_MESSAGE if kind else _FIELD.TYPE_STRING,
                type_name=f".{_PACKAGE}.{kind}" if kind else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Response"))
