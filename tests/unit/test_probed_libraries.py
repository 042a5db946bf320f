from __future__ import annotations

from typing import cast

from otel_gpu.discovery.libraries import Library, LibraryKind
from otel_gpu.probes.attach import Linker
from otel_gpu.probes.libraries import ProbedLibraries
from otel_gpu.probes.planning import PlanRequest
from otel_gpu.sandbox.files import FileId, ProcessFile
from otel_gpu.sandbox.parsers import Parsers


def test_what_is_used_no_more_while_it_waits_its_turn_is_not_probed() -> None:
    waiting = [Library(FileId(1, n, 0), LibraryKind.DRIVER, f"/own-{n}/libcuda.so.1", None) for n in range(3)]
    asked = []

    def nothing(library: Library) -> None:
        # The second one's last program ends while the first one has its turn.
        asked.append(library.path)
        probed.detach(waiting[1])

    # Nothing is to be placed, so that neither is used.
    probed = ProbedLibraries(cast("Parsers", None), cast("Linker", None), nothing)
    for library in waiting:
        probed._postpone(library, ProcessFile(1, library.path), 0)

    probed.retry()

    assert asked == [waiting[0].path, waiting[2].path]


def test_nothing_is_planned_that_would_not_be_placed_any_more() -> None:
    library = Library(FileId(1, 1, 0), LibraryKind.DRIVER, "/own/libcuda.so.1", None)
    # Nobody could plan anything.
    probed = ProbedLibraries(cast("Parsers", None), cast("Linker", None), lambda _: cast("PlanRequest", object()))

    probed.place_no_more()

    assert probed.attach(library, ProcessFile(1, library.path)) is None
