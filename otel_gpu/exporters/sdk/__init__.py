"""How does what was observed reach exporters of the OpenTelemetry SDK?"""
