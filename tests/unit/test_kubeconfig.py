"""A kubeconfig that cannot be used is said to be so in one line, and its token goes to nobody but its server, nor into a message."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from otel_gpu.discovery.kubernetes.access import Access, access
from otel_gpu.discovery.kubernetes.connection import Connections
from otel_gpu.discovery.kubernetes.settings import KubernetesSettings
from otel_gpu.errors import ConfigError, OtelGpuError

pytest.importorskip("kubernetes", reason="it is in the extra k8s")

SECRET = "abcdefghijkl.mnopqrstuvwx"


def _access(directory: Path, user: str = "", server: str = "https://127.0.0.1:9", context: str = "") -> Access:
    file = directory / "kubeconfig"
    file.write_text(
        "{apiVersion: v1, kind: Config, current-context: one, contexts: [{name: one, context: {cluster: c, user: u}}], "
        f'clusters: [{{name: c, cluster: {{server: "{server}"}}}}], users: [{{name: u, user: {{{user}}}}}]}}'
    )
    return access(KubernetesSettings(auth_type="kubeConfig", kubeconfig=str(file), context=context))


@pytest.mark.parametrize(
    "text", ["", "a: [", "[]", "words", "{apiVersion: v1}", "\x00", "{contexts: 3, current-context: a}"]
)
def test_what_is_no_kubeconfig_is_said_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(ConfigError, match=r"the kubeconfig cannot be used: .*; set kubeconfig and context") as refused:
        access(KubernetesSettings(auth_type="kubeConfig", kubeconfig=str(tmp_path / "kubeconfig")))
    assert str(refused.value).isprintable()


def test_a_kubeconfig_that_is_not_there_and_a_context_that_it_has_not_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set kubeconfig and context"):
        access(KubernetesSettings(auth_type="kubeConfig", kubeconfig=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match=r"other.*; set kubeconfig and context"):
        _access(tmp_path, context="other")


@pytest.mark.parametrize("server", ["https://10.0.0.1/k8s/clusters/c-1", "https://10.0.0.1:99999", "unix:///x"])
def test_servers_that_cannot_be_asked_are_said_to_be_the_kubeconfigs(server: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the kubeconfig's server cannot be used: endpoint: "):
        _access(tmp_path, server=server)


def test_no_message_shows_a_password_in_an_endpoint() -> None:
    with pytest.raises(ConfigError) as refused:
        KubernetesSettings(endpoint=f"https://me:{SECRET}@10.0.0.1")
    assert SECRET not in str(refused.value)


def test_a_token_is_not_sent_where_all_can_read_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="would show the token to all on the way"):
        _access(tmp_path, f"token: {SECRET}", "http://10.0.0.1:8080")
    assert _access(tmp_path, "", "http://10.0.0.1:8080").authorization() is None


def test_a_tokens_file_may_end_with_a_line(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked: list[bytes] = []

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        thread = threading.Thread(target=serve)
        thread.start()
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert Connections(_access(tmp_path, f"tokenFile: {tmp_path / 'token'}", server)).get("/") == b"ok"
        thread.join()
    assert f"Authorization: Bearer {SECRET}\r\n".encode() in asked[0]


@pytest.mark.parametrize("token", [rf"{SECRET}\nX-Other: 1", rf"{SECRET}\u00e9"])
def test_a_token_that_is_none_is_in_no_message(token: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        connections = Connections(_access(tmp_path, f'token: "{token}"', server))
        with pytest.raises(OtelGpuError, match="one line of text is expected") as refused:
            connections.get("/")
    assert SECRET not in str(refused.value)
