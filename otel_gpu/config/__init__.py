"""What was asked for? One frozen `Config`, made once from the file, the OTEL_* variables and the command line."""

from .model import Config
from .settings import (
    CudaSettings,
    Discovery,
    HealthCheckSettings,
    KernelNamesSettings,
    NvmlSettings,
    Pipeline,
    ProfileSettings,
    SelfSettings,
)

__all__ = [
    "Config",
    "CudaSettings",
    "Discovery",
    "HealthCheckSettings",
    "KernelNamesSettings",
    "NvmlSettings",
    "Pipeline",
    "ProfileSettings",
    "SelfSettings",
]
