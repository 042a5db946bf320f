"""Requests, and the GPU's work for them.

Generated from ebpf/abi/requests.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np

DIRECTIONS = 3
"""Of copies: COPY_HOST_TO_DEVICE and what follows it."""
GPU_TOTALS = np.dtype(
    [
        ("launches", "<u8"),
        ("graph_launches", "<u8"),
        ("copies", "<u8", (3,)),
        ("copied_bytes", "<u8", (3,)),
        ("synchronize_ns", "<u8"),
    ]
)
"""What a device was asked to do."""


class NoOwner(enum.IntEnum):
    """Why work is no request's."""

    NOT_FOLLOWED = 0
    """The agent does not follow its program's requests, or not yet."""
    NO_REQUEST = 1
    """Neither thread nor context serves a request."""
    IDLE = 2
    """The context's connection has no request now."""
    AMBIGUOUS = 3
    """Its connection's requests cannot be told apart: pipelining, doubtful lengths."""
    OUTLIVED = 4
    """Its request was over."""
    SHARED = 5
    """The context serves several connections, or its program's threads do."""
    UNKNOWN_CONTEXT = 6
    """The context was there before it could be seen."""
    UNDECIDED = 7
    """A task that a request began outlived it: it may have worked for others."""
    FULL = 8
    """There was no room to remember the request, or whose the work is."""


NO_OWNER_COUNT = 9
NO_OWNER_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("reason", "<u4"),  # enum no_owner
        ("pad", "<u4"),
    ]
)
"""Work of a program that is no request's, by the reason."""
FOLLOWED = np.dtype(
    [
        ("exec_id", "<u4"),
        ("thread_state", "<u4"),  # where its pointer is; THREAD_STATE_NONE without a CPython
        ("thread_offset", "<i8"),  # as in struct unwind_process
        ("thread_module", "<u8"),
        ("runtime", "<u8"),  # _PyRuntime, from here
        ("runtime_end", "<u8"),  # to here
        ("context_offset", "<u4"),  # of the current contextvars.Context in a thread state
        ("threads_have_contexts", "u1"),  # from 3.14 on threads run in a context of their own
        # without a CPython: threads hand requests to each other where nobody sees it; set here too
        ("has_loops", "u1"),
        # what it did for the GPU before it was followed is not known: until it was quiet once, as is seen here
        ("was_there", "u1"),
        ("pad", "u1"),
        # threads that began before (CLOCK_BOOTTIME) may be event loops without having been seen as such:
        ("since_boot_ns", "<u8"),
        ("trusted_ns", "<u8"),  # what they read before (CLOCK_MONOTONIC) is not charged to them
        ("has_learned", "<u4"),  # set here: the context that uvloop runs callbacks in is known,
        ("learns_anew", "<u4"),  # or there is one that is not
        ("worked_ns", "<u8"),  # if it was there, when it did something last that is no request's; set here
        ("grpc", "<u8"),  # gRPC's core for Python, from here; 0: it has none
        ("grpc_end", "<u8"),  # to here
        ("python", "<u8"),  # the code of its CPython, from here
        ("python_end", "<u8"),  # to here
        # Where a CPython has its frames, of a program whose rclpy runs callbacks: offsets.
        ("state_frame", "<u2"),  # of the current frame in a thread state; 0: it is in the cframe, which is there:
        ("state_cframe", "<u2"),
        ("cframe_frame", "<u2"),
        ("frame_previous", "<u2"),  # 0: frames are not looked at
        ("frame_code", "<u2"),
        ("frame_owner", "<u2"),  # a byte that says whether it is a generator's; 0: a pointer to that does:
        ("frame_generator", "<u2"),  # here
        ("pad_frames", "<u2"),
    ]
)
"""A program whose requests are followed, and where its CPython keeps what its threads are at. Written by the agent."""
SPAN_TYPES = 3
"""Classes of spans of one program that are known."""
SPAN_TYPE = np.dtype(
    [
        ("type", "<u8"),  # whose objects are spans; 0: none
        ("keys", "<u8"),  # of its objects' attributes, from 3.11 on
        ("place", "<i8"),  # of an object: of its dict up to 3.10, of its values from 3.13 on
    ]
)
"""A class of opentelemetry-python's spans."""
SPAN_NAME = np.dtype(
    [
        ("text", "<u8"),  # a str that stands as a key in dicts
        ("hash", "<u8"),
    ]
)
"""A name that opentelemetry-python uses."""
SPAN_SOURCE = np.dtype(
    [
        ("exec_id", "<u4"),
        ("published", "<u4"),  # otel_thread_ctx_v1 of OTEP 4947: THREAD_STATE_* says how to find it
        ("published_offset", "<i8"),
        ("published_module", "<u8"),
        # CPython, with opentelemetry-python:
        ("minor", "<u4"),  # 0: there is none
        ("variable_hash", "<u4"),  # of the ContextVar, as a HAMT has it
        ("variable", "<u8"),
        ("key", SPAN_NAME),  # under which a context has its span; its hash is looked up when it is needed
        ("context", SPAN_NAME),  # attributes of spans
        ("kind", SPAN_NAME),
        ("parent", SPAN_NAME),
        ("start", SPAN_NAME),
        ("server", "<u8"),  # SpanKind.SERVER
        ("true_object", "<u8"),  # True
        ("tuple_items", "<u8"),  # offset in a tuple
        ("types", SPAN_TYPE, (3,)),
    ]
)
"""Where a program says which span of its own tracing is current in a thread. Written by the agent."""


