"""How is this stack walked? Unwinding tables for native code, and what CPython's binary says about itself."""
