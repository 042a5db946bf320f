"""What can be set of how pods are asked for?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...bpf.needs import Needs
from ...errors import ConfigError
from ...text import endpoint_without_credentials

NODE_VARIABLES = ("K8S_NODE_NAME", "KUBE_NODE_NAME")
POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_ENDPOINT = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?/?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """`discovery.kubernetes`: where it is asked which pods there are. In a pod nothing need be set but the node's name."""

    source: Literal["api", "kubelet"] = "api"
    """The API server, which tells of changes, or the kubelet of this node, which is asked every ten seconds."""
    auth_type: Literal["serviceAccount", "kubeConfig", "none"] = "serviceAccount"
    """As in the Collector. `kubeConfig` needs `pip install otel-gpu[k8s]`."""
    endpoint: str = ""
    """`https://HOST:PORT`; empty: KUBERNETES_SERVICE_HOST and _PORT, or the kubelet of K8S_NODE_IP."""
    token_file: str = f"{_SERVICE_ACCOUNT}/token"
    """Read again for each connection: tokens are renewed."""
    ca_file: str = f"{_SERVICE_ACCOUNT}/ca.crt"
    """Whose certificates are believed."""
    kubeconfig: str = ""
    """Empty: $KUBECONFIG, else ~/.kube/config."""
    context: str = ""
    """Of the kubeconfig; empty: its current one."""
    node: str = ""
    """Whose pods; empty: K8S_NODE_NAME or KUBE_NODE_NAME."""
    namespace: str = ""
    """The only one whose pods are asked for, which needs a Role and no ClusterRole; empty: all."""
    pod_resources: str = POD_RESOURCES
    """The kubelet's socket that says which devices pods have; nothing is said of them where it is not there."""

    def __post_init__(self) -> None:
        if not self.endpoint:
            return
        split(self.endpoint)
        if self.auth_type != "none" and shows_all(self.endpoint):
            raise ConfigError(
                f"endpoint: {self.endpoint} would show the token to all on the way; write https://, or auth_type: none"
            )

    def needs(self) -> Needs:
        """Return what asking needs of the host."""
        files = (self.token_file, self.ca_file) if self.auth_type == "serviceAccount" else ()
        return Needs(read=tuple(file for file in files if file), endpoints=(self.endpoint,) if self.endpoint else ())

    def node_name(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return which node this is; ConfigError where nobody said it."""
        name = self.node or next((environ[v] for v in NODE_VARIABLES if environ.get(v)), "")
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
            raise ConfigError(
                f"discovery.kubernetes.node: {name!r} is no node; set K8S_NODE_NAME in the pod (fieldRef: spec.nodeName)"
            )
        return name


def shows_all(endpoint: str) -> bool:
    """Say whether what is sent there can be read on the way."""
    scheme, host, _ = split(endpoint)
    return scheme == "http" and host not in _LOOPBACK


def split(endpoint: str) -> tuple[str, str, int]:
    """Return scheme, host and port; ConfigError for what is no endpoint."""
    found = _ENDPOINT.fullmatch(endpoint)
    if found is None or int(found[3] or 0) > 65535:
        shown = endpoint_without_credentials(endpoint)
        raise ConfigError(f"endpoint: {shown!r} is no https://HOST:PORT; write one such as https://10.0.0.1:443")
    return found[1], found[2].strip("[]"), int(found[3] or (443 if found[1] == "https" else 80))
