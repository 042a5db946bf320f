"""What this host can do, and what it lacks."""
