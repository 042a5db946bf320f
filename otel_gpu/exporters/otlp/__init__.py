"""How does everything leave as OTLP, over gRPC or HTTP?"""
