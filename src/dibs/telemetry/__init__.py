"""OpenTelemetry: the journal as spans, figures as metrics, and the usage that clients report.

Nothing here is imported unless it is needed, and it needs no other package: OTLP over HTTP is a
handful of messages, written and read in `protobuf` and `otlp`.
"""
