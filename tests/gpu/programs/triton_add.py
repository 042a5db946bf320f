"""What does a Triton kernel make of the driver? Launches of one name, whose number is known."""

from __future__ import annotations

from collections.abc import Mapping

from protocol import Phase, serve

ELEMENTS, LAUNCHES, BLOCK = 1 << 16, 40, 1024


def _prepare() -> list[Phase]:
    import torch
    from triton_kernel import gpu_check_add

    left, right = torch.ones(ELEMENTS, device="cuda"), torch.ones(ELEMENTS, device="cuda")
    result = torch.empty_like(left)

    def add() -> Mapping[str, object]:
        for _ in range(LAUNCHES):
            gpu_check_add[(ELEMENTS // BLOCK,)](left, right, result, ELEMENTS, block=BLOCK)
        torch.cuda.synchronize()
        return {"launches": {"gpu_check_add": LAUNCHES}, "right": bool((result == 2).all().item())}

    return [add, add]


serve(_prepare)
