"""In which way can this process place programs: by multi links, by perf events, or by one copy of a program a site?"""

from __future__ import annotations

from typing import Literal

from ..errors import UnsupportedKernelError
from .features import Features

LinkMode = Literal["auto", "multi", "perf", "copies"]


def usable_mode(mode: LinkMode, features: Features) -> LinkMode:
    """Return how probes are placed: as asked for, or with `auto` by the best way that the kernel has.

    UnsupportedKernelError where that way is not open to this process.
    """
    asked = mode
    if mode == "auto":
        mode = "multi" if features.uprobe_multi else "perf" if features.attach_cookie else "copies"
    if not features.permitted:
        return mode  # nothing is; loading the programs says so
    if mode == "multi" and not features.uprobe_multi:
        raise UnsupportedKernelError(
            "this kernel has no links over many sites; run Linux 6.6 or newer, or leave `link` at auto"
        )
    if mode != "multi" and not features.perf_uprobe:
        way = "leave `link` at auto" if asked != "auto" and features.uprobe_multi else "run Linux 6.6 or newer"
        raise UnsupportedKernelError(
            "the kernel lets this process place no probe by a perf event; give it CAP_SYS_ADMIN, which kernels with the "
            f"fix of CVE-2025-38466 want for that, or {way}"
        )
    return mode
