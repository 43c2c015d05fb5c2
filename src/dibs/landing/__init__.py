"""Landing: branches are merged, verified and put onto their target, whatever dies meanwhile.

Landings are tasks in the store (`work.land`), and whoever holds the lease of a target conducts
them. Here is what that needs of git. `train` makes the merges in the object database, `objects`
reads and writes there, `bar` says what a target asks for, `verifying` tries a commit out in a
worktree of its own, and `conducting` does one after the other.
"""
