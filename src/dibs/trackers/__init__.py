"""Where people's tasks already are: files, forges and other tools' lists of issues.

Each module knows one format. `parse` makes of a text the arguments of `work.put`, each with the
place it came from, or with what is wrong with it; `write` makes a text of tasks. `formats` finds
out which format a text has, `importing` brings records in, and `syncing` keeps a source and the
tasks here equal.
"""
