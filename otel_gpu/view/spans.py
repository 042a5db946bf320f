"""Which requests were there, and what belongs to them? Spans, in a database in memory, by trace and by what links to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from ..signals.metrics import Attributes
from ..signals.telemetry_spans import GPU_STEP, NCCL_COLLECTIVE
from .attributes import AttributeReader
from .losses import Losses, Reason
from .resources import Resources
from .settings import Bounds
from .timelines import NS

_TABLES = """
CREATE TABLE spans (id INTEGER PRIMARY KEY, trace BLOB, span BLOB, parent BLOB, resource INTEGER, name TEXT, kind INTEGER,
                    start INTEGER, duration INTEGER, status INTEGER, said BLOB, size INTEGER, first INTEGER);
CREATE INDEX of_trace ON spans (trace);
CREATE INDEX of_first ON spans (start) WHERE first;
CREATE TABLE links (span INTEGER, trace BLOB);
CREATE INDEX to_trace ON links (trace);
CREATE INDEX of_span ON links (span);
"""
_SERVER = 2
_NO_REQUESTS = frozenset({GPU_STEP.name, NCCL_COLLECTIVE.name})
"""What has no parent and is no request: it is shown with those that it links to."""
_MAX_OF_TRACE = 1_000
_SPAN_BYTES = 120
"""Roughly what a span takes beside its name, attributes and links."""
_LINK_BYTES = 60
"""Roughly what a link takes in its table and that table's indices."""
_INT64 = (1 << 63) - 1
_ORDERS = {"start": "start DESC", "duration": "duration DESC"}


class StoredSpan(NamedTuple):
    """One span as it is kept."""

    trace: str
    span: str
    parent: str
    resource: int
    name: str
    kind: int
    start_ns: int
    duration_ns: int
    status: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]


