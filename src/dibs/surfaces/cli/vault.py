"""`dibs vault`: the ledger as a folder of Markdown notes, written once or kept up to date.

The events since the last run determine which notes may differ, and only those are made again. If
there are none, only the end of the journal is read.
"""

from __future__ import annotations

import sys
import time

from dibs.errors import InvalidError, PrunedError
from dibs.operation import EVERYBODY
from dibs.records import called, folder
from dibs.surroundings.wording import note, print_json
from dibs.vault.filling import PAGE, read
from dibs.vault.filling import follow as follow_up
from dibs.vault.material import RELATED
from dibs.vault.names import DAYS, TASKS, Ref
from dibs.vault.note import note as note_about
from dibs.vault.writing import FORMAT, Vault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.dibs import Dibs
    from dibs.records import Event
    from dibs.surroundings.commands import Globals
    from dibs.vault.material import Material

BY = EVERYBODY
PATIENCE_S = 3600
PAUSE_S = 0.5
"""How long to collect events before notes are written again."""
SHOWN = 10


def main(call: Globals, dir: str, *, follow: bool = False) -> int:
    """Write Markdown notes about tasks, agents, files and days, with links between them.

    Obsidian opens the folder as a vault, and any forge shows it. A later run writes only what has
    changed. A note that you have edited is kept; delete it to have it written again.

    dir: an empty folder, a new one, or an earlier vault
    follow: keep the notes up to date until you press Ctrl-C
    example: ledger --follow
    """
    with call.open() as space, Vault(dir) as vault:
        ledger = bring_up_to_date(space, vault)
        tell(call, vault)
        try:
            while follow:
                ledger = go_on(call, space, vault, ledger)
        except KeyboardInterrupt:
            note(f"{folder(dir)} is up to date as of seq {vault.seq}")
    return 0


def bring_up_to_date(space: Dibs, vault: Vault) -> Material | None:
    """Write the notes that differ; None if there is nothing to do."""
    end = space.events.last()
    everything = vault.seq is None or vault.format != FORMAT
    if vault.seq is not None:
        refuse_other_store(space, vault, end)
        if vault.seq == end and not everything and not vault.missing():
            return None
    ledger = read(space, vault.seq)
    everything = everything or vault.seq is None or vault.seq < ledger.begins
    if everything:
        # The note of a day still has what the journal has lost.
        chosen = {
            ref: None
            for ref in ledger.refs()
            if ref.folder != DAYS or ref.name >= ledger.first_day or not vault.has(ref.path)
        }
    else:
        chosen = touched(ledger, vault, ledger.news)
    if vault.missing():
        write(ledger, vault, chosen, ledger.refs())
        vault.forget_missing()
    else:
        write(ledger, vault, chosen, ())
    finish(space, vault, ledger.seq)
    return ledger


def refuse_other_store(space: Dibs, vault: Vault, end: int) -> None:
    """Refuse a folder with the notes of another store, or of a later state of this one."""
    seq = vault.seq or 0
    found = mark_of(space, seq)
    # If the last event of the vault is gone, it was pruned.
    if seq > end or (vault.mark and found and vault.mark != found):
        raise InvalidError(
            f"{folder(vault.path)} is the vault of another store", next="name another folder"
        )


def mark_of(space: Dibs, seq: int) -> list[object]:
    """What identifies this store: its last event up to a seq."""
    return [
        value
        for event in space.events.latest(until=seq, limit=1)
        for value in (event.seq, event.kind, event.at)
    ]


def touched(ledger: Material, vault: Vault, news: Iterable[Event]) -> dict[Ref, None]:
    """The notes that events may have changed."""
    found: dict[Ref, None] = {}
    for event in news:
        found |= dict.fromkeys(ledger.touched(event))
        if event.kind in RELATED:
            # Also those it belonged to before, which only its note still names.
            found |= dict.fromkeys(vault.linked(Ref(TASKS, event.subject).path))
    return found


def write(ledger: Material, vault: Vault, chosen: dict[Ref, None], others: Iterable[Ref]) -> None:
    """Write the chosen notes, and every missing note that they or the others link to."""
    queue = [*chosen, *(ref for ref in others if ref not in chosen)]
    queued = set(queue)
    for ref in queue:
        made = note_about(ledger, ref)
        if ref in chosen or not vault.has(ref.path):
            vault.write(ref.path, made.text)
        for link in made.links:
            if link not in queued:
                queued.add(link)
                if not vault.has(link.path):
                    queue.append(link)


def finish(space: Dibs, vault: Vault, seq: int) -> None:
    vault.finish(seq, mark_of(space, seq))


def go_on(call: Globals, space: Dibs, vault: Vault, ledger: Material | None) -> Material | None:
    """Wait for events, and write the notes that differ; return what is known afterwards."""
    try:
        if ledger is None:
            ledger = read(space, vault.seq)
            ledger.seq = vault.seq or 0
        if space.events.watch(ledger.seq, limit=1, wait_s=PATIENCE_S):
            time.sleep(PAUSE_S)
            news = space.events.since(ledger.seq, limit=PAGE)
            follow_up(space, ledger, news)
            write(ledger, vault, touched(ledger, vault, news), ())
            finish(space, vault, ledger.seq)
            tell(call, vault)
        return ledger
    except PrunedError:
        return bring_up_to_date(space, vault)  # from all that is kept


def tell(call: Globals, vault: Vault) -> None:
    """Say how many notes were written, and once for each note why it was kept."""
    kept = vault.take_kept()
    if call.json:
        print_json({"written": vault.written, "kept": kept, "seq": vault.seq})
        sys.stdout.flush()
    else:
        number = f"{vault.written:,} {'note' if vault.written == 1 else 'notes'}"
        note(f"{number} written, up to seq {vault.seq}")
        for path, why in [*kept.items()][:SHOWN]:
            note(f"{called(f'{path}.md')} {why}, so it is kept; delete it to have it written again")
        if len(kept) > SHOWN:
            note(f"and {len(kept) - SHOWN} more are kept")
    vault.written = 0
