"""What do tests look at inside an agent that it shows nobody else?"""

from __future__ import annotations

from otel_gpu import Agent
from otel_gpu.receivers.cuda.receiver import CudaReceiver


def cuda_of(agent: Agent) -> CudaReceiver:
    """Return the receiver that counts."""
    receiver = agent._observation.find(CudaReceiver)
    assert receiver is not None
    return receiver
