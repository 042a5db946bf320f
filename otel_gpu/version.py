"""Which version of otel-gpu is this?"""

__version__ = "0.1.0"
