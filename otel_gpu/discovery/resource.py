"""Who is this process? Its OpenTelemetry resource: service, process, container, pod, host."""

from __future__ import annotations

import os
import platform
import re
import urllib.parse
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..errors import ProcessGoneError
from ..model import AttributeValue, Resource, attributes
from . import procfs

_VARIABLES = frozenset({"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"})
_CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|$)")
_POD_UID = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(t|d)?$")
_MAX_VALUE = 4096


def of_process(pid: int, extra: Mapping[str, str] = {}, *, fallback_name: str | None = None) -> Resource:
    """Return the resource of an observed process; what cannot be read any more is left out.

    service.name comes from OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES in the process's environment, else
    from its executable, else, for an interpreter, from the script it runs. `extra` (the agent's own
    OTEL_RESOURCE_ATTRIBUTES) fills what the process does not say itself.
    """
    found: dict[str, AttributeValue | None] = {**host(), **extra, "process.pid": pid}
    try:
        executable = procfs.executable(pid)
        arguments = procfs.command_line(pid)
        status = procfs.stat(pid)
        found["process.parent_pid"] = status.parent
        found["process.executable.path"] = executable
        found["process.executable.name"] = os.path.basename(executable) if executable else status.comm
        if arguments:
            found["process.command"] = arguments[0][:_MAX_VALUE]
        found |= _container(pid)
        variables = procfs.environment(pid, _VARIABLES)
        found |= parse_resource_attributes(variables.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        if variables.get("OTEL_SERVICE_NAME"):
            found["service.name"] = variables["OTEL_SERVICE_NAME"]
        found.setdefault("service.name", service_name(executable or status.comm, arguments))
    except (ProcessGoneError, PermissionError):
        found.setdefault("service.name", fallback_name or "unknown_service")
    return Resource(attributes({k: v[:_MAX_VALUE] if isinstance(v, str) else v for k, v in found.items()}))


def service_name(executable: str, arguments: list[str]) -> str:
    """Name a program: the executable, or the script or module that an interpreter runs."""
    name = os.path.basename(executable)
    if not _PYTHON.match(name):
        return name
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-m":
            return next(rest, name)
        if argument == "-c":
            break
        if argument in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif not argument.startswith("-"):
            script = os.path.basename(argument.rstrip("/"))
            return script.removesuffix(".py") or name
    return name


def parse_resource_attributes(text: str) -> dict[str, AttributeValue]:
    """Parse OTEL_RESOURCE_ATTRIBUTES: `key=value,key=value`, percent-encoded; malformed pairs are left out."""
    found: dict[str, AttributeValue] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            found[key.strip()] = urllib.parse.unquote(value.strip())
    return found


def _container(pid: int) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for line in procfs.read(pid, "cgroup").decode("utf-8", "replace").splitlines():
        path = line.split(":", 2)[-1]
        if ids := _CONTAINER_ID.findall(path):
            found["container.id"] = ids[-1]
        if uid := _POD_UID.search(path):
            found["k8s.pod.uid"] = uid.group(1).replace("_", "-")
    return found


@cache
def _host() -> tuple[tuple[str, str], ...]:
    found = {"host.name": platform.node(), "host.arch": _architecture(), "os.type": "linux"}
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            if machine_id := Path(path).read_text().strip():
                found["host.id"] = machine_id
                break
        except OSError:
            continue
    return tuple(found.items())


def host() -> dict[str, AttributeValue]:
    """Return the attributes of this host."""
    return dict(_host())


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
