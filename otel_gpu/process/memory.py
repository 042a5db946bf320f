"""What stands at this address of another process? Bounded reads of what was opened as its memory.

What comes back is the target's own claim: every pointer, length and type in it is checked by whoever asked, and whatever
cannot be read is a `MemoryFault`, never a guess.
"""
