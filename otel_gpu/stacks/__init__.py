"""How stacks are walked and named: native code, CPython, symbols."""