class SpanSays(enum.IntEnum):
    """Who said it."""

    NOBODY = 0
    PUBLISHED = 1
    """The program, by OTEP 4947."""
    PYTHON = 2
    """The context variable of opentelemetry-python."""
    OBI = 3
    """OpenTelemetry eBPF Instrumentation, in its map."""


SPAN_REMOTE = 1
"""It is the caller's: the program made none itself."""
SPAN_SERVER = 2
"""Of kind SERVER."""
SPAN_HAS_PARENT = 4
"""`parent` says whose child it is."""
SPAN_PARENT_AFAR = 8
"""Which is the caller's."""
SPAN_KNOWS_FLAGS = 16
"""trace_flags are known."""
OWN_SPAN = np.dtype(
    [
        ("trace", "<u8", (2,)),
        ("span", "<u8"),
        ("parent", "<u8"),
        ("began_ns", "<u8"),  # since the epoch; 0: not known
        ("says", "u1"),  # enum span_says; 0: there is none
        ("flags", "u1"),
        ("trace_flags", "u1"),
        ("pad", "u1", (5,)),
    ]
)
"""A span that a program made itself. Ids are as on the wire."""


class Ending(enum.IntEnum):
    """How a request ended."""

    NONE = 0
    COMPLETE = 1
    CLOSED = 2
    """The connection, before the response was whole."""
    LOST = 3
    """Bytes were not seen, or not understood; of a callback: its end was not seen."""
    THROWN = 4
    """An exception left the callback."""


class WorkKind(enum.IntEnum):
    """What a piece of work is."""

    BATCH = 1
    """First launch to the end that the host saw."""
    WAIT = 2
    """A blocking call."""


GPU_WORK = np.dtype(
    [
        ("began_ns", "<u8"),
        ("ended_ns", "<u8"),
        ("bytes", "<u8"),  # of a copy that was waited for
        ("launches", "<u4"),  # of a batch
        ("holder", "<u4"),  # whose end decides whether it was the request's; 0: it was; ~0: several
        ("function", "<u2"),  # of a wait: row of the hook table
        ("kind", "u1"),  # enum work_kind
        ("direction", "u1"),  # of a copy: enum copy_kind
        ("graph_launches", "<u4"),
        ("span", "<u8"),  # of the program's own, whose it was; 0: none, or several
    ]
)
"""One piece of a request's work."""
REQUEST_WORKS = 16
REQUEST_HEAD = 1024
"""Bytes kept of its head."""
RESPONSE_HEAD = 256
REQUEST_AMBIGUOUS = 1
"""The connection's requests could not be told apart: whose its work was is not known."""
REQUEST_GONE = 2
"""Its connection is closed."""
REQUEST_CLOSED = 4
"""Nothing is added any more."""
REQUEST_ENCRYPTED = 8
"""It came over TLS."""
REQUEST_HTTP2 = 16
"""It is a stream, whose header blocks are told apart from it: see abi/frames.h."""
REQUEST_CALLBACK = 32
"""It is a callback that an executor ran."""


class CallbackKind(enum.IntEnum):
    """What a callback is for: the status of such a request.

    In the order of rclcpp::AnyExecutable.
    """

    ANY = 0
    """Whatever is due."""
    SUBSCRIPTION = 1
    TIMER = 2
    SERVICE = 3
    CLIENT = 4
    WAITABLE = 5


CALLBACK_KINDS = 6
CALLBACK_NAME = 256
"""Bytes of the head: the topic's or the service's name."""
CALLBACK_MESSAGE = 56
"""Bytes of struct rmw_message_info_t or rmw_service_info_t that matter."""
CALLBACK_TOLD = np.dtype(
    [
        ("implementation", "<u8"),  # whose entity it is: where the middleware's name lies in the program's memory
        ("message", "u1", (56,)),
    ]
)
"""What is told of a callback's message: the response of such a request."""
REQUEST = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("id", "<u8"),
        ("connection", "<u8"),  # its number
        ("began_ns", "<u8"),
        ("ended_ns", "<u8"),  # 0: it goes on
        ("first_byte_ns", "<u8"),  # of the response, interim ones left out
        ("body_first_ns", "<u8"),  # first and last piece of its body
        ("body_last_ns", "<u8"),
        ("request_body", "<u8"),
        ("response_body", "<u8"),
        ("batch_ns", "<u8"),  # first launch that was not waited for yet
        ("batch_span", "<u8"),  # as in struct gpu_work
        ("server_span", "<u8"),  # the program's own of kind SERVER, in the same trace as:
        ("own", OWN_SPAN),  # the first of the program's own that was current
        ("own_met", "<u8"),  # 1: somebody writes it, or has
        ("kind_known_of", "<u8"),  # of which span the kind was looked at last
        ("owned", GPU_TOTALS),
        ("held", GPU_TOTALS),  # by contexts whose end decides whether it was for this request
        ("batch_launches", "<u4"),
        ("batch_graphs", "<u4"),
        ("batch_holder", "<u4"),
        ("tid", "<u4"),  # who read it
        ("pieces", "<u4"),
        ("works_left_out", "<u4"),
        ("stacks", "<u8"),  # 0: none was taken of its work
        ("works", "<u2"),
        ("status", "<u2"),
        ("head_size", "<u2"),
        ("response_size", "<u2"),
        ("ending", "u1"),  # enum ending
        ("flags", "u1"),
        ("address_family", "<u2"),
        ("local_port", "<u2"),
        ("peer_port", "<u2"),
        ("local", "u1", (16,)),
        ("peer", "u1", (16,)),
        ("work", GPU_WORK, (16,)),
        ("response", "S256"),
        ("head", "S1024"),  # last: what of it is used is sent
    ]
)
"""A request that a program serves. Times are CLOCK_MONOTONIC."""
