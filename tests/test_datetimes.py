"""Datetimes beside milliseconds, on every record that has a wall-clock time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import dibs
from dibs.records import OptionalWallTime, Record, WallTime
from tests.test_architecture import loaded_by

RELATIVE = {("PlannedTask", "starts_at"), ("Load", "at")}
"""Times of a plan, which are counted from now, perhaps in steps."""

FIELDS = [
    (record, field)
    for record in Record.__subclasses__()
    for field in record._fields
    if (field == "at" or field.endswith("_at")) and (record.__name__, field) not in RELATIVE
]


@pytest.mark.parametrize(
    ("record", "field"), FIELDS, ids=[f"{record.__name__}.{field}" for record, field in FIELDS]
)
def test_every_wall_clock_time_is_also_a_datetime(record: type[Record], field: str) -> None:
    name = f"{field.removesuffix('at')}datetime"
    optional = record.__annotations__[field].endswith("| None")
    kind = OptionalWallTime if optional else WallTime
    assert type(vars(record)[name]) is kind, f"{record.__name__} needs: {name} = {kind.__name__}()"
    made = object.__new__(record)
    made.__dict__[field] = 1_700_000_000_123
    found = getattr(made, name)
    assert found == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert found.utcoffset() == timedelta(0)
    if optional:
        made.__dict__[field] = None
        assert getattr(made, name) is None


def test_no_datetime_without_its_field() -> None:
    for record in Record.__subclasses__():
        for name, value in vars(record).items():
            if isinstance(value, WallTime):
                assert f"{name.removesuffix('datetime')}at" in record._fields


def test_a_datetime_is_in_no_json_and_no_repr(tmp_path) -> None:
    before = datetime.now(UTC)
    with dibs.open(tmp_path / "dibs.db", space="s") as space, space.join("alice") as alice:
        (lease,) = alice.leases.claim("a").leases
    assert before - timedelta(seconds=1) < lease.granted_datetime <= datetime.now(UTC)
    assert "granted_datetime" not in lease.to_json()
    assert "datetime" not in repr(lease)
    assert dibs.Lease.from_json(lease.to_json()) == lease


def test_a_record_stays_frozen(tmp_path) -> None:
    with dibs.open(tmp_path / "dibs.db", space="s") as space, space.join("alice") as alice:
        message = alice.messages.announce("hello")
    with pytest.raises(AttributeError, match="frozen"):
        message.sent_datetime = datetime.now(UTC)


def test_datetime_is_not_loaded_until_it_is_used() -> None:
    assert "datetime" not in loaded_by("import dibs.records")
