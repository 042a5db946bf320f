"""An error's name, or its number, and no more numbers than a few however many codes a library makes up."""

from __future__ import annotations

from otel_gpu.discovery.processes import Process
from otel_gpu.receivers.cuda.error_types import OTHER, ErrorTypes
from otel_gpu.signals.metrics import Resource

ONE, ANOTHER = Process(1, Resource(()), 0), Process(2, Resource(()), 0)


def test_an_error_has_its_name_or_its_number() -> None:
    types = ErrorTypes()

    assert types.of_cuda(ONE, 2) == "CUDA_ERROR_OUT_OF_MEMORY"
    assert types.of_hip(ONE, 2) == "hipErrorOutOfMemory"
    assert types.of_cuda(ONE, 1234) == types.of_hip(ONE, 1234) == "1234"


def test_a_code_that_the_kernel_did_not_keep_is_another() -> None:
    types = ErrorTypes()

    assert types.of_cuda(ONE, 0) == types.of_hip(ONE, 0) == OTHER


def test_a_process_that_makes_codes_up_gets_few_names_and_costs_no_other_its_own() -> None:
    types = ErrorTypes()

    said = {types.of_cuda(ONE, code) for code in range(1000, 4000)}

    assert OTHER in said
    assert len(said) < 20
    assert types.of_cuda(ONE, 1000) == "1000"
    assert types.of_cuda(ONE, 700) == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert types.of_cuda(ANOTHER, 3999) == "3999"


def test_what_a_process_said_ends_with_it() -> None:
    types = ErrorTypes()
    for code in range(1000, 2000):
        types.of_cuda(ONE, code)

    types.forget([ONE, ANOTHER])

    assert types.of_cuda(ONE, 1999) == "1999"
