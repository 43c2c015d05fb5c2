"""Messages: lines from one agent to another, to everybody, or to a channel.

Promised: messages are only ever added, and a message's id is its seq. A reader that continues
from the last id it saw therefore misses none and sees none twice, however many agents write.
The store keeps that cursor for each agent. A message to an agent that has not joined yet waits
for it. Each message is signed by its sender, and the signature is checked when it is read: a
forged message is not delivered, and the journal says so.

The state of delivery is exact: *queued* until the reader's inbox has returned it, then
*delivered*, and *acknowledged* when the reader says so. Not promised: that an agent has
understood, or even looked at, what was delivered. With an idempotency key, an answer that was
lost on the way can be requested again.

A body is data from a peer, never an instruction; surfaces mark it as untrusted.
"""

from __future__ import annotations

from dibs.arguments import FILTER, NEWEST, NUMBER
from dibs.errors import InvalidError, NotFoundError
from dibs.nouns.many import ahead, many
from dibs.nouns.messages.unread import MESSAGES, message_record, unread_rows
from dibs.operation import EVERYBODY, Items, operation, writes
from dibs.records import Delivery, Message
from dibs.space.scope import Noun, Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, overload

    from dibs.errors import DibsError
    from dibs.space.signing import Keyring
    from dibs.storage.driver import Row
    from dibs.storage.queries import Query
    from dibs.storage.store import Read, Write

    Calls = Sequence[dict[str, Any]]
    Key = str | None

WORD_LIMIT = 64


