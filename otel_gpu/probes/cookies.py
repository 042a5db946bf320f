"""Attach cookies of the driver's functions: what a BPF program must know about the function it sits on."""

from __future__ import annotations

from ..bpf.abi.cookies import (
    ARGUMENT_NONE,
    COOKIE_FLAGS_BIT,
    COOKIE_HOST_BIT,
    COOKIE_KIND_AT_BIT,
    COOKIE_KIND_BIT,
    COOKIE_OUT_BIT,
    COOKIE_SHIFT_BIT,
    COOKIE_SIZE2_BIT,
    COOKIE_SIZE_BIT,
    COOKIE_STREAM_BIT,
)

TENSOR_FUNCTION, BACKWARD_FUNCTION = 0xFFF0, 0xFFF1
"""Stand in cookies for PyTorch's functions, which are in no table."""


def cookie(
    function: int,
    *,
    kind: int = 0,
    flags: int = 0,
    stream: int = ARGUMENT_NONE,
    host: int = ARGUMENT_NONE,
    size: int = ARGUMENT_NONE,
    size2: int = ARGUMENT_NONE,
    out: int = ARGUMENT_NONE,
    shift: int = 0,
    kind_at: int = ARGUMENT_NONE,
) -> int:
    """Pack an attach cookie; arguments are counted from 0."""
    return (
        function
        | kind << COOKIE_KIND_BIT
        | flags << COOKIE_FLAGS_BIT
        | stream << COOKIE_STREAM_BIT
        | host << COOKIE_HOST_BIT
        | size << COOKIE_SIZE_BIT
        | size2 << COOKIE_SIZE2_BIT
        | out << COOKIE_OUT_BIT
        | shift << COOKIE_SHIFT_BIT
        | kind_at << COOKIE_KIND_AT_BIT
    )
