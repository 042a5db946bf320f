"""To which spans do stacks lead that were taken of requests' work? Also while the requests go on."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from ...bpf.abi.requests import REQUEST, REQUEST_AMBIGUOUS
from ...bpf.maps import BpfMap
from ...components.counting.request_spans import WorkOwner
from ...signals.profiles import SpanLink
from ...signals.spans import SpanContext
from .engines import Engines

_MOST_TOLD = 65_536
_NUMBER = struct.Struct("<Q")


class StackOwners:
    """Finds the spans of requests for who has taken stacks of their work. Owned by one thread at a time."""

    def __init__(self, requests: BpfMap, decided: BpfMap, engines: Engines) -> None:
        self._requests, self._decided = requests, decided
        self._engines = engines
        self._told: OrderedDict[int, SpanContext | None] = OrderedDict()
        """Of requests of whose work stacks were taken."""

    def tell(self, number: int, context: SpanContext | None) -> None:
        """Say which span a request has got; None: none that is sent."""
        self._told[number] = context
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)

    def going_on(self, owners: Collection[WorkOwner]) -> dict[int, np.void]:
        """Return the requests that the kernel still has. Any thread may ask."""
        found = {number: self._requests.get(_NUMBER.pack(number)) for number in {owner.request for owner in owners}}
        return {number: np.frombuffer(value, REQUEST)[0] for number, value in found.items() if value is not None}

    def find(
        self, owners: Collection[WorkOwner], going_on: Mapping[int, np.void]
    ) -> Mapping[WorkOwner, SpanLink | None]:
        """Return the spans of owners. Left out are those of tasks that may still turn out to work for others.

        All requests that the kernel had told of when `going_on` was asked must have been taken in.
        """
        return dict(self._found(owners, going_on))

    def _found(
        self, owners: Collection[WorkOwner], going_on: Mapping[int, np.void]
    ) -> Iterator[tuple[WorkOwner, SpanLink | None]]:
        for owner in owners:
            number = owner.request
            is_over = number in self._told
            context = self._told[number] if is_over else None
            request = None if is_over else self._engines.held(number)
            if request is None:
                request = going_on.get(number)
            if not is_over:
                # What nobody knows any more is nobody's.
                is_over = request is None or bool(request["flags"] & REQUEST_AMBIGUOUS)
                if request is not None and not is_over:
                    context = self._engines.name(request)
            if context is None or not context.is_sampled:
                yield owner, None
            elif not owner.holder or self._is_decided(owner):
                yield owner, SpanLink(context.trace_id, context.span_id)
            elif is_over:
                yield owner, None

    def _is_decided(self, owner: WorkOwner) -> bool:
        value = self._decided.get(_NUMBER.pack(owner.holder))
        return value is not None and _NUMBER.unpack(value)[0] == owner.request
