"""What do .eh_frame sections say of how a stack is unwound? Compiled to rows that the kernel searches."""
