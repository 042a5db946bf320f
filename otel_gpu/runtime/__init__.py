"""How this program runs: isolated, with few rights, within its memory, supervised, and done in time."""
