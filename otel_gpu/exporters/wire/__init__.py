"""How does what was observed look in OTLP, as protobuf and as JSON?"""
