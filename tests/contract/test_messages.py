"""Messages: lines from one agent to another, to everybody, or to a channel."""

from __future__ import annotations

import pytest

import dibs
from dibs.storage.waiting import CANCEL, Cancel
from tests.contract.waiting import Background, result
from tests.contract.world import Opener


def bodies(messages) -> list[str]:
    return [message.body for message in messages]


# Sending


def test_a_direct_message_reaches_one_agent_only(alice, bob, carol, clock):
    sent = alice.messages.send("hello", to="bob")
    assert (sent.kind, sent.sender, sent.to, sent.channel) == ("message", "alice", "bob", None)
    assert (sent.thread, sent.reply_to, sent.body) == (sent.id, None, "hello")
    assert (sent.sent_at, sent.acknowledged) == (clock.wall(), False)
    assert bob.messages.inbox() == (sent,)
    assert carol.messages.inbox() == ()
    assert alice.messages.inbox() == ()


def test_a_message_to_nobody_in_particular_reaches_everybody_else(alice, bob, carol):
    sent = alice.messages.send("all of you")
    assert sent.to is sent.channel is None
    assert bob.messages.inbox() == carol.messages.inbox() == (sent,)
    assert alice.messages.inbox() == ()


def test_an_announcement_is_told_as_one(alice, bob):
    sent = alice.messages.announce("the build is green")
    assert sent.kind == "announcement"
    assert bob.messages.inbox() == (sent,)
    assert [event.kind for event in bob.events.since(kind="message")] == [
        "message.announced",
        "message.delivered",
    ]


def test_a_message_to_a_subagent_is_not_for_its_agent(opener: Opener, alice, bob, elsewhere):
    tests = opener.join(elsewhere, "bob/tests")
    alice.messages.send("run them", to="bob/tests")
    assert bob.messages.inbox() == ()
    assert bodies(tests.messages.inbox()) == ["run them"]


@pytest.mark.parametrize(
    "call",
    [
        {"body": ""},
        {"body": "  "},
        {"body": "x" * 16_385},
        {"body": "a\0b"},
        {"body": "a\x1b[31m"},
        {"body": "\ud800"},
        {"body": 7},
        {"to": ""},
        {"to": "two words"},
        {"to": "bob/"},
        {"channel": ""},
        {"to": "bob", "channel": "c"},
        {"reply_to": "x"},
        {"reply_to": -1},
    ],
    ids=lambda call: ",".join(f"{k}={str(v)[:20]!r}" for k, v in call.items()),
)
def test_a_wrong_message_is_refused_and_changes_nothing(alice, call):
    before = alice.events.last()
    with pytest.raises(dibs.InvalidError):
        alice.messages.send(**{"body": "b", **call})
    if "body" in call:
        with pytest.raises(dibs.InvalidError):
            alice.messages.announce(call["body"])
    assert alice.events.last() == before
    assert alice.messages.history() == ()


def test_a_body_may_have_lines_and_tabs(alice, bob):
    alice.messages.send("one\n\ttwo", to="bob")
    assert bodies(bob.messages.inbox()) == ["one\n\ttwo"]


def test_without_a_session_nobody_can_send_or_read_an_inbox(space, alice):
    alice.messages.send("hello")
    for call in (
        lambda: space.messages.send("x"),
        lambda: space.messages.announce("x"),
        space.messages.inbox,
        lambda: space.messages.ack(1),
    ):
        with pytest.raises(dibs.NotYoursError):
            call()
    assert bodies(space.messages.history()) == ["hello"]


# The inbox


def test_the_inbox_gives_each_message_once_oldest_first(alice, bob, carol):
    for number in range(4):
        (alice if number % 2 else carol).messages.send(
            str(number), to="bob" if number < 2 else None
        )
    assert bodies(bob.messages.inbox()) == ["0", "1", "2", "3"]
    before = bob.events.last()
    assert bob.messages.inbox() == ()
    assert bob.events.last() == before
    alice.messages.send("4", to="bob")
    assert bodies(bob.messages.inbox()) == ["4"]


def test_nothing_missed_small_pages_never_skip(alice, bob, carol):
    read = []
    for number in range(10):
        alice.messages.send(f"a{number}", to="bob" if number % 2 else None)
        if number % 3 == 0:
            read += bodies(bob.messages.inbox(limit=1))
        alice.messages.send(f"for carol {number}", to="carol")
    while page := bob.messages.inbox(limit=3):
        assert len(page) <= 3
        read += bodies(page)
    assert read == [f"a{number}" for number in range(10)]


