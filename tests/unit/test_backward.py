from __future__ import annotations

import pytest

from otel_gpu.receivers.profiles.backward import BACKWARD, BackwardCallers
from otel_gpu.signals.profiles import Frame, FrameKind, Stack

MAIN, OTHER, ENGINE, POOL = 1, 2, 100, 101


def stack(*names: str) -> Stack:
    return tuple(Frame(FrameKind.NATIVE, name) for name in names)


THREAD = ("torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)", "start_thread", "clone3")
EXECUTE = "torch::autograd::Engine::execute(std::vector<Edge> const&, bool)"
CALLER = stack(EXECUTE, "THPEngine_run_backward", "Tensor.backward", "train", "_start")
LAUNCH = stack("cuLaunchKernel", "gemm", "torch::autograd::Engine::evaluate_function()", *THREAD)


@pytest.fixture
def callers() -> BackwardCallers:
    return BackwardCallers()


def test_an_engines_stack_hangs_below_the_one_that_waits(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)

    assert callers.joined(ENGINE, LAUNCH) == (*LAUNCH, BACKWARD, *CALLER)


def test_it_stands_alone_when_nobody_waits(callers: BackwardCallers) -> None:
    assert callers.joined(ENGINE, LAUNCH) == LAUNCH

    callers.entered(MAIN, CALLER)
    callers.left(MAIN)

    assert callers.joined(ENGINE, LAUNCH) == LAUNCH


def test_it_stands_alone_when_two_wait(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)
    callers.entered(OTHER, CALLER[:-1])
    assert callers.joined(ENGINE, LAUNCH) == LAUNCH

    callers.left(OTHER)

    assert callers.joined(ENGINE, LAUNCH)[len(LAUNCH)] is BACKWARD


def test_other_threads_stand_alone(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)

    assert callers.joined(OTHER, stack("cuLaunchKernel", "train", "_start")) == stack(
        "cuLaunchKernel", "train", "_start"
    )


def test_what_the_caller_does_while_it_waits_is_its_own(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)
    # Nodes without a GPU run on the caller's thread, through the same function as on the engine's.
    inside = (*stack("cuMemcpyDtoH", THREAD[0]), *CALLER)

    assert callers.joined(MAIN, inside) == inside
    assert callers.joined(ENGINE, LAUNCH)[len(LAUNCH)] is BACKWARD


def test_a_backward_inside_a_backward_belongs_to_the_outer_caller(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)
    callers.entered(ENGINE, (*stack(EXECUTE, "checkpoint"), *LAUNCH[2:]))
    recomputed = (*stack("cuLaunchKernel", "recompute", EXECUTE), *LAUNCH[2:])

    assert callers.joined(ENGINE, recomputed) == (*recomputed, BACKWARD, *CALLER)
    assert callers.joined(POOL, LAUNCH) == (*LAUNCH, BACKWARD, *CALLER)


def test_an_exception_that_ended_the_call_is_noticed(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)
    # No return was seen, but this thread does something else now.
    callers.joined(MAIN, stack("cuLaunchKernel", "forward", "_start"))

    assert callers.joined(ENGINE, LAUNCH) == LAUNCH


def test_an_exception_is_noticed_by_the_next_call_too(callers: BackwardCallers) -> None:
    for _ in range(3):
        callers.entered(MAIN, CALLER)
    callers.left(MAIN)

    assert callers.joined(ENGINE, LAUNCH) == LAUNCH


def test_a_call_within_a_call_leaves_the_outer_one_waiting(callers: BackwardCallers) -> None:
    callers.entered(MAIN, CALLER)
    callers.entered(MAIN, (*stack(EXECUTE, "hook"), *CALLER))
    callers.left(MAIN)

    assert callers.joined(ENGINE, LAUNCH) == (*LAUNCH, BACKWARD, *CALLER)


def test_returns_of_unknown_calls_mean_nothing(callers: BackwardCallers) -> None:
    callers.left(MAIN)

    assert callers.joined(ENGINE, LAUNCH) == LAUNCH
