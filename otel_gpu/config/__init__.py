"""What was asked for? One frozen `Config`, made once from the file, the OTEL_* variables and the command line."""

from ..processors.kernel_names.settings import KernelNamesSettings
from ..receivers.cuda.settings import CudaSettings
from ..receivers.inference.settings import InferenceSettings
from ..receivers.nvml.settings import NvmlSettings
from ..receivers.profiles.settings import ProfileSettings
from ..receivers.self.settings import SelfSettings
from .model import Config
from .settings import Discovery, HealthCheckSettings, Pipeline

__all__ = [
    "Config",
    "CudaSettings",
    "Discovery",
    "HealthCheckSettings",
    "InferenceSettings",
    "KernelNamesSettings",
    "NvmlSettings",
    "Pipeline",
    "ProfileSettings",
    "SelfSettings",
]
