"""What was observed? Each receiver turns what it reads of the kernel, or of a library, into metrics, spans or profiles."""
