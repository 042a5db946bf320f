"""Where does opentelemetry-python keep the span that is current? In a contextvars.ContextVar, in every context its own.

The variable's value is a dict (`opentelemetry.context.Context`), which has the span under a key that is made when the package
is imported; a span has its ids in `_context`, a tuple. What is found here is the same for the life of the process, and is
all that the kernel needs to read the ids in a thread (ebpf/inference/own_spans.bpf.h).
"""

from __future__ import annotations

from ...sandbox.memory import MemoryFault
from ...signals.structs import Frozen
from .objects import Name, PythonObjects

_VARIABLE_NAME, _VARIABLE_HASH = 16, 56
_CALLED = "current_context"
_KEY = "current-span"
_MAX_TYPES = 3


class SpanType(Frozen):
    """A class whose objects are spans."""

    type: int
    keys: int
    place: int


class CurrentSpan(Frozen):
    """What leads from a thread's context to the ids of its current span."""

    minor: int
    variable: int
    variable_hash: int
    """As the context's HAMT has it: 32 bits."""
    key: Name
    context: Name
    kind: Name | None
    parent: Name | None
    start: Name | None
    server: int
    """`SpanKind.SERVER`."""
    true_object: int
    tuple_items: int
    types: tuple[SpanType, ...]

    @property
    def has_sdk(self) -> bool:
        """Whether spans are made: with the API alone there are none."""
        return self.kind is not None


def current_span(objects: PythonObjects, modules: int) -> CurrentSpan | None:
    """Return where it is; None where the program has not imported OpenTelemetry. MemoryFault where it cannot be told."""
    loaded = objects.named(
        modules,
        "opentelemetry.context",
        "opentelemetry.trace",
        "opentelemetry.trace.propagation",
        "opentelemetry.trace.span",
        "opentelemetry.sdk.trace",
    )
    names = {name: objects.module_names(module) for name, module in loaded.items()}
    if not {"opentelemetry.context", "opentelemetry.trace.propagation", "opentelemetry.trace.span"} <= names.keys():
        return None
    variable = _variable(objects, names["opentelemetry.context"])
    key = objects.named(names["opentelemetry.trace.propagation"], "_SPAN_KEY").get("_SPAN_KEY", 0)
    if not key or not objects.text(key).startswith(_KEY):
        raise MemoryFault("the key of the current span was not found")
    classes = list(objects.named(names["opentelemetry.trace.span"], "NonRecordingSpan").values())
    attributes: dict[str, Name] = {}
    if sdk := names.get("opentelemetry.sdk.trace"):
        recorded = objects.named(sdk, "_Span", "Span", "ReadableSpan")
        attributes = _attributes(objects, recorded.pop("ReadableSpan", 0))
        classes = [*recorded.values(), *classes]
    if "_context" not in attributes:
        attributes |= _attributes(objects, classes[-1]) if classes else {}
    if "_context" not in attributes:
        raise MemoryFault("it is not known where spans have their ids")
    types = []
    for type_ in classes[:_MAX_TYPES]:
        place = objects.values_place(type_)
        if place is not None:
            types.append(SpanType(type_, objects.shared_keys(type_) if objects.minor >= 11 else 0, place))
    return CurrentSpan(
        objects.minor,
        variable,
        _hamt_hash(objects.word(variable + _VARIABLE_HASH)),
        Name(key, 0),  # which has no hash before the first span: the kernel looks
        attributes["_context"],
        attributes.get("_kind"),
        attributes.get("_parent"),
        attributes.get("_start_time"),
        _server_kind(objects, names.get("opentelemetry.trace", 0)),
        objects.symbols.true_object,
        objects.tuple_items,
        tuple(types),
    )


def _variable(objects: PythonObjects, names: int) -> int:
    runtime = objects.named(names, "_RUNTIME_CONTEXT").get("_RUNTIME_CONTEXT", 0)
    if not runtime:
        raise MemoryFault("OpenTelemetry has no context yet")
    variable = objects.attribute(runtime, "_current_context")
    if objects.type_of(variable) != objects.symbols.context_variable_type:
        raise MemoryFault("OpenTelemetry keeps its context elsewhere")
    if objects.text(objects.word(variable + _VARIABLE_NAME)) != _CALLED:
        raise MemoryFault("OpenTelemetry's context has another name")
    return variable


def _hamt_hash(value: int) -> int:
    """Return what `hamt_hash` (Python/hamt.c) makes of an object's hash."""
    folded = (value & 0xFFFFFFFF) ^ (value >> 32)
    return 0xFFFFFFFE if folded == 0xFFFFFFFF else folded


def _attributes(objects: PythonObjects, type_: int) -> dict[str, Name]:
    """Return the names by which a class's `__init__` keeps what is looked for."""
    if not type_:
        return {}
    function = objects.named(objects.class_names(type_), "__init__").get("__init__", 0)
    found = {}
    for text, address in objects.names_used(function) if function else ():
        if text in ("_context", "_kind", "_parent", "_start_time"):
            found[text] = objects.name(address)
    return found


def _server_kind(objects: PythonObjects, names: int) -> int:
    kind = objects.named(names, "SpanKind").get("SpanKind", 0) if names else 0
    members = objects.named(objects.class_names(kind), "_member_map_").get("_member_map_", 0) if kind else 0
    return objects.named(members, "SERVER").get("SERVER", 0) if members else 0