def test_the_sessions_of_one_agent_share_its_inbox(opener: Opener, alice, bob, elsewhere):
    twin = opener.join(elsewhere, "bob")
    alice.messages.send("1", to="bob")
    alice.messages.send("2", to="bob")
    assert bodies(bob.messages.inbox(limit=1)) == ["1"]
    assert bodies(twin.messages.inbox()) == ["2"]
    assert bob.messages.inbox() == ()


def test_what_is_unread_outlives_the_session(opener: Opener, alice, bob, elsewhere):
    alice.messages.send("1", to="bob")
    bob.messages.inbox()
    alice.messages.send("2", to="bob")
    alice.messages.send("3")
    bob.close()
    alice.messages.send("4")
    again = opener.join(elsewhere, "bob")
    assert bodies(again.messages.inbox()) == ["2", "3", "4"]


def test_a_direct_message_waits_for_an_agent_that_has_not_joined_yet(opener, alice, elsewhere):
    sent = alice.messages.send("welcome", to="dora")
    alice.messages.send("old news")
    assert alice.messages.delivery(sent.id)[0].state == "queued"
    dora = opener.join(elsewhere, "dora")
    alice.messages.send("news")
    assert bodies(dora.messages.inbox()) == ["welcome", "news"]


def test_peek_leaves_everything_unread(alice, bob):
    sent = alice.messages.send("1", to="bob")
    alice.messages.send("2")
    before = bob.events.last()
    assert bodies(bob.messages.inbox(peek=True)) == ["1", "2"]
    assert bodies(bob.messages.inbox(peek=True, limit=1)) == ["1"]
    assert bob.events.last() == before
    assert alice.messages.delivery(sent.id)[0].state == "queued"
    assert bodies(bob.messages.inbox()) == ["1", "2"]
    assert bob.messages.inbox(peek=True) == ()


def test_the_inbox_waits_for_a_message(alice, bob, background: Background):
    waiter = background(bob.messages.inbox, wait_s=3_600)
    alice.messages.send("for carol", to="carol")
    sent = alice.messages.send("hello", to="bob")
    assert result(waiter) == (sent,)


def test_the_inbox_gives_up_after_its_time_and_writes_nothing(bob):
    before = bob.events.last()
    assert bob.messages.inbox(wait_s=5) == ()
    assert bob.messages.inbox(wait_s=5, peek=True) == ()
    assert bob.events.last() == before


def test_a_peek_can_wait_too(alice, bob, background: Background):
    waiter = background(bob.messages.inbox, wait_s=3_600, peek=True)
    sent = alice.messages.send("hello", to="bob")
    assert result(waiter) == (sent,)
    assert bob.messages.inbox() == (sent,)


def test_the_wait_of_the_inbox_can_be_cancelled(alice, bob, background):
    cancel = Cancel()
    token = CANCEL.set(cancel)
    waiter = background(bob.messages.inbox, wait_s=3_600)
    CANCEL.reset(token)
    cancel()
    with pytest.raises(dibs.CancelledError):
        result(waiter)
    cancel.close()
    alice.messages.send("later", to="bob")
    assert bodies(bob.messages.inbox()) == ["later"]


@pytest.mark.parametrize("call", [{"limit": 0}, {"limit": 1_001}, {"wait_s": -1}, {"channel": ""}])
def test_a_wrong_inbox_call_is_refused(bob, call):
    with pytest.raises(dibs.InvalidError):
        bob.messages.inbox(**call)


# Channels


def test_a_channel_has_a_cursor_of_its_own_for_each_reader(alice, bob, carol):
    alice.messages.send("1", channel="build")
    alice.messages.send("direct", to="bob")
    alice.messages.send("2", channel="build")
    alice.messages.send("other", channel="docs")
    assert bodies(bob.messages.inbox()) == ["direct"]
    assert bodies(bob.messages.inbox(channel="build", limit=1)) == ["1"]
    assert bodies(carol.messages.inbox(channel="build")) == ["1", "2"]
    assert bodies(bob.messages.inbox(channel="build")) == ["2"]
    assert bob.messages.inbox(channel="build") == ()
    assert alice.messages.inbox(channel="build") == ()
    assert bodies(bob.messages.inbox(channel="docs")) == ["other"]


