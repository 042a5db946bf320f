"""What can receivers not know? Processors add it to what was observed, or take detail away."""