class SpanStore:
    """All spans. Guarded by whoever owns it."""

    def __init__(self, bounds: Bounds, losses: Losses, keep_s: float) -> None:
        self._bounds, self._losses = bounds, losses
        self._keep_ns = int(keep_s * NS)
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._db.executescript(f"PRAGMA journal_mode=OFF; PRAGMA cache_size=-1000; PRAGMA temp_store=MEMORY; {_TABLES}")
        self._count = self._bytes = 0
        self.spans = 0
        """All that were ever taken."""

    def __len__(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """How many are kept at the most."""
        return self._bounds.spans

    def take(self, request: Any, resources: Resources, reader: AttributeReader, now_ns: int) -> int:
        """Keep a request's spans; return how many were not."""
        rejected = 0
        rows, links = [], []
        for of_resource in request.resource_spans:
            count = sum(len(scope.spans) for scope in of_resource.scope_spans)
            if not count:
                continue
            entry = resources.entry(reader.read(of_resource.resource.attributes), now_ns, count)
            if entry is None:
                rejected += count
                continue
            for scope in of_resource.scope_spans:
                for span in scope.spans:
                    if len(span.trace_id) != 16 or len(span.span_id) != 8:
                        self._losses.add(Reason.SPAN_IDS)
                        rejected += 1
                        continue
                    self.spans += 1
                    found = self._links(span.links)
                    said = _packed(reader.read(span.attributes), found)
                    name = reader.text(span.name)
                    size = len(said) + len(name.encode()) + len(found) * _LINK_BYTES + _SPAN_BYTES
                    start = min(span.start_time_unix_nano, _INT64)
                    duration = min(max(0, span.end_time_unix_nano - start), _INT64)
                    first = int(span.kind == _SERVER or not (span.parent_span_id or span.name in _NO_REQUESTS))
                    parent = span.parent_span_id if len(span.parent_span_id) == 8 else b""
                    head = (self.spans, span.trace_id, span.span_id, parent, entry.number, name)
                    rows.append((*head, span.kind, start, duration, span.status.code, said, size, first))
                    links += [(self.spans, bytes.fromhex(trace)) for trace in {trace for trace, _ in found}]
                    self._bytes += size
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO spans VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
        self._db.executemany("INSERT INTO links VALUES (?,?)", links)
        self._db.execute("COMMIT")
        self._count += len(rows)
        self._make_room()
        return rejected

    def sweep(self, now_ns: int) -> None:
        """Forget spans that ended before what is kept."""
        old = self._db.execute(
            "SELECT id FROM spans WHERE id <= (SELECT min(id) + 5000 FROM spans) AND start + duration < ? ORDER BY id",
            (now_ns - self._keep_ns,),
        ).fetchall()
        self._forget([row[0] for row in old])

    def firsts(
        self, resources: frozenset[int] | None, text: str, order: str, limit: int, offset: int = 0
    ) -> tuple[int, list[StoredSpan]]:
        """Return requests, or the first spans of traces: how many there are, and some, the newest or the longest first."""
        where, values = "first", []
        if resources is not None:
            where += f" AND resource IN ({','.join(str(int(n)) for n in resources)})"
        if text:
            where += " AND instr(lower(name), ?)"
            values.append(text.lower())
        (count,) = self._db.execute(f"SELECT count(*) FROM spans WHERE {where}", values).fetchone()  # noqa: S608
        sql = f"SELECT * FROM spans WHERE {where} ORDER BY {_ORDERS.get(order, _ORDERS['start'])} LIMIT ? OFFSET ?"  # noqa: S608
        return count, [_stored(row) for row in self._db.execute(sql, (*values, limit, offset))]

    def trace(self, trace_id: str) -> tuple[list[StoredSpan], bool]:
        """Return the spans of a trace, with those of others that link to it, and whether these are all."""
        trace = bytes.fromhex(trace_id)
        rows = self._db.execute(
            "SELECT * FROM spans WHERE trace = ? ORDER BY start LIMIT ?", (trace, _MAX_OF_TRACE + 1)
        ).fetchall()
        linked = self._db.execute(
            "SELECT * FROM spans WHERE id IN (SELECT span FROM links WHERE trace = ?) AND trace <> ? ORDER BY start LIMIT ?",
            (trace, trace, _MAX_OF_TRACE + 1),
        ).fetchall()
        is_whole = max(len(rows), len(linked)) <= _MAX_OF_TRACE
        return [_stored(row) for row in [*rows[:_MAX_OF_TRACE], *linked[:_MAX_OF_TRACE]]], is_whole

    def resources(self) -> set[int]:
        """Return the numbers of the resources that have spans."""
        return {row[0] for row in self._db.execute("SELECT DISTINCT resource FROM spans")}

    def _links(self, links: Any) -> list[tuple[str, str]]:
        found = [(link.trace_id.hex(), link.span_id.hex()) for link in links[: self._bounds.links]]
        sound = [(trace, span) for trace, span in found if len(trace) == 32 and len(span) == 16]
        self._losses.add(Reason.LINKS, len(links) - len(sound))
        return sound

    def _make_room(self) -> None:
        while self._count > self._bounds.spans or self._bytes > self._bounds.span_bytes:
            # Some more than is needed, so that not every request has to.
            some = max(self._count - self._bounds.spans, self._bounds.spans // 50, 1)
            rows = self._db.execute("SELECT id FROM spans ORDER BY id LIMIT ?", (some,)).fetchall()
            self._losses.add(Reason.SPANS, len(rows))
            self._forget([row[0] for row in rows])
            if not rows:
                return

    def _forget(self, ids: Iterable[int]) -> None:
        gone = [(number,) for number in ids]
        if not gone:
            return
        self._db.execute("BEGIN")
        for start in range(0, len(gone), 500):
            some = ",".join(str(number) for (number,) in gone[start : start + 500])
            (size,) = self._db.execute(f"SELECT total(size) FROM spans WHERE id IN ({some})").fetchone()  # noqa: S608
            self._bytes -= int(size)
        self._db.executemany("DELETE FROM spans WHERE id = ?", gone)
        self._db.executemany("DELETE FROM links WHERE span = ?", gone)
        self._db.execute("COMMIT")
        self._count -= len(gone)


def _packed(attributes: Attributes, links: list[tuple[str, str]]) -> bytes:
    said: list[Any] = [dict(attributes)]
    if links:
        said.append([bytes.fromhex(trace + span) for trace, span in links])
    return msgspec.msgpack.encode(said)


def _stored(row: tuple[Any, ...]) -> StoredSpan:
    _, trace, span, parent, resource, name, kind, start, duration, status, said, _, _ = row
    attributes, *links = msgspec.msgpack.decode(said)
    pairs = [(link[:16].hex(), link[16:].hex()) for link in (links[0] if links else ())]
    return StoredSpan(
        trace.hex(), span.hex(), parent.hex(), resource, name, kind, start, duration, status, attributes, pairs
    )
