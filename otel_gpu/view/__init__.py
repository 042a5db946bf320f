"""What does whoever has no backend look at? A small one: it takes OTLP, keeps the last hour, and shows it as a web page."""
