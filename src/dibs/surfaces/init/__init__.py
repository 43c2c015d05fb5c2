"""`dibs init`: what dibs writes into the files of others, and how it takes it out again.

Every change is a set of insertions into a text (`draft`), so nothing of the user's can be lost.
What was inserted where is noted in `.dibs/init.json` (`record`), and taking it out is cutting
the same characters again. Where the note is gone, or the file has changed since, our parts are
recognised by what they say.
"""
