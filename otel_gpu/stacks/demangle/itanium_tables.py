"""Which codes does the Itanium C++ ABI use for types, operators and the standard library's names?"""

from __future__ import annotations

BUILTIN_TYPES = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "z": "...",
}

D_TYPES = {
    "Dd": "decimal64",
    "De": "decimal128",
    "Df": "decimal32",
    "Dh": "half",
    "Di": "char32_t",
    "Ds": "char16_t",
    "Du": "char8_t",
    "Da": "auto",
    "Dc": "decltype(auto)",
    "Dn": "std::nullptr_t",
}

INTEGER_SUFFIXES = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}

STD_SUBSTITUTIONS = {
    "a": "std::allocator",
    "b": "std::basic_string",
    "s": "std::string",
    "i": "std::istream",
    "o": "std::ostream",
    "d": "std::iostream",
}

SPECIAL_NAMES = {
    "TV": "vtable for ",
    "TT": "VTT for ",
    "TI": "typeinfo for ",
    "TS": "typeinfo name for ",
    "GV": "guard variable for ",
    "GR": "reference temporary for ",
    "Th": "non-virtual thunk to ",
    "Tv": "virtual thunk to ",
}

UNARY_OPERATORS = {"ps": "+", "ng": "-", "ad": "&", "de": "*", "co": "~", "nt": "!"}

BINARY_OPERATORS = {
    "pl": "+",
    "mi": "-",
    "ml": "*",
    "dv": "/",
    "rm": "%",
    "an": "&",
    "or": "|",
    "eo": "^",
    "aS": "=",
    "pL": "+=",
    "mI": "-=",
    "mL": "*=",
    "dV": "/=",
    "rM": "%=",
    "aN": "&=",
    "oR": "|=",
    "eO": "^=",
    "ls": "<<",
    "rs": ">>",
    "lS": "<<=",
    "rS": ">>=",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
    "ss": "<=>",
    "aa": "&&",
    "oo": "||",
    "cm": ",",
    "pm": "->*",
}

OPERATOR_NAMES = {
    **UNARY_OPERATORS,
    **BINARY_OPERATORS,
    "nw": "new",
    "na": "new[]",
    "dl": "delete",
    "da": "delete[]",
    "aw": "co_await",
    "pp": "++",
    "mm": "--",
    "pt": "->",
    "cl": "()",
    "ix": "[]",
    "qu": "?",
}
