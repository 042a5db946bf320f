"""How are many files read when some of them are bad? Each that ends, or holds up, a child costs itself and no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from ..signals.structs import Frozen
from .confinement import USUAL, Limits
from .files import File
from .parsers import Parsers, WorkError
from .work import Opened, Work

A = TypeVar("A")
R = TypeVar("R")

_MAX_BAD = 16
"""Of one batch, unless another number is asked for: so many children are given up for it."""
_MAX_FILES = 256
"""That one child has open."""


class Outcome(Frozen, Generic[R]):
    """What became of one file."""

    number: int
    """Which of the files."""
    opened: Opened | None
    answer: R | None
    reason: str = ""
    """Why there is no answer, and the class of the exception that said so, if one did."""
    error: str = ""
    is_tried: bool = True
    """False: the batch was given up before."""


def each(
    parsers: Parsers,
    work: Work[A, R],
    files: Sequence[File],
    argument: A,
    limits: Limits = USUAL,
    *,
    max_bad: int = _MAX_BAD,
) -> Iterator[Outcome[R]]:
    """Yield the outcome of every file, of work that gives one answer for each that is open; not always in their order.

    After `max_bad` files that cost a child each, the rest is not looked at.
    """
    left = list(enumerate(files))
    bad = 0
    while left and bad < max_bad:
        part, left = left[:_MAX_FILES], left[_MAX_FILES:]
        done, failed, reason = 0, len(part), ""
        with parsers.begin(work, [file for _, file in part], argument, limits=limits) as job:
            try:
                answers = job.answers()
                for (number, _), opened in zip(part, job.open()):
                    if opened.reason:
                        yield Outcome(number, None, None, opened.reason, opened.error)
                    else:
                        yield Outcome(number, opened, next(answers))
                    done += 1
            except WorkError as e:
                # A file that nothing was said of holds its child up; one that was not answered has ended it.
                failed = done if job.is_confined else len(job.opened)
                reason = str(e)
            except StopIteration:
                failed, reason = done, "a child said nothing of it"
        if done < len(part):
            bad += 1
            if failed < len(part):
                yield Outcome(part[failed][0], None, None, reason)
            left = part[done:failed] + part[failed + 1 :] + left
    for number, _ in left:
        yield Outcome(number, None, None, "too many files beside it cannot be read", is_tried=False)
