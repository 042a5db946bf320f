"""How does a wheel come to hold what C made? Compiles it first, and names the platform honestly."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
GLIBC = "2_34"  # RHEL 9's and below Ubuntu 22.04's; scripts/bundle_libbpf.sh holds the libraries to it


class BuildWithObjects(build_py):
    """Makes the BPF objects, the bundled libbpf and the library that publishes, unless the tree is used in place (`make setup` made them)."""

    def run(self) -> None:
        if not self.editable_mode:
            subprocess.run(["make", "--no-print-directory", "bpf", "libbpf", "context"], cwd=ROOT, check=True)
        super().run()


class PlatformWheel(bdist_wheel):
    """Any Python 3, one platform: there is machine code inside, but no extension module."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", f"manylinux_{GLIBC}_{platform.machine()}"


class PlatformDistribution(Distribution):
    """Machine code belongs into platlib."""

    def has_ext_modules(self) -> bool:
        return True


setup(distclass=PlatformDistribution, cmdclass={"build_py": BuildWithObjects, "bdist_wheel": PlatformWheel})
