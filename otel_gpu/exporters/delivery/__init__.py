"""How does what is exported get where it goes without anyone waiting for it? By queues, threads, retries and counts."""
