"""The journal as spans, against a small model over random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dibs.records import Event
from dibs.storage.tracing import checked
from dibs.telemetry.otlp import traces
from dibs.telemetry.spans import CLAIM, TASK, WAIT, Spans

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def event(seq, kind, subject, session=1, at=None, **data):
    return Event(seq=seq, kind=kind, agent=f"a{session}", session=session, subject=subject,
                 data=data or None, at=seq * 1000 if at is None else at)  # fmt: skip


def spans_of(events, **how):
    spans = Spans("id", "main", **how)
    return [span for one in events for span in spans.take(one)]


def test_a_wait_and_the_claim_it_leads_to_share_a_trace_and_a_link():
    events = [
        event(1, "lease.claimed", "a.py", 1, epoch=1, mode="exclusive"),
        event(2, "lease.queued", "a.py", 2, ticket=2, mode="exclusive", trace=TRACE),
        event(3, "lease.released", "a.py", 1, epoch=1),
        event(4, "lease.claimed", "a.py", 2, epoch=4, ticket=2, mode="exclusive"),
        event(5, "lease.expired", "a.py", 2, epoch=4),
    ]
    first, wait, claim = spans_of(events)
    assert (first.name, first.attributes["dibs.outcome"]) == (CLAIM, "released")
    assert (wait.name, wait.start, wait.end) == (WAIT, 2000, 4000)
    assert wait.attributes["dibs.outcome"] == "granted"
    assert (claim.start, claim.end, claim.attributes["dibs.outcome"]) == (4000, 5000, "expired")
    assert claim.trace == wait.trace != first.trace and claim.id != wait.id
    assert claim.link == wait.link is not None
    assert (wait.link.trace.hex(), wait.link.span.hex()) == tuple(TRACE.split("-")[1:3])


def test_the_leases_of_a_task_are_its_children_and_a_failure_is_an_error():
    events = [
        event(1, "task.claimed", "t", epoch=1, attempts=2),
        event(2, "lease.claimed", "a.py", epoch=2, task="t"),
        event(3, "task.failed", "t", epoch=1, reason="it broke"),
        event(4, "lease.released", "a.py", epoch=2),
    ]
    task, lease = spans_of(events)
    assert (task.name, task.error, task.attributes["dibs.task.attempt"]) == (TASK, "failed", 2)
    assert task.attributes["error.type"] == "failed" and not lease.error
    assert (lease.trace, lease.parent) == (task.trace, task.id) and not task.parent


def test_words_of_agents_are_told_only_if_asked_for():
    events = [
        event(1, "task.claimed", "t", epoch=1),
        event(2, "lease.claimed", "a", epoch=2, note="a secret"),
        event(3, "task.failed", "t", epoch=1, reason="a secret"),
        event(4, "lease.released", "a", epoch=2),
    ]
    assert "secret" not in str(spans_of(events))
    assert str(spans_of(events, words=True)).count("a secret") == 2


def test_a_clock_that_was_set_back_ends_no_span_before_its_start():
    [span] = spans_of([
        event(1, "lease.claimed", "a", at=9_000, epoch=1),
        event(2, "lease.released", "a", at=5_000, epoch=1),
    ])  # fmt: skip
    assert (span.start, span.end) == (9_000, 9_000)


ODD: tuple[object, ...] = (None, "x", 1.5, -1, 2**80, [1], [[]], {}, {"a": []}, True, "\ud800")


def changed_to(one, **fields):
    return Event(**{**vars(one), **fields})


def test_an_event_that_something_else_has_changed_ends_no_export():
    names = ("epoch", "ticket", "task", "mode", "note", "reason", "why", "attempts", "trace",
             "holder_session")  # fmt: skip
    kinds = ("task.claimed", "lease.queued", "lease.claimed", "lease.released", "lease.unqueued",
             "task.failed")  # fmt: skip
    story = [event(seq, kind, "a") for seq, kind in enumerate(kinds, 1)]
    sound = [event(8, "lease.claimed", "b", 7), event(9, "lease.released", "b", 7)]
    for odd in ODD:
        changed = [changed_to(one, data=dict.fromkeys(names, odd)) for one in story]
        changed += [changed_to(one, data=odd) for one in story]
        for name in ("at", "subject", "agent", "session", "seq"):
            if not isinstance(odd, (list, dict)):  # a column has neither
                changed += [changed_to(one, **{name: odd}) for one in story]
        spans = spans_of([*changed, *sound], words=True)
        assert spans[-1].attributes["dibs.resource"] == "b" and traces(spans, {})


def test_only_a_trace_context_is_taken_for_one():
    assert checked(TRACE) == TRACE
    for wrong in (
        None, 7, "", TRACE[:-1], TRACE + "0", TRACE.upper(), "ff" + TRACE[2:], "01" + TRACE[2:],
        TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        TRACE.replace("b7ad6b7169203331", "0" * 16), TRACE.replace("-", "_"),
        "00-" + "g" * 32 + TRACE[35:], TRACE.replace("b7", "٣٣"), TRACE[:-3] + "\n01",
    ):  # fmt: skip
        assert checked(wrong) == "", wrong


@st.composite
def histories(draw):
    """Events of a store that keeps the rules, and the spans that they must make."""
    events, wanted = [], []
    leases: dict = {}
    tasks: dict = {}
    waits: dict = {}
    for seq in range(1, draw(st.integers(1, 40)) + 1):
        session, name = draw(st.integers(1, 3)), draw(st.sampled_from("abc"))
        choices = ["task.claimed" if name not in tasks else "task.end"]
        choices.append("lease.end" if (name, session) in leases else "lease.claimed")
        choices.append("wait.end" if (name, session) in waits else "lease.queued")
        choices.append("other")
        what = draw(st.sampled_from(choices))
        if what == "task.claimed":
            tasks[name] = seq
            events.append(event(seq, what, name, session, epoch=seq))
        elif what == "task.end":
            end = draw(st.sampled_from(["completed", "failed", "freed", "revoked", "handed_in"]))
            events.append(event(seq, f"task.{end}", name, session, epoch=tasks[name]))
            wanted.append((TASK, name, tasks.pop(name), seq, end))
        elif what == "lease.claimed":
            leases[name, session] = seq
            events.append(event(seq, what, name, session, epoch=seq))
        elif what == "lease.end":
            end = draw(st.sampled_from(["released", "expired", "freed", "revoked", "transferred"]))
            holder = {"holder_session": session} if end == "revoked" else {}
            by = 9 if end == "revoked" else session
            events.append(event(seq, f"lease.{end}", name, by, epoch=0, **holder))
            wanted.append((CLAIM, name, leases.pop((name, session)), seq, end))
        elif what == "lease.queued":
            waits[name, session] = seq
            events.append(event(seq, what, name, session, ticket=seq))
        elif what == "wait.end":
            ticket = waits.pop((name, session))
            events.append(event(seq, "lease.unqueued", name, session, ticket=ticket, why="left"))
            wanted.append((WAIT, name, ticket, seq, "left"))
        else:
            events.append(event(seq, "message.sent", name, session))
    return events, wanted, [*leases.values(), *tasks.values(), *waits.values()]


def told(span):
    subject = span.attributes.get("dibs.task" if span.name == TASK else "dibs.resource")
    began, ended = span.start // 1000, span.end // 1000
    return span.name, subject, began, ended, span.attributes["dibs.outcome"]


@given(histories(), st.data())
def test_spans_are_those_of_the_model_and_the_same_after_any_restart(history, data):
    events, wanted, unfinished = history
    spans = Spans("id", "main")
    found, marks = [], [(0, 0)]
    for one in events:
        found += spans.take(one)
        oldest = spans.oldest
        marks.append((one.seq if oldest is None else oldest - 1, one.seq))
    assert [told(span) for span in found] == wanted
    assert spans.oldest == (min(unfinished) if unfinished else None)
    assert len({span.id for span in found}) == len(found)
    # Another daemon that reads on from any place makes the rest of them, with the same ids.
    since, upto = marks[data.draw(st.integers(0, len(events)))]
    again = spans_of([one for one in events if one.seq > since])
    assert [one for one in again if one.seq > upto] == [one for one in found if one.seq > upto]


def test_two_spaces_of_one_name_have_no_ids_in_common():
    events = [event(1, "lease.claimed", "a", epoch=1), event(2, "lease.released", "a", epoch=1)]
    ids = []
    for identity in ("one", "two"):
        spans = Spans(identity, "main")
        [span] = [span for one in events for span in spans.take(one)]
        ids += [span.id, span.trace]
    assert len(set(ids)) == 4