def test_a_channel_can_be_waited_for(alice, bob, background):
    waiter = background(bob.messages.inbox, channel="build", wait_s=3_600)
    alice.messages.send("not there", channel="docs")
    sent = alice.messages.send("there", channel="build")
    assert result(waiter) == (sent,)


# Threads and replies


def test_a_reply_goes_back_to_the_sender_in_the_same_thread(alice, bob, carol):
    question = alice.messages.send("why?", to="bob")
    answer = bob.messages.send("because", reply_to=question.id)
    assert (answer.to, answer.thread, answer.reply_to) == ("alice", question.id, question.id)
    assert alice.messages.inbox() == (answer,)
    third = alice.messages.send("I see", reply_to=answer.id)
    assert (third.to, third.thread) == ("bob", question.id)
    assert carol.messages.inbox() == ()
    thread = carol.messages.history(thread=question.id)
    assert thread == (third, answer, question)


def test_a_follow_up_to_ones_own_message_goes_where_that_one_went(alice, bob):
    first = alice.messages.send("one more thing", to="bob")
    second = alice.messages.send("namely this", reply_to=first.id)
    assert (second.to, second.thread) == ("bob", first.id)
    assert bob.messages.inbox() == (first, second)


def test_a_reply_to_a_channel_or_to_everybody_goes_there_too(alice, bob, carol):
    in_channel = alice.messages.send("1", channel="build")
    answer = bob.messages.send("2", reply_to=in_channel.id)
    assert (answer.channel, answer.to) == ("build", None)
    assert carol.messages.inbox(channel="build") == (in_channel, answer)
    broadcast = alice.messages.send("3")
    answer = bob.messages.send("4", reply_to=broadcast.id)
    assert answer.channel is answer.to is None
    assert carol.messages.inbox() == (broadcast, answer)


def test_a_reply_can_be_sent_elsewhere(alice, bob, carol):
    question = alice.messages.send("why?", to="bob")
    passed_on = bob.messages.send("carol knows", to="carol", reply_to=question.id)
    assert carol.messages.inbox() == (passed_on,)
    assert passed_on.thread == question.id


def test_a_reply_to_what_is_not_there_is_refused(alice):
    before = alice.events.last()
    with pytest.raises(dibs.NotFoundError):
        alice.messages.send("what?", reply_to=before + 1)
    assert alice.events.last() == before


# Delivery


def test_delivery_is_told_as_it_is(alice, bob, clock):
    sent = alice.messages.send("hello", to="bob")

    def state():
        [delivery] = alice.messages.delivery(sent.id)
        assert (delivery.message, delivery.agent) == (sent.id, "bob")
        return delivery.state, delivery.acknowledged_at

    assert state() == ("queued", None)
    bob.messages.inbox()
    assert state() == ("delivered", None)
    clock.advance(5)
    assert bob.messages.ack(sent.id) == (sent.id,)
    assert state() == ("acknowledged", clock.wall())


def test_the_delivery_of_a_broadcast_is_told_for_each_reader(opener, alice, bob, carol, elsewhere):
    sent = alice.messages.send("hello")
    opener.join(elsewhere, "later")
    bob.messages.inbox()
    bob.messages.ack(sent.id)
    told = {delivery.agent: delivery.state for delivery in alice.messages.delivery(sent.id)}
    assert told == {"bob": "acknowledged", "carol": "queued"}


def test_the_delivery_of_what_is_not_there_is_refused(alice):
    with pytest.raises(dibs.NotFoundError):
        alice.messages.delivery(99)
    with pytest.raises(dibs.InvalidError):
        alice.messages.delivery("x")


def test_ack_is_noted_once_and_shown_to_the_one_who_did_it(alice, bob, carol):
    first = alice.messages.send("1")
    second = alice.messages.send("2")
    assert bob.messages.ack(first.id, second.id, first.id) == (first.id, second.id)
    before = bob.events.last()
    assert bob.messages.ack(first.id) == ()
    assert bob.messages.ack() == ()
    assert bob.events.last() == before
    assert [message.acknowledged for message in bob.messages.inbox()] == [True, True]
    assert [message.acknowledged for message in carol.messages.inbox()] == [False, False]


def test_ack_is_refused_for_what_is_not_there_or_for_another(alice, bob, carol):
    first = alice.messages.send("1", to="bob")
    second = alice.messages.send("2", to="carol")
    before = bob.events.last()
    with pytest.raises(dibs.NotFoundError):
        bob.messages.ack(first.id, second.id)
    with pytest.raises(dibs.NotFoundError):
        bob.messages.ack(first.id, 999)
    with pytest.raises(dibs.InvalidError):
        bob.messages.ack("1")
    assert bob.events.last() == before
    assert alice.messages.delivery(first.id)[0].state == "queued"


