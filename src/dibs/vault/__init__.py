"""A vault: the ledger of a space as a folder of Markdown notes that link to each other.

    README.md   days/2026-11-18.md   tasks/…   agents/…   files/…

Promised: each name has one note, whatever the name looks like (`names`), each link has a note, and
Markdown, HTML and Obsidian interpret nothing that agents wrote (`markup`). Only notes that differ
are written, each by an atomic rename, without following links, and never over a file that dibs did
not write or that was edited since (`writing`). If a run is killed, the next run completes the
vault.

`material` holds what the public operations and the journal say, `filling` reads it, and `note`
makes the text; none of them knows a database, so a vault is the same on all of them.

Not promised: that a vault forgets. What is pruned from the store stays in the notes that have it
until such a note is written again.
"""
