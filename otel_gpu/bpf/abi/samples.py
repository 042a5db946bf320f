"""What stacks are taken for, and what is kept of the threads they are taken of.

Generated from ebpf/abi/samples.h by `make generate`; do not edit.
"""

from __future__ import annotations

import enum

import numpy as np


class SampleType(enum.IntEnum):
    """What a stack was taken for, and what a sample then says."""

    LAUNCH = 1
    """Value: launches; subject: the kernel's handle."""
    WAIT = 2
    """Value: ns; subject: row of the hook table."""
    COPY = 3
    """Value: bytes; subject: row of the hook table."""
    ALLOC = 4
    """Value: bytes; subject: the address."""
    FREE = 5
    """Subject: the address; no stack."""
    CPU = 6
    """Value: 1; subject: 1 when the kernel ran for it."""
    OFF_CPU = 7
    """Value: ns."""
    BACKWARD = 8
    """The thread begins to wait for PyTorch's autograd engine."""
    BACKWARD_DONE = 9
    """It has returned from there; no stack."""
    TENSOR = 10
    """Value: bytes; subject: the group of tensors that the stack stands for."""
    SUBMISSION = 11
    """Value: WORK_AT; subject: the kernel's handle, 0 for what is none."""
    THREAD = 12
    """Value: enum thread_activity; what the agent asked for."""


SAMPLE_TYPES = 13


class ThreadActivity(enum.IntEnum):
    """What a thread did when it was looked at."""

    BLOCKED = 1
    READY = 2
    """To run, without a CPU."""
    RUNNING = 3
    """Its registers are on a CPU: it comes without a stack."""


class Submitted(enum.IntEnum):
    """Who is asked to look at work that was submitted; what is submitted says where a kernel's handle is."""

    FIRST = 0
    """Argument 0 is the handle."""
    SECOND = 1
    """Argument 1 is."""
    OTHER = 2
    """It is no kernel."""


SUBMITTED_COUNT = 3
WORK_DEVICE_SHIFT = 56
"""Which of its process's submissions to which device: the device is above these bits."""
ENTERED = np.dtype(
    [
        ("start_ns", "<u8"),
        ("size", "<u8"),
        ("address", "<u8"),  # of calls that wait: the stack pointer at their entry
        ("pitch_at", "<u8"),  # likewise the frame pointer
        ("function", "<u4"),  # its number and 1; 0: there is no call here
        ("waits", "<u4"),
    ]
)
"""A call that goes on, and what is known of it."""
SAMPLER = np.dtype(
    [
        ("window_start_ns", "<u8"),
        ("value", "<u8"),  # since the last stack
        ("calls", "<u4"),  # since the last stack
        ("in_window", "<u4"),  # calls in this window
        ("period", "<u4"),  # every how many calls a stack is taken, on average
        ("countdown", "<u4"),
        ("group", "<u8"),  # of tensors; 0 until the next is made
        ("recording", "<u4"),  # to which value and calls belong
        ("device", "<u4"),  # of submissions
    ]
)
"""What a thread did since its last stack of one type."""
SAMPLED_CALLS = 4
"""A power of two; functions that may call each other."""
SAMPLED_DEVICES = 4
"""A power of two; that a thread may use in turn without a loss of detail."""
SAMPLED_TYPES = 6
"""See sampler_at()."""
SAMPLED_THREAD = np.dtype(
    [
        ("born_ns", "<u8"),
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("tid", "<u4"),
        ("pad", "<u4"),
        ("entered", ENTERED, (4,)),
        ("samplers", SAMPLER, (6,)),
        ("submissions", SAMPLER, (4,)),
    ]
)
"""A thread of which stacks are taken."""
REMAINDER_KEY = np.dtype(
    [
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("type", "<u4"),  # enum sample_type
        ("device", "<u4"),
    ]
)
"""What no stack stands for, of threads that have ended, or which found no room; by program."""
REMAINDER = np.dtype(
    [
        ("value", "<u8"),
        ("calls", "<u8"),
        ("recording", "<u8"),
    ]
)
ASKED = np.dtype(
    [
        ("tgid", "<u4"),  # in the agent's pid namespace
        ("pad", "<u4"),
        ("min_ns", "<u8"),  # shorter waits off the CPU are not told
    ]
)
"""Whom the programs of profile/blocked.bpf.c are to look at."""
TENSOR_GROUP = np.dtype(
    [
        ("bytes", "<u8"),  # that live
        ("tgid", "<u4"),
        ("exec_id", "<u4"),
        ("closed", "<u4"),  # its stack is taken: no tensor joins it any more
        ("pad", "<u4"),
    ]
)
"""Tensors made by one thread from one stack on to the next: they are charged to the latter."""
