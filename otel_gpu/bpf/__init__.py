"""How do we talk to the kernel? Objects, maps, links, rings and feature probes."""
