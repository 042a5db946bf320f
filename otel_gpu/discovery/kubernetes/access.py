"""Where is Kubernetes asked, and as whom? As the pod's own service account, or as a kubeconfig says.

The official client is used for what it is good at and is needed outside of clusters only: kubeconfigs, with their
plugins that fetch credentials. Its import alone takes 28 MB and a second, and it makes a thousand classes of objects of which
we read one; in a pod an address, a certificate and a token are all there is to know.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...errors import ConfigError, OtelGpuError
from ...signals.structs import Frozen
from ...text import one_line
from .settings import KubernetesSettings, shows_all, split

if TYPE_CHECKING:
    from kubernetes.client import Configuration

_MAX_TOKEN = 64 * 1024
_KUBELET_PORT = 10250


class Access(Frozen):
    """Whom to connect to, and what to show there."""

    host: str
    port: int
    tls: Callable[[], ssl.SSLContext] | None
    """Makes what a connection is secured by, of the files as they are then; None for loopback without."""
    authorization: Callable[[], str | None]
    """Returns the header, as it is then."""
    whence: str
    """Where the credentials come from, for messages."""

    @property
    def address(self) -> str:
        """Return it as messages show it."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def access(settings: KubernetesSettings, environ: Mapping[str, str] = os.environ) -> Access:
    """Return how Kubernetes is reached; ConfigError where that is not said."""
    if settings.auth_type == "kubeConfig":
        return _of_kubeconfig(settings)
    scheme, host, port = _endpoint(settings, environ)
    shows_token = settings.auth_type == "serviceAccount"
    return Access(
        host,
        port,
        (lambda: _verified(settings.ca_file)) if scheme == "https" else None,
        (lambda: f"Bearer {read_token(settings.token_file)}") if shows_token else lambda: None,
        settings.token_file if shows_token else "no credentials",
    )


def _endpoint(settings: KubernetesSettings, environ: Mapping[str, str]) -> tuple[str, str, int]:
    if settings.endpoint:
        return split(settings.endpoint)
    if settings.source == "kubelet":
        host, port, variable = environ.get("K8S_NODE_IP", ""), str(_KUBELET_PORT), "K8S_NODE_IP"
    else:
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        variable = "KUBERNETES_SERVICE_HOST"
    if not host:
        raise ConfigError(
            f"discovery.kubernetes: {variable} is not set, as it is in a pod; set endpoint, or auth_type: kubeConfig"
        )
    return split(f"https://{f'[{host}]' if ':' in host else host}:{port}")


def read_token(path: str) -> str:
    """Return the token as it stands in its file now; OtelGpuError where there is none."""
    try:
        # Whatever else lies there must not keep us waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            content = file.read(_MAX_TOKEN) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError as e:
        raise OtelGpuError(
            f"the token {path} cannot be read: {e.strerror}; let automountServiceAccountToken be true, or set token_file"
        ) from e
    token = content.strip()
    if not token or not token.isascii() or not token.decode().isprintable() or b" " in token:
        raise OtelGpuError(f"the token {path} is none: one line of text is expected; set token_file")
    return token.decode()


def _verified(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as e:
        raise OtelGpuError(f"the certificates {ca_file} cannot be used: {e.strerror or e}; set ca_file") from e


def _of_kubeconfig(settings: KubernetesSettings) -> Access:
    try:
        from kubernetes import client, config
    except ImportError as e:
        raise ConfigError(
            "discovery.kubernetes: auth_type kubeConfig needs the Kubernetes client; pip install 'otel-gpu[k8s]'"
        ) from e
    loaded: Configuration = client.Configuration()
    try:
        load: Callable[..., None] = config.load_kube_config
        load(settings.kubeconfig or None, settings.context or None, loaded, persist_config=False)
    except Exception as e:  # what is no kubeconfig at all breaks the client in ways of its own
        said = str(e) if isinstance(e, config.ConfigException | OSError) else f"{type(e).__name__}: {e}"
        raise ConfigError(
            f"discovery.kubernetes: the kubeconfig cannot be used: {one_line(said)}; set kubeconfig and context"
        ) from e
    try:
        scheme, host, port = split(loaded.host)
    except ConfigError as e:
        raise ConfigError(f"discovery.kubernetes: the kubeconfig's server cannot be used: {e}") from e
    if loaded.api_key and shows_all(loaded.host):
        raise ConfigError(
            f"discovery.kubernetes: the kubeconfig's server {loaded.host} would show the token to all on the way; "
            "write https:// there, or leave its user out"
        )
    return Access(
        host,
        port,
        (lambda: _of_client(loaded)) if scheme == "https" else None,
        lambda: _authorization(loaded),
        settings.kubeconfig or "the kubeconfig",
    )


def _authorization(loaded: Configuration) -> str | None:
    try:
        # By which name the client keeps it is another one in every few versions.
        header = loaded.auth_settings().get("BearerToken", {}).get("value")
    except Exception as e:  # a plugin that fetches credentials may raise anything
        raise OtelGpuError(
            f"the kubeconfig's credentials cannot be fetched: {type(e).__name__}: {one_line(str(e))}"
        ) from e
    if header is None:
        return None
    # A file that a kubeconfig names ends with a line as a rule.
    shown = str(header).strip()
    if not shown.isascii() or not shown.isprintable():
        raise OtelGpuError("the kubeconfig's token is none: one line of text is expected")
    return shown


def _of_client(loaded: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=loaded.ssl_ca_cert)
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if loaded.cert_file:
        context.load_cert_chain(loaded.cert_file, loaded.key_file)
    return context
