"""Which parsers are fuzzed?"""

from __future__ import annotations

from . import (
    elf_targets,
    memory_targets,
    pod_targets,
    request_targets,
    text_targets,
    verbs_targets,
    view_targets,
    wire_targets,
)
from .target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (
        elf_targets,
        memory_targets,
        pod_targets,
        request_targets,
        text_targets,
        verbs_targets,
        view_targets,
        wire_targets,
    )
    for target in module.TARGETS
}
