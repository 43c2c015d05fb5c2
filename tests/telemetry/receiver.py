"""What tests need of the other side of OTLP: the official messages, and a receiver of them."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest as Metrics,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest as Traces,
)

S = 1_000_000_000
DELTA, CUMULATIVE = 1, 2
TOKENS, COST = "claude_code.token.usage", "claude_code.cost.usage"


def counted(
    metric: str,
    value: float,
    time: int,
    start: int = 0,
    temporality: int = DELTA,
    request: Metrics | None = None,
    **attributes: str,
) -> Metrics:
    """A request with one point, or the one given with one more; __ stands for a dot."""
    request = request or Metrics()
    of_resource = request.resource_metrics.add()
    name = of_resource.resource.attributes.add(key="service.name")
    name.value.string_value = "claude-code"
    found = of_resource.scope_metrics.add().metrics.add(name=metric)
    found.sum.aggregation_temporality = temporality
    found.sum.is_monotonic = True
    point = found.sum.data_points.add(start_time_unix_nano=start, time_unix_nano=time)
    point.as_double = value
    for key, text in attributes.items():
        point.attributes.add(key=key.replace("__", ".")).value.string_value = text
    return request


def as_json(request: Metrics) -> bytes:
    """The request in the other encoding, as the official library writes it."""
    return json.dumps(MessageToDict(request, use_integers_for_enums=True)).encode()


class Received:
    """What came to a receiver."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.schemas: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        """What the next requests are answered with, if not well."""
        self._come = threading.Condition()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        with self._come:
            self.headers.append(headers)
            if path.endswith("/v1/traces"):
                for of_resource in Traces.FromString(body).resource_spans:
                    self.resources.append(of_resource.resource)
                    for of_scope in of_resource.scope_spans:
                        self.schemas.add(of_scope.schema_url)
                        self.spans += of_scope.spans
            elif path.endswith("/v1/metrics"):
                for of_resource in Metrics.FromString(body).resource_metrics:
                    for of_scope in of_resource.scope_metrics:
                        self.schemas.add(of_scope.schema_url)
                        self.metrics |= {metric.name: metric for metric in of_scope.metrics}
            else:
                raise AssertionError(path)
            self._come.notify_all()

    def wait(self, enough: Callable[[], Any], seconds: float = 20) -> Any:
        """Wait until what has come is enough."""
        with self._come:
            assert self._come.wait_for(enough, seconds), (self.spans, self.metrics)
            return enough()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@contextmanager
def receiver(port: int = 0) -> Iterator[tuple[str, Received]]:
    """A server that takes OTLP/HTTP with the official messages, at an address."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, headers, answer = 200, dict[str, str](), b""
            if received.answers:
                status, headers, answer = received.answers.pop(0)
            else:
                received.take(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
