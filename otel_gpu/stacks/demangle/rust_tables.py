"""Which letters stand for which types in Rust's names?"""

from __future__ import annotations

BASIC_TYPES = {
    "b": "bool", "c": "char", "e": "str", "u": "()", "z": "!", "p": "_", "v": "...",
    "a": "i8", "s": "i16", "l": "i32", "x": "i64", "n": "i128", "i": "isize",
    "h": "u8", "t": "u16", "m": "u32", "y": "u64", "o": "u128", "j": "usize",
    "f": "f32", "d": "f64",
}  # fmt: skip
UNSIGNED, SIGNED = frozenset("htmyoj"), frozenset("aslxni")
ESCAPES = {"\0": "\\0", "\t": "\\t", "\r": "\\r", "\n": "\\n", "\\": "\\\\"}