class Messages(Noun):
    @writes(
        NotFoundError,
        by=EVERYBODY,
        events=("message.sent",),
        ahead=lambda noun, **call: questions([call]),
        cli="send",
        example="'the schema has changed' --to bob",
    )
    def send(
        self,
        body: str,
        *,
        to: str | None = None,
        channel: str | None = None,
        reply_to: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Send a message to an agent, a channel, or everybody.

        body: the text
        to: the agent it is for; without an agent or a channel, it goes to everybody
        channel: the channel to send it to instead; agents that read the channel get it
        reply_to: the id of the message it answers
        """
        if to is not None and channel is not None:
            raise InvalidError("a message goes to an agent or to a channel, not to both")
        known = answered(self.tx, [{"reply_to": reply_to}]) if self.known is None else self.known
        return post(
            self.tx, self.scope, body, to=to, channel=channel, reply_to=reply_to, known=known
        )

    if TYPE_CHECKING:

        @overload
        def send_many(
            self, items: Calls, *, each: Literal[False] = False, idempotency_key: Key = None
        ) -> tuple[Message, ...]: ...
        @overload
        def send_many(
            self, items: Calls, *, each: bool, idempotency_key: Key = None
        ) -> tuple[Message | DibsError, ...]: ...

    @writes(
        NotFoundError,
        by=EVERYBODY,
        events=("message.sent",),
        kinds={"items": Items("messages.send")},
        ahead=lambda noun, items, **_: ahead(noun.scope, items, questions),
        cli="send --many",
        example="< messages.jsonl",
    )
    def send_many(
        self,
        items: Sequence[dict[str, Any]],
        *,
        each: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[Message | DibsError, ...]:
        """Send many messages in one transaction, all or none.

        items: one object for each message, with the arguments of messages.send
        each: send each one independently; the result of a refused one is its error
        """
        return many(self, "messages.send", items, each, lambda calls: answered(self.tx, calls))

    @writes(
        by=EVERYBODY,
        events=("message.announced",),
        cli="announce",
        example="'refactoring the parser until noon'",
    )
    def announce(self, body: str, *, idempotency_key: str | None = None) -> Message:
        """Tell everybody what you are doing or what you found.

        body: the text
        """
        return post(self.tx, self.scope, body, kind="announcement")

    @operation(
        by=EVERYBODY,
        events=("message.delivered",),
        cli="inbox",
        example="--wait 60s",
        empty="no unread messages",
        kinds={"until": NUMBER},
    )
    def inbox(
        self,
        *,
        channel: str | None = None,
        peek: bool = False,
        until: int | None = None,
        limit: int = 100,
        wait_s: float = 0,
        idempotency_key: str | None = None,
    ) -> tuple[Message, ...]:
        """Show the unread messages, oldest first, and mark them as read.

        channel: read this channel instead of messages to you and to everybody
        peek: leave them unread
        until: only messages up to this id
        limit: the maximum number to return; the next call returns the rest
        wait_s: how long to wait for a message if there is none
        """
        channel = channel or ""
        until = NEWEST if until is None else until

        def take() -> tuple[Message, ...]:
            with self.scope.write() as tx:
                return self.scope.once(
                    tx,
                    "messages.inbox",
                    idempotency_key,
                    [channel, limit, until],
                    lambda: self._take(tx, channel, limit, until),
                )

        def look() -> tuple[tuple[Message, ...] | None, None]:
            agent = self.scope.caller.agent  # it may be renamed during the wait
            with self.scope.read() as tx:
                rows = self._unread(tx, agent, channel, limit, until)
                if peek:
                    while rows and not self._genuine(rows):
                        rows = self._unread(tx, agent, channel, limit, until, rows[-1]["id"])
                    return self._records(tx, self._genuine(rows)) or None, None
            # A reader with nothing to read does not block writers.
            return (take() or None) if rows else None, None

        found = take() if idempotency_key is not None and not peek else look()[0]
        if not found and wait_s:
            topic = f"message:{channel or self.scope.caller.agent}"
            found = self.scope.store.wait(look, (topic,), wait_s)
        return found or ()

    def _unread(
        self, tx: Read, agent: str, channel: str, limit: int, until: int, beyond: int = 0
    ) -> list[Row]:
        cursor = tx.row(MESSAGES.cursor, agent=agent, channel=channel)
        after = max(beyond, 0 if cursor is None else cursor["seq"])
        if channel:
            asked = {"channel": channel, "after": after, "until": until, "limit": limit}
            return tx.fitting(tx.rows(MESSAGES.unread_channel, agent=agent, **asked))
        return tx.fitting(unread_rows(tx, agent, limit, until, after))

    def _take(self, tx: Write, channel: str, limit: int, until: int) -> tuple[Message, ...]:
        agent = self.scope.caller.agent
        upto = 0
        genuine: list[Row] = []
        # An empty page would mean that everything is read, so a page of forged ones is skipped.
        while not genuine and (rows := self._unread(tx, agent, channel, limit, until)):
            upto = rows[-1]["id"]
            tx.run(MESSAGES.move_cursor, agent=agent, channel=channel, seq=upto)
            genuine = self._genuine(rows)
            for row in rows:
                if row not in genuine:
                    tx.event("message.forged", str(row["id"]), {"sender": row["sender"]})
        if genuine:
            tx.event("message.delivered", channel or agent, {"upto": upto, "number": len(genuine)})
        elif not upto:
            tx.discard()
        return self._records(tx, genuine)

    def _genuine(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if self.scope.keys.fits("message", row)]

    @writes(
        NotFoundError, by=EVERYBODY, events=("message.acknowledged",), cli="ack", example="17 18"
    )
    def ack(self, *ids: int, idempotency_key: str | None = None) -> tuple[int, ...]:
        """Acknowledge messages, so that their senders know you read them.

        ids: the messages
        """
        tx = self.tx
        agent = self.scope.caller.agent
        done = []
        for id in ids:
            row = self._row(tx, id)
            if row["recipient"] not in (None, agent):
                raise NotFoundError(f"message {id} is not for you")
            if tx.row(MESSAGES.acknowledge, id=id, agent=agent, at=tx.wall) is not None:
                tx.event("message.acknowledged", str(id), {"sender": row["sender"]})
                done.append(id)
        if not done and idempotency_key is None:
            tx.discard()
        return tuple(done)

    @operation(NotFoundError, by=EVERYBODY, example="17", kinds={"id": NUMBER})
    def delivery(self, id: int) -> tuple[Delivery, ...]:
        """Show for each reader whether a message is queued, delivered or acknowledged.

        id: the message
        """
        with self.scope.read() as tx:
            readers = self._readers(tx, self._row(tx, id))
            times = {ack["agent"]: ack["at"] for ack in tx.rows(MESSAGES.acknowledgements, id=id)}
        return tuple(
            Delivery(
                message=id,
                agent=reader["agent"],
                state="acknowledged"
                if reader["agent"] in times
                else ("delivered" if reader["seq"] >= id else "queued"),
                acknowledged_at=times.get(reader["agent"]),
            )
            for reader in readers
        )

    def _readers(self, tx: Read, row: Row) -> list[Row]:
        """The readers of a message, each with the last message it has read."""
        if row["recipient"] is not None:
            cursor = tx.row(MESSAGES.cursor, agent=row["recipient"], channel="")
            return [{"agent": row["recipient"], "seq": cursor["seq"] if cursor else 0}]
        if row["channel"] is not None:
            return tx.rows(MESSAGES.channel_readers, channel=row["channel"], sender=row["sender"])
        return tx.rows(MESSAGES.readers, sender=row["sender"], id=row["id"])

    @operation(by=EVERYBODY, cli="messages", example="--agent bob", kinds={"channel": FILTER})
    def history(
        self,
        *,
        agent: str | None = None,
        channel: str | None = None,
        thread: int | None = None,
        before: int = NEWEST,
        limit: int = 100,
    ) -> tuple[Message, ...]:
        """Show past messages, the newest first.

        agent: only messages from or to this agent
        channel: only messages in this channel
        thread: only messages of the thread that began with this message
        before: only messages with a smaller id
        """
        with self.scope.read() as tx:
            asked = {"channel": channel, "thread": thread, "before": before, "limit": limit}
            rows = tx.pages(MESSAGES.history, "before", "id", agent=agent, **asked)
            return self._records(tx, self._genuine(rows))

    @operation(by=EVERYBODY, cli="messages --search", example="'login tests'")
    def search(self, text: str, *, limit: int = 100) -> tuple[Message, ...]:
        """Find messages that contain all these words, the newest first.

        text: the words; case does not matter
        """
        found = sorted(words(text))
        if not found:
            raise InvalidError(f"{text!r} has no word to search for")
        with self.scope.read() as tx:
            rows = tx.rows(MESSAGES.search, words=found, number=len(found), limit=limit)
            return self._records(tx, self._genuine(rows))

    def _row(self, tx: Read, id: int) -> Row:
        row = tx.row(MESSAGES.one, id=id)
        if row is None:
            raise NotFoundError(f"there is no message {id}", next="list the message history")
        return row

    def _records(self, tx: Read, rows: list[Row]) -> tuple[Message, ...]:
        ids = [row["id"] for row in rows]
        acknowledged: set[int] = set()
        if self.scope.session and ids:
            agent = self.scope.caller.agent
            found = tx.rows(MESSAGES.acknowledged, agent=agent, ids=ids)
            acknowledged = {row["message"] for row in found}
        return tuple(message_record(row, row["id"] in acknowledged) for row in rows)


def questions(wanted: Sequence[Row]) -> list[tuple[Query, Row]]:
    """The queries needed before these messages are sent: for the messages they answer."""
    ids = dict.fromkeys(one.get("reply_to") for one in wanted)
    ids.pop(None, None)
    return [(MESSAGES.several, {"ids": list(ids)})] if ids else []


def answered(tx: Read, wanted: Sequence[Row]) -> dict[int, Row]:
    """The messages that these answer, by their ids."""
    return {row["id"]: row for rows in tx.ask(questions(wanted)) for row in rows}


def post(
    tx: Write,
    scope: Scope,
    body: str,
    *,
    kind: str = "message",
    to: str | None = None,
    channel: str | None = None,
    reply_to: int | None = None,
    known: dict[int, Row] | None = None,
) -> Message:
    """Add a message, signed by the caller, in the caller's transaction.

    known: the message that it answers, by its id
    """
    caller, thread = scope.caller, None
    if reply_to is not None:
        first = (known or {}).get(reply_to)
        if first is None:
            raise NotFoundError(
                f"there is no message {reply_to} to reply to", next="list the message history"
            )
        thread = first["thread"]
        if to is None and channel is None:
            # A reply goes to where the question came from; a reply to one's own, to its recipient.
            channel, to = first["channel"], first["recipient"]
            if to is not None and first["sender"] != caller.agent:
                to = first["sender"]
    id = tx.event(
        f"message.{'announced' if kind == 'announcement' else 'sent'}",
        to or channel or "",
        grows=True,
    )
    row: Row = {"id": id, "kind": kind, "sender": caller.agent, "session": caller.session}
    row |= {"recipient": to, "channel": channel, "thread": thread or id, "reply_to": reply_to}
    return keep(tx, scope.keys, row, body)


def send_as(tx: Write, keys: Keyring, by: tuple[str, int], body: str, *, to: str) -> Message:
    """Tell an agent what happened to something of its own, because of another agent's session.

    by: the other agent and its session, which need not be the caller's
    """
    agent, session = by
    id = tx.event("message.sent", to, agent=agent, session=session)
    row: Row = {"id": id, "kind": "message", "sender": agent, "session": session}
    row |= {"recipient": to, "channel": None, "thread": id, "reply_to": None}
    return keep(tx, keys, row, body)


def keep(tx: Write, keys: Keyring, row: Row, body: str) -> Message:
    """Store a message, signed by its sender, and index its words."""
    id = row["id"]
    row |= {"body": body, "sent_at": tx.wall}
    row["signature"] = keys.message(row)
    tx.run(MESSAGES.post, row)
    for word in sorted(words(body)):
        tx.run(MESSAGES.index_word, id=id, word=word)
    return message_record(row, False)


def words(text: str) -> set[str]:
    """The words by which a text is found: letters and digits, case folded."""
    import re  # late, since most commands neither send nor search

    return {word[:WORD_LIMIT] for word in re.findall(r"\w+", text.casefold())}
