"""What can be set of the receiver of pods' GPUs?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubernetesReceiverSettings:
    """`receivers.kubernetes`; where pods are asked for stands in `discovery.kubernetes`."""
