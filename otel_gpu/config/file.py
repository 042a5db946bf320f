"""What does the configuration file say? YAML with line numbers in errors, and `${env:NAME}` expanded."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

import yaml

from ..components.values import expand
from ..errors import ConfigError

_MAX_BYTES = 1 << 20
_MAX_VALUES = 100_000
_MAX_DEPTH = 50
"""Of lists and mappings in each other; the interpreter's own limit is another one in every program."""
_QUOTED = re.compile(r"'[^']{2,}'")


class _TwiceError(yaml.constructor.ConstructorError):
    """A key that is written twice."""


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses a key written twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if isinstance(key_node, yaml.ScalarNode) and key in seen:
                raise _TwiceError(None, None, f"{key!r} stands here twice", key_node.start_mark)
            if isinstance(key_node, yaml.ScalarNode):
                seen.add(key)
        return super().construct_mapping(node, deep)


def read(path: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the file's contents as plain values."""
    try:
        with open(path, "rb") as f:
            data = f.read(_MAX_BYTES + 1)
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read ({e.strerror}); name a readable file with --config") from e
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: more than {_MAX_BYTES} bytes are no configuration")
    return parse(data, path, environ)


def parse(data: bytes, path: str, environ: Mapping[str, str]) -> dict[str, object]:
    """Return the contents of a file that has been read."""
    try:
        document = yaml.load(data, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        problem = str(e.problem or e.context)
        if not isinstance(e, _TwiceError):
            # A value that begins with * or ! is an alias or a tag to YAML, and quoted: it may be a password.
            problem = _QUOTED.sub("'…'", problem)
        raise ConfigError(f"{path}: {place}: {problem}; mend the YAML there, or quote the value") from None
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise ConfigError(f"{path}: not YAML ({type(e).__name__}); mend the file") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected keys and values at the top level")
    return _Expansion(path, environ).mapping(document, path)


class _Expansion:
    """One walk through the file's values, bounded, because YAML's aliases make small files large."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self._path = path
        self._environ = environ
        self._left = _MAX_VALUES

    def mapping(self, mapping: dict[object, object], where: str, depth: int = 0) -> dict[str, object]:
        expanded = {}
        for key, value in mapping.items():
            if not isinstance(key, str):
                raise ConfigError(f"{where}: the key {key!r} is no text; quote it")
            # "file: receivers.cuda", without a dot after the file's name.
            expanded[key] = self._value(value, f"{where}: {key}" if where == self._path else f"{where}.{key}", depth)
        return expanded

    def _value(self, value: object, where: str, depth: int) -> object:
        if depth > _MAX_DEPTH:
            raise ConfigError(f"{self._path}: nested too deep, or an alias holds itself; mend the YAML")
        self._left -= 1
        if self._left < 0:
            raise ConfigError(f"{self._path}: more than {_MAX_VALUES} values are no configuration")
        if isinstance(value, str):
            return expand(value, self._environ, where)
        if isinstance(value, dict):
            return self.mapping(value, where, depth + 1)
        if isinstance(value, list):
            return [self._value(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
        return value
