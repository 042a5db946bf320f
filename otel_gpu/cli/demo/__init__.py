"""What does otel-gpu show, on any machine? A small inference server, observed live."""
