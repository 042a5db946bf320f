"""How is Python started so that it runs this package, and nothing that lies about in a directory?

In isolated mode: neither the working directory nor variables such as PYTHONPATH say what is imported. This file is the
program then, and the package is the one that it lies in:

    python -I /…/otel_gpu/runtime/isolated.py [/PLACE ...] MODULE [ARGUMENT ...]

runs `main` of that module. Every PLACE is absolute, and comes behind all others that can be imported from.

Only modules that every Python has loaded by itself are imported here, not even `__future__`: nothing is isolated yet.
"""

import os
import sys

_FILE = os.path.abspath(__file__)
_PACKAGE = os.path.dirname(os.path.dirname(_FILE))
_HOME, _NAME = os.path.split(_PACKAGE)


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of a child that runs `main` of a module; it may import what this process may."""
    return [sys.executable, *_options(), _FILE, *filter(os.path.isabs, sys.path), module, *arguments]


def enter(module: str) -> None:
    """Become the same command in isolated mode; return only in that mode, or where Python has no file of its own."""
    if not sys.flags.isolated and sys.executable:
        line = [sys.executable, *_options(), _FILE, *_places(), module, *sys.argv[1:]]
        _forget_coercion()
        os.execv(sys.executable, line)  # noqa: S606 - without a shell is what is wanted


def _forget_coercion() -> None:
    """Leave the locale as it was found: Python calls a plain one UTF-8 (PEP 538), and a terminal is none the wiser."""
    try:
        with open("/proc/self/environ", "rb") as file:
            began_with = file.read()
    except OSError:
        return
    if "LC_CTYPE" in os.environ and not any(v.startswith(b"LC_CTYPE=") for v in began_with.split(b"\0")):
        del os.environ["LC_CTYPE"]


def _options() -> list[str]:
    """Return what is taken over of how this Python runs; where it imports from is not."""
    taken = ["-I"]
    if sys.flags.dont_write_bytecode:
        taken.append("-B")
    if getattr(sys.stdout, "write_through", False):
        taken.append("-u")
    taken += (f"-W{warning}" for warning in sys.warnoptions)
    named = sys._xoptions.items()  # noqa: SLF001 - documented, as CPython's own
    return taken + [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in named]


def _places() -> list[str]:
    """Return where else the command's dependencies may lie.

    Of an installed package nowhere. A checkout, or an installation for one user, has them where pip puts them for that
    user, or where PYTHONPATH says in full.
    """
    import site

    if _HOME in site.getsitepackages():
        return []
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*user, *filter(os.path.isabs, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _run(places: list[str], module: str) -> int | None:
    from importlib import import_module
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(_NAME, os.path.join(_PACKAGE, "__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    # Whatever else is installed under the package's name.
    sys.modules[_NAME] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
    sys.path += (place for place in (_HOME, *places) if place not in sys.path)
    code: int | None = import_module(module).main()
    return code


if __name__ == "__main__":
    first = next(i for i, argument in enumerate(sys.argv) if i and not os.path.isabs(argument))
    found, sys.argv = sys.argv[1:first], sys.argv[first:]
    sys.exit(_run(found, sys.argv[0]))
