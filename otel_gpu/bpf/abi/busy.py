"""What is known of a device's work for a program.

Generated from ebpf/abi/busy.h by `make generate`; do not edit.
"""

from __future__ import annotations

import numpy as np

BUSY_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("device", "<u4"),
        ("pad", "<u4"),
    ]
)
"""What is known of a device's work for a process. Times are CLOCK_MONOTONIC."""
PERIOD_PARTS = 4
"""Kinds of submissions that are told apart in one busy period."""
PERIOD_PART = np.dtype(
    [
        ("subject", "<u8"),  # see PART_OF
        ("calls", "<u8"),
    ]
)
"""Submissions of one busy period that do the same."""
PERIOD_KIND = np.dtype(
    [
        ("key", BUSY_KEY),
        ("parts", PERIOD_PART, (4,)),  # in the order in which they came first
    ]
)
"""All busy periods of a program on a device that did the same."""
PERIOD_SUM = np.dtype(
    [
        ("periods", "<u8"),
        ("upper_ns", "<u8"),
        ("lower_ns", "<u8"),
    ]
)
BUSY_STREAMS = 8
"""In use at a time; work on more is known to be done only when all of the context's is."""
BUSY_STREAM = np.dtype(
    [
        ("stream", "<u8"),
        ("last", "<u8"),  # number of its latest submission; never the same again, whatever stream is here
        ("last_ns", "<u8"),  # entry of that one, or later; kept only when several threads use the device
        ("foreign_ns", "<u8"),  # of the latest one by another thread than tid
        ("done", "<u8"),  # as last when all of it is known to be done
        ("joined_ns", "<u8"),  # when it was last made to wait for another stream
        ("joined", "<u8", (8,)),  # up to which submission of each it waits
        ("tid", "<u4"),
        ("pad", "<u4"),
    ]
)
BUSY = np.dtype(
    [
        ("first_ns", "<u8"),  # first submission
        ("idle_ns", "<u8"),  # certain gaps since then, but for the present one
        ("lower_ns", "<u8"),  # certainly busy
        ("idle_since_ns", "<u8"),  # the present gap, if submissions == idle_submissions; 0 for none
        ("idle_submissions", "<u8"),
        ("submissions", "<u8"),
        ("period_first", "<u8"),  # of the present busy period, or the last: submissions before it
        ("period_opened_ns", "<u8"),
        ("period_lower_ns", "<u8"),  # lower_ns before it
        ("sampled", "<u8"),  # the latest submission whose stack was taken, or a little later
        ("noted", "<u8"),  # submissions of the present busy period that are in its kind's parts
        ("noting", "<u8"),  # somebody is at them
        ("kind", PERIOD_KIND),  # what the present busy period does, as far as it is noted
        ("opened_ns", "<u8"),  # end of the last gap
        ("covered_ns", "<u8"),  # lower_ns has what lies before
        ("clean_ns", "<u8"),  # nothing submitted since waits for the host or other devices; ~0: something does
        ("seen_ns", "<u8"),  # nothing was submitted since, while the number is still:
        ("seen_submissions", "<u8"),
        ("untracked_ns", "<u8"),  # latest submission to a stream that found no place; 0 when it is done
        ("context", "<u8"),
        ("open", "<u4"),  # 0: the next submission ends a gap
        ("mixed", "<u4"),  # several contexts use the device
        ("tid", "<u4"),  # the only thread that uses the device; 0: there are several
        ("pad", "<u4"),
        ("streams", BUSY_STREAM, (8,)),
    ]
)
