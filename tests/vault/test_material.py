"""Which notes an event changes."""

from __future__ import annotations

from typing import Any

from dibs.records import Event, Message
from dibs.vault.material import Material
from dibs.vault.names import AGENTS, DAYS, INDEX, Ref
from dibs.vault.note import note

DAY_MS = 86_400_000


def event(seq: int, kind: str, subject: str, data: Any, day: int, agent: str = "bob") -> Event:
    return Event(
        seq=seq, kind=kind, agent=agent, session=1, subject=subject, data=data, at=day * DAY_MS,
        time="",
    )  # fmt: skip


def message(id: int, day: int) -> Message:
    return Message(
        id=id, kind="message", sender="alice", to="bob", channel=None, thread=id, reply_to=None,
        body="hello", sent_at=day * DAY_MS, acknowledged=False,
    )  # fmt: skip


def test_an_acknowledgement_changes_the_note_of_the_day_on_which_the_message_was_sent() -> None:
    ledger = Material()
    ledger.know([message(5, 1)])
    ledger.add(event(5, "message.sent", "bob", None, 1, "alice"))
    said = event(6, "message.acknowledged", "5", {"sender": "alice"}, 3)
    ledger.add(said)
    assert set(ledger.touched(said)) == {
        INDEX,
        Ref(AGENTS, "alice"),
        Ref(AGENTS, "bob"),
        Ref(DAYS, "1970-01-02"),
        Ref(DAYS, "1970-01-04"),
    }
    assert "Acknowledged by [[agents/bob]]" in note(ledger, Ref(DAYS, "1970-01-02")).text


def test_an_event_is_taken_in_once() -> None:
    ledger = Material()
    for _ in range(2):
        ledger.add(event(1, "task.added", "a", {"title": "x"}, 1))
    assert note(ledger, Ref(DAYS, "1970-01-02")).text.count("task added") == 1


def test_what_another_release_wrote_or_a_hand_spoilt_is_shown_as_it_can_be() -> None:
    ledger = Material()
    odd = [None, 7, [], ["x"], {"task": ["x"], "by": 3, "behind": [3, []], "to": {}, "was": 1}]
    for seq, data in enumerate(odd, 1):
        for number, kind in enumerate(("lease.claimed", "task.x", "session.y", "z")):
            ledger.add(event(10 * seq + number, kind, "a", data, -seq))
    for ref in ledger.refs():
        assert note(ledger, ref).text.startswith("---\n")


def test_a_time_that_no_calendar_has_is_a_day_all_the_same() -> None:
    ledger = Material()
    ledger.add(event(1, "task.added", "a", None, 10**12))
    assert Ref(DAYS, "9999-12-31") in ledger.refs()
