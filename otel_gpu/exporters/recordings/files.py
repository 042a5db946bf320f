"""Which format does a recording get? The one its file's suffix says; files are there whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

from ...errors import ConfigError, OtelGpuError
from ...runtime.trusted_paths import Owner, open_directory, replace_file, try_out
from ...signals.profiles import Profile, ProfileType, as_long_as, counterparts, difference, is_by_rate, merge
from .comparison import comparable

Path = str | os.PathLike[str]

SUFFIXES = {
    ".pb.gz": "pprof",
    ".html": "flame graph",
    ".svg": "flame graph as a picture",
    ".folded": "folded stacks",
    ".otlp.json": "OTLP/JSON",
    ".json": "speedscope",
}
"""Every suffix and its format; the longer of two that fit comes first."""
_OF_ONE_TYPE = ".folded"


def check_suffix(path: Path) -> str:
    """Return the suffix that decides the format; ConfigError where there is none."""
    name = os.path.basename(os.fspath(path))
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    known = ", ".join(f"{suffix} ({what})" for suffix, what in SUFFIXES.items())
    raise ConfigError(f"cannot tell which format {name!r} should have; end its name in one of: {known}")


def check_output(path: Path) -> None:
    """Raise ConfigError now, not after a recording of an hour, where a file of this name cannot be written."""
    check_suffix(path)
    name = os.fspath(path)
    where, base = os.path.split(name)
    where = where or "."
    try:
        directory = open_directory(where)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(f"-o {name}: there is no directory {where}; make it, or choose another place") from error
    except OSError as error:
        raise ConfigError(f"-o {name}: {where} cannot be used ({error.strerror}); choose another place") from error
    try:
        _check_replaceable(name, base, directory)
        # What access(2) says of root, quotas and odd file systems is not what happens.
        try_out(directory)
    except OSError as error:
        raise ConfigError(
            f"-o {name}: {where} cannot be written to ({error.strerror}); choose another place"
        ) from error
    finally:
        os.close(directory)


def _check_replaceable(path: str, name: str, directory: int) -> None:
    """Raise ConfigError where a name stands for neither a file nor a link, in whose place a file can be put."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise ConfigError(f"-o {path}: that is a directory; name a file in it")
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise ConfigError(f"-o {path}: that is {'a FIFO' if stat.S_ISFIFO(mode) else 'no file'}; name a file")


def write_profile(profiles: Profile | Sequence[Profile], path: Path) -> tuple[ProfileType, ...]:
    """Write profiles to a file; return the types that its format had no room for.

    Folded stacks hold one type only: that of the first profile.
    """
    merged = merge([profiles] if isinstance(profiles, Profile) else profiles)
    suffix = check_suffix(path)
    chosen = _of_first_type(merged) if suffix == _OF_ONE_TYPE else merged
    replace_with(path, encode(chosen, suffix))
    return _left_out(merged, chosen)


def encode(profiles: Sequence[Profile], suffix: str, *, lines: bool = False) -> bytes:
    """Return what a file with this suffix holds of profiles; of one type only where `holds_types` says so.

    With `lines` the frames of folded stacks have file and line; those of other formats have them anyway.
    """
    if lines and suffix == _OF_ONE_TYPE:
        from .folded import encode_folded

        return encode_folded(profiles, lines=True).encode()
    return _encoder(suffix)(profiles)


def holds_types(suffix: str) -> bool:
    """Tell whether the format of a suffix holds profiles of several types."""
    return suffix != _OF_ONE_TYPE


def write_difference(
    before: Profile | Sequence[Profile], after: Profile | Sequence[Profile], path: Path
) -> tuple[ProfileType, ...]:
    """Write how `after` differs from `before`; return the types that the format had no room for.

    HTML and folded stacks hold both values, pprof and OTLP hold `after` minus `before`. Where one took longer and that
    matters, HTML shows what happened in a second, and elsewhere `before` is what it had been, had it taken as long as `after`.
    """
    old, new = comparable(
        [before] if isinstance(before, Profile) else before, [after] if isinstance(after, Profile) else after
    )
    data = _encode_difference(old, new, check_suffix(path))
    replace_with(path, data)
    return _left_out(new, _of_first_type(new) if check_suffix(path) == _OF_ONE_TYPE else new)


def check_difference(suffix: str) -> None:
    """Raise ConfigError where a format cannot show a difference."""
    if suffix == ".json":
        raise ConfigError("speedscope cannot show a difference; end the file's name in .html, .svg, .folded or .pb.gz")


def encode_difference(before: Sequence[Profile], after: Sequence[Profile], suffix: str) -> bytes:
    """Return what a file with this suffix holds of how `after` differs from `before`; see `write_difference`."""
    return _encode_difference(*comparable(before, after), suffix)


def _encode_difference(old: list[Profile], new: list[Profile], suffix: str) -> bytes:
    check_difference(suffix)
    pairs = [(_of_same_length(*pair), pair[1]) for pair in counterparts(old, new)]
    if suffix == ".html":
        from .html import encode_html_difference

        return encode_html_difference(old, new).encode()
    if suffix == ".svg":
        from .svg import encode_svg_difference

        return encode_svg_difference(old, new).encode()
    if suffix == _OF_ONE_TYPE:
        from .folded import encode_folded_difference

        chosen = _of_first_type(new)
        scaled = [earlier for earlier, _ in pairs if earlier is not None and earlier.type.name == chosen[0].type.name]
        return encode_folded_difference(scaled, chosen).encode()
    return encode([difference(*pair) for pair in pairs], suffix)


def _of_same_length(before: Profile | None, after: Profile | None) -> Profile | None:
    if before is None or after is None or not is_by_rate(before, after):
        return before
    return as_long_as(before, after)


def _of_first_type(profiles: list[Profile]) -> list[Profile]:
    return [p for p in profiles if p.type == profiles[0].type]


def _left_out(profiles: list[Profile], chosen: list[Profile]) -> tuple[ProfileType, ...]:
    kept = {p.type for p in chosen}
    return tuple(dict.fromkeys(p.type for p in profiles if p.type not in kept))


def _encoder(suffix: str) -> Callable[[Sequence[Profile]], bytes]:
    """Return the encoder of a suffix; imported here because each brings its own libraries."""
    if suffix == ".pb.gz":
        from .pprof import encode_pprof

        return encode_pprof
    if suffix == ".otlp.json":
        from ..wire.profiles_protobuf import encode_profiles
        from ..wire.request_json import to_json

        return lambda profiles: (to_json(encode_profiles(profiles)) + "\n").encode()
    if suffix == ".svg":
        from .svg import encode_svg

        return lambda profiles: encode_svg(profiles).encode()
    if suffix == ".html":
        from .html import encode_html

        return lambda profiles: encode_html(profiles).encode()
    if suffix == ".folded":
        from .folded import encode_folded

        return lambda profiles: encode_folded(profiles).encode()
    from .speedscope import encode_speedscope

    return lambda profiles: encode_speedscope(profiles).encode()


def replace_with(path: Path, data: bytes, owner: Owner | None = None) -> None:
    """Put a new file in the place of the old: a full disk or a signal leaves no half of it, a link is not followed.

    The file is given to the `owner` if that user could have put it there.
    """
    name = os.fspath(path)
    where, base = os.path.split(name)
    try:
        directory = open_directory(where or ".")
        try:
            replace_file(base, directory, (data,), mode=0o644, owner=owner)
        finally:
            os.close(directory)
    except OSError as error:
        raise OtelGpuError(f"cannot write {name}: {error.strerror}; choose another place with -o") from error
