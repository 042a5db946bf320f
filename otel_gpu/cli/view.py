"""What was seen, in a browser? The embedded backend: takes OTLP of agents, keeps the last hour, and shows it as a page."""

from __future__ import annotations

import argparse
import os
import stat
from importlib.util import find_spec
from pathlib import Path

from ..errors import ConfigError, OtelGpuError
from ..runtime import privileges
from ..runtime.privileges import Capability
from .durations import duration_of
from .signals import stop_signals

NAME = "view"
HELP = "take what agents send and show it as a web page: charts, flame graphs, requests"
_LONGEST_S = 24 * 3600.0
_SHORTEST_S = 60.0
_FREE_PORTS = 1024
_MAX_TOKEN = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument(
        "--host", default="localhost", help="address to listen at (default: localhost, this host alone)"
    )
    parser.add_argument("--port", type=_port, default=4318, help="of the page and of OTLP over HTTP (default 4318)")
    parser.add_argument(
        "--grpc-port", metavar="PORT", type=_port, default=4317, help="of OTLP over gRPC (default 4317)"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="ask for the token in this file; needed to listen at another address than this host's own",
    )
    parser.add_argument(
        "--keep", metavar="TIME", type=duration_of("--keep"), default=3600.0, help="how long data are kept (default 1h)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    check()
    if not _SHORTEST_S <= arguments.keep <= _LONGEST_S:
        raise ConfigError("--keep is too short or too long: give 1m to 24h")
    token = _token(arguments.token_file) if arguments.token_file is not None else ""
    if arguments.is_command:
        low = any(0 < port < _FREE_PORTS for port in (arguments.port, arguments.grpc_port))
        privileges.limit({Capability.CAP_NET_BIND_SERVICE} if low else set())
    from ..view.server import View
    from ..view.settings import ViewSettings

    settings = ViewSettings(arguments.host, arguments.port, arguments.grpc_port, token, arguments.keep)
    with stop_signals() as told_to_stop, View(settings) as view:
        print(f"the page: {view.url}", flush=True)
        print(f"OTLP: gRPC at port {view.grpc_port}, HTTP at port {view.port}", flush=True)
        if arguments.open:
            _open(view.url)
        told_to_stop.wait()
    return 0


def check() -> None:
    """Raise OtelGpuError where what the view is made of is not installed."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise OtelGpuError(
            f"the view needs {' and '.join(missing)}: pip install 'otel-gpu[view]' where otel-gpu is installed"
        )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text[:6]) > 65535:
        raise ConfigError(f"{text} is no port; give one from 1 to 65535, or 0 for one that is free")
    return int(text)


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(
                    f"--token-file {path}: it is no file; write a token to a file that nobody else can read"
                )
            data = file.read(_MAX_TOKEN + 1)
    except OSError as error:
        raise ConfigError(f"--token-file {path}: {error.strerror}; write a token to it") from error
    token = data.decode("ascii", "replace").strip()
    if len(data) > _MAX_TOKEN or not token or not all("!" <= c <= "~" for c in token):
        raise ConfigError(
            f"--token-file {path}: one line of printable characters without blanks is wanted; write such a token"
        )
    return token


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
