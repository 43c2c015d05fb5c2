"""Landing: branches are merged, verified and put on their target, even if processes die.

Landings are tasks in the store (`work.land`), and the holder of a target's lease conducts them.
This package does the git part. `train` makes the merges in the object database, `objects` reads
and writes there, `bar` says what a target requires, `verifying` tests a commit in a separate
worktree, and `conducting` lands one after the other.
"""
