"""Metrics of others: either encoding says the same, and nothing that is wrong is believed."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest as Metrics,
)

from dibs.telemetry.counts import MESSAGES_LIMIT, SIZE_LIMIT, read_metrics, unpacked
from dibs.telemetry.protobuf import fields, of_int, signed, write_varint
from tests.telemetry.receiver import COST, CUMULATIVE, DELTA, TOKENS, as_json, counted

NAMES = frozenset({TOKENS, COST})
nanos = st.integers(1, 2**63 - 1)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TOKENS, COST, "other"]),
            st.floats(0, 1e12, allow_nan=False),
            nanos,
            st.sampled_from([DELTA, CUMULATIVE]),
            words,
        ),
        max_size=5,
    )
)
def test_both_encodings_of_the_official_library_say_the_same(told):
    request = Metrics()
    for metric, value, time, temporality, model in told:
        counted(metric, value, time, time // 2, temporality, request, model=model, type="input")
    points = read_metrics(request.SerializeToString(), NAMES, as_json=False)
    assert points == read_metrics(as_json(request), NAMES, as_json=True)
    assert [(point.metric, point.value, point.time, point.start, point.attributes["model"])
            for point in points] == [
        (metric, value, time, time // 2, model)
        for metric, value, time, _, model in told if metric in NAMES
    ]  # fmt: skip
    assert [point.delta for point in points] == [one[3] == DELTA for one in told if one[0] in NAMES]


def test_attributes_tell_series_apart_and_their_order_does_not():
    def series(**attributes):
        [point] = read_metrics(
            counted(TOKENS, 1, 9, **attributes).SerializeToString(), NAMES, as_json=False
        )
        return point.series

    assert series(a="1", b="2") == series(b="2", a="1")
    assert len({series(a="1", b="2"), series(a="1"), series(a="2", b="1"), series()}) == 4


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body):
    for as_json_ in (False, True):
        try:
            read_metrics(body, NAMES, as_json_)
        except ValueError:
            continue


@given(st.data())
def test_a_request_with_a_byte_changed_is_read_or_refused(data):
    body = bytearray(counted(COST, 1.5, 99, 5, model="opus", session__id="s").SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for text in (bytes(body), bytes(body[:cut])):
        try:
            read_metrics(text, NAMES, as_json=False)
        except ValueError:
            continue


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_comes_back_as_it_was_written(number):
    [(field, _, value)] = fields(of_int(7, number))
    assert (field, signed(int(value))) == (7, number)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from("resourceMetrics scopeMetrics metrics name sum dataPoints "
                                    "asDouble aggregationTemporality attributes key value "
                                    "timeUnixNano startTimeUnixNano resource".split()))  # fmt: skip
def test_json_of_another_shape_is_read_or_refused(value, name):
    request = json.loads(as_json(counted(TOKENS, 1, 9, a="b")))

    def put(message):
        if isinstance(message, dict):
            for key in list(message):
                if key == name:
                    message[key] = value
                else:
                    put(message[key])
        elif isinstance(message, list):
            for one in message:
                put(one)

    put(request)
    for told in (request, value):
        try:
            read_metrics(json.dumps(told).encode(), NAMES, as_json=True)
        except ValueError:
            continue


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0, 1.7e308])
def test_what_nobody_can_have_counted_is_refused(wrong):
    with pytest.raises(ValueError, match="from 0 to"):
        read_metrics(counted(COST, wrong, 9).SerializeToString(), NAMES, as_json=False)


def test_times_out_of_order_are_refused():
    for start, time in ((9, 8), (0, 0), (1, 2**63)):
        with pytest.raises(ValueError, match="order"):
            read_metrics(counted(COST, 1, time, start).SerializeToString(), NAMES, as_json=False)


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="deep"):
        read_metrics(b'{"resourceMetrics":' + b"[" * 200_000, NAMES, as_json=True)


def test_a_body_of_many_empty_messages_is_refused():
    with pytest.raises(ValueError, match="messages"):
        read_metrics(b"\x0a\x00" * (MESSAGES_LIMIT + 1), NAMES, as_json=False)


def test_what_is_packed_comes_back_and_a_bomb_does_not():
    body = b"x" * 1000
    assert unpacked(gzip.compress(body), "gzip") == unpacked(body, "") == body
    assert unpacked(zlib.compress(body), "deflate") == body
    for bomb in (gzip.compress(bytes(SIZE_LIMIT + 1)), gzip.compress(bytes(200 << 20))):
        with pytest.raises(ValueError, match="more than"):
            unpacked(bomb, "gzip")
    for text in (b"", b"no", gzip.compress(body)[:-1], gzip.compress(body) + b"x"):
        with pytest.raises(ValueError, match="not"):
            unpacked(text, "gzip")
    with pytest.raises(ValueError, match="only"):
        unpacked(body, "br")


def test_a_length_beyond_the_end_is_refused():
    with pytest.raises(ValueError, match="cut off"):
        read_metrics(b"\x0a" + write_varint(2**60), NAMES, as_json=False)
