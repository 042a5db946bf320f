"""What do GPU processes do right now? Figures of an agent in this process, or of a running one, as tables and as JSON."""