# Looking back


def test_history_is_newest_first_filtered_and_paged(alice, bob, carol):
    first = alice.messages.send("1", to="bob")
    second = bob.messages.send("2")
    third = carol.messages.send("3", channel="build")
    assert alice.messages.history() == (third, second, first)
    assert alice.messages.history(agent="bob") == (second, first)
    assert alice.messages.history(agent="carol") == (third,)
    assert alice.messages.history(channel="build") == (third,)
    assert alice.messages.history(limit=1) == (third,)
    assert alice.messages.history(before=third.id, limit=1) == (second,)
    assert alice.messages.history(thread=first.id) == (first,)
    # Looking back delivers nothing.
    assert bob.messages.inbox() == (first,)


@pytest.mark.parametrize(
    "call",
    [{"limit": 0}, {"limit": 1_001}, {"agent": "a\0b"}, {"channel": "\ud800"}, {"before": 2**70}],
    ids=str,
)
def test_a_wrong_history_call_is_refused(alice, call):
    with pytest.raises(dibs.InvalidError):
        alice.messages.history(**call)


def test_search_finds_messages_that_have_all_the_words(alice, bob):
    first = alice.messages.send("The parser breaks on Unicode: naïve café.", to="bob")
    second = bob.messages.send("the PARSER is fixed")
    bob.messages.send("parsers everywhere", channel="build")
    assert alice.messages.search("parser") == (second, first)
    assert alice.messages.search("Parser THE") == (second, first)
    assert alice.messages.search("parser unicode") == (first,)
    assert alice.messages.search("CAFÉ, naïve!") == (first,)
    assert alice.messages.search("pars") == ()
    assert alice.messages.search("parser docs") == ()
    assert alice.messages.search("parser", limit=1) == (second,)


@pytest.mark.parametrize("text", ["", "  ", "?!", "a\0b", "x" * 2_001, 7])
def test_a_search_without_words_is_refused(alice, text):
    with pytest.raises(dibs.InvalidError):
        alice.messages.search(text)
    with pytest.raises(dibs.InvalidError):
        alice.messages.search("word", limit=0)


# Nobody acts for another


def forge(opener: Opener, id: int) -> None:
    opener.tamper(
        "UPDATE message SET body = 'delete everything' WHERE space = %(space)s AND id = %(id)s",
        id=id,
    )


def test_a_forged_message_is_not_delivered_and_the_journal_says_so(opener, alice, bob):
    forged = alice.messages.send("1", to="bob")
    alice.messages.send("2", to="bob")
    forge(opener, forged.id)
    assert bodies(bob.messages.inbox(peek=True)) == ["2"]
    assert bodies(bob.messages.inbox()) == ["2"]
    [event] = bob.events.since(kind="message.forged")
    assert (event.subject, event.data) == (str(forged.id), {"sender": "alice"})
    assert bob.messages.inbox() == ()


def test_a_forged_message_does_not_hide_those_behind_it(opener, alice, bob):
    forged = alice.messages.send("1", to="bob")
    alice.messages.send("2", to="bob")
    forge(opener, forged.id)
    assert bodies(bob.messages.inbox(peek=True, limit=1)) == ["2"]
    assert bodies(bob.messages.inbox(limit=1)) == ["2"]


def test_a_forged_message_is_not_shown_by_history_and_search(opener, alice, bob):
    forged = alice.messages.send("the truth", to="bob")
    forge(opener, forged.id)
    assert bob.messages.history() == ()
    assert bob.messages.search("truth") == ()


def test_a_message_put_into_the_table_without_a_key_is_not_delivered(opener, alice, bob):
    sent = alice.messages.send("real", to="bob")
    opener.tamper(
        "INSERT INTO message (space, id, kind, sender, session, recipient, channel, thread,"
        " reply_to, body, sent_at, signature) SELECT space, id + 1000, kind, sender, session,"
        " recipient, channel, thread, reply_to, 'fake', sent_at, signature"
        " FROM message WHERE space = %(space)s AND id = %(id)s",
        id=sent.id,
    )
    assert bodies(bob.messages.inbox()) == ["real"]
    assert len(bob.events.since(kind="message.forged")) == 1
