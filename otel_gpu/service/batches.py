"""How do spans and profiles reach the exporters? In lists: read once, processed and handed over by each pipeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from ..runtime.supervision import Component, Health
from ..signals.structs import Frozen

Item = TypeVar("Item")
_MAX_KEPT = 65_536
"""Items of a pipeline that are kept while they cannot be handed over."""


class Reader(Protocol[Item]):
    """What reads a receiver of a signal."""

    def __call__(self, *, last: bool = False) -> list[Item]: ...


class BatchPipeline(Frozen, Generic[Item]):
    """What some receivers give, on its way through some processors to some exporters."""

    receivers: Collection[str]
    """By id."""
    processors: Sequence[Callable[[list[Item]], list[Item]]]
    """In their order."""
    export: Callable[[list[Item]], None]
    """Hands over to all exporters of the pipeline."""


class Batches(Generic[Item]):
    """All pipelines of one signal. Used by one thread at a time.

    What a receiver, a processor or an exporter raises is noted as its failure, and costs the others nothing; what could not
    be handed over is handed over with what follows.
    """

    def __init__(
        self, component: Component, readers: Mapping[str, Reader[Item]], pipelines: Sequence[BatchPipeline[Item]]
    ) -> None:
        """`readers` read the receivers, by their ids: once, however many pipelines they are in.

        What fails is noted as the component's failure.
        """
        self._readers = readers
        self._pipelines = [(pipeline, deque[Item](maxlen=_MAX_KEPT)) for pipeline in pipelines]
        self._component = component

    def health(self) -> list[Health]:
        """Say whether what was read is handed on."""
        return [self._component.health()]

    def export(self, *, last: bool = False) -> None:
        """Hand what there is since the last export to the exporters; with `last`, all that there is."""
        read: dict[str, list[Item]] = {}
        for name, reader in self._readers.items():
            with self._component:
                read[name] = reader(last=last)
        for pipeline, kept in self._pipelines:
            items = [*kept, *(item for name, found in read.items() if name in pipeline.receivers for item in found)]
            kept.extend(items[len(kept) :])
            for process in pipeline.processors:
                with self._component:
                    items = process(items)
            with self._component:
                pipeline.export(items)
                kept.clear()
