"""A directory of somebody else's: files that Python, or a program in it, may take for its own. None of them may run."""

from __future__ import annotations

from pathlib import Path

AT_START = ("encodings", "sitecustomize", "usercustomize")
"""What Python itself imports at its start."""
STANDARD = ("__future__", "typing", "importlib")
"""What a script that pip makes, or an editable installation, imports before the first line of ours."""
LATER = ("json", "argparse", "numpy", "msgspec", "yaml", "grpc", "google", "requests", "rich", "torch", "pynvml")

_TRAP = """
import posix
posix.write(posix.open({fired!r}, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND, 0o666), __name__.encode() + b" ")
"""


class Traps:
    """The directory, and what of it has run."""

    def __init__(self, directory: Path, names: tuple[str, ...] = (*AT_START, "otel_gpu", *STANDARD, *LATER)) -> None:
        self.directory = directory / "traps"
        self._fired = directory / "fired"
        body = _TRAP.format(fired=str(self._fired))
        for name in names:
            (self.directory / name).mkdir(parents=True)
            (self.directory / name / "__init__.py").write_text(body)
            (self.directory / f"{name}.py").write_text(body)
        (self.directory / "trap.pth").write_text("import json\n")

    @property
    def fired(self) -> str:
        return self._fired.read_text() if self._fired.exists() else ""
