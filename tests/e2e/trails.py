"""Is a captured stack what a program of tests/programs/trail.h wrote down?"""

from __future__ import annotations

from pathlib import Path

from otel_gpu.signals.profiles import Frame, FrameKind, Stack, is_truncated
from tests.e2e.stack_truth import Address


def assert_equal(truth: list[Address], stack: Stack, program: str, *, may_be_cut: bool = False) -> None:
    """Compare frames: each of the program's in its order, none invented, none left out, and only other files' between."""
    is_cut = is_truncated(stack)
    frames = [f for f in stack if f.kind is FrameKind.NATIVE]
    assert frames[0].function == "cuLaunchKernel"
    assert frames[1].mapping is not None
    assert frames[1].mapping.path == program
    rest = frames[2:]
    for path, address in truth:
        while rest and not _is_at(rest[0], path, address) and rest[0].mapping and rest[0].mapping.path != program:
            rest.pop(0)
        if not rest and is_cut and may_be_cut:
            return
        if not address and rest and rest[0].mapping and rest[0].mapping.path == program:
            rest.pop(0)
            continue
        assert rest, f"{path}+{address:#x} is missing; captured: {_shown(frames)}"
        assert _is_at(rest[0], path, address), f"{path}+{address:#x} is missing; captured: {_shown(frames)}"
        rest.pop(0)
    assert not is_cut or may_be_cut, stack[-1].function
    assert len(rest) <= 2, f"not in the truth: {rest}"


def _is_at(frame: Frame, path: str, address: int) -> bool:
    return frame.mapping is not None and frame.mapping.path == path and frame.address in (address - 1, address)


def _shown(frames: list[Frame]) -> str:
    return " ".join(f"{f.function or Path(f.mapping.path if f.mapping else '?').name}:{f.address:x}" for f in frames)
