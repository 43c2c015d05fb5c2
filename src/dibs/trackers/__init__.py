"""Where people's tasks already are: files, forges and other tools' lists of issues.

Each module knows one format. `parse` turns a text into the arguments of `work.put`, each with its
place in the text, or with what is wrong with it; `write` turns tasks into a text. `formats` detects
the format of a text, `importing` imports records, and `syncing` keeps a source and the tasks here
in sync.
"""
