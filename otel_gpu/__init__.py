"""What can another program use of otel-gpu? `Agent`, `Config`, `Recorder`, what they give, and the errors they raise.

    from otel_gpu import Agent, Config

    with Agent(Config.load(pids=(4711,), output="file:out")) as agent:
        agent.wait(timeout=10)

Names are imported on first use, so that `import otel_gpu` costs nothing. It imports nothing at all: the command comes
through here before it is in isolated mode.
"""

TYPE_CHECKING = False
"""As `typing` has it: type checkers know the name."""

if TYPE_CHECKING:
    from .config import Config
    from .errors import ConfigError, OtelGpuError
    from .service.agent import Agent
    from .service.recorder import Recorder
    from .signals.metrics import Buckets, Point, Resource
    from .version import __version__

__all__ = [
    "Agent",
    "Buckets",
    "Config",
    "ConfigError",
    "OtelGpuError",
    "Point",
    "Recorder",
    "Resource",
    "__version__",
    "context",
    "exporters",
    "profiles",
]

_HOMES = {
    "Agent": ".service.agent",
    "Buckets": ".signals.metrics",
    "Config": ".config",
    "ConfigError": ".errors",
    "OtelGpuError": ".errors",
    "Point": ".signals.metrics",
    "Recorder": ".service.recorder",
    "Resource": ".signals.metrics",
    "__version__": ".version",
}
_MODULES = ("context", "exporters", "profiles")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f".{name}", __name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)
