"""The errors otel-gpu raises. Each message says what failed, why, and what to do.

OtelGpuError
 ├─ ConfigError            a bad option, file or variable (exit code 2)
 ├─ UnsupportedKernelError this kernel cannot run a part that was asked for
 ├─ LoadError              the kernel refused a BPF object (carries the verifier's log)
 ├─ AttachError            a probe could not be placed
 ├─ ElfError               a file is not an ELF file this program can read
 └─ ProcessGoneError       the observed process ended while it was being read
"""

from __future__ import annotations

from .text import one_line, without_credentials

_MAX_MESSAGE = 2_000


class OtelGpuError(Exception):
    """The base of every error that otel-gpu raises on purpose."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        # Here for all of them: a message may quote a path, a symbol or an answer of a stranger, or a URL.
        super().__init__(one_line(without_credentials(message), _MAX_MESSAGE))


class ConfigError(OtelGpuError):
    """The configuration or the command line asks for something that cannot be."""

    exit_code = 2


class UnsupportedKernelError(OtelGpuError):
    """The running kernel lacks a feature that was asked for."""


class LoadError(OtelGpuError):
    """The kernel refused a BPF object."""

    def __init__(self, message: str, verifier_log: str = "") -> None:
        super().__init__(message)
        self.verifier_log = verifier_log


class AttachError(OtelGpuError):
    """A probe could not be placed."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """For want of rights, and so every other one will be."""


class ElfError(OtelGpuError):
    """A file is not an ELF file that this program can read."""


class ProcessGoneError(OtelGpuError):
    """The observed process ended while it was being read."""
