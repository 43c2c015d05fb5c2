"""`dibs swarm`: the user's agents, each with its own task and worktree.

The supervisor uses the ordinary operations: it claims a task, starts the user's command on it, and
hands in the commit to be landed. What it knows is in the store and in git, and nowhere else:

    who works on what       sessions NAME/w1, NAME/w2 … with the task that each has claimed
    how many at once        leases: a worker holds `swarm:slot:N`, and N is at most the limit
    limits, cost, an end    entries in the namespace `swarm` (see `limits`)
    where the log is        the entry `swarm.tasks/TASK`; the logs are in `.dibs/logs`
    state of a worktree     its HEAD: on the branch of an attempt, or idle (see `worktree`)

So a supervisor can be killed at any moment. The kernel ends its sessions, which releases their
tasks and slots; a shell at the end of a pipe ends the commands (`GroupTether`). The next supervisor
finds the tasks as `next` finds them, and keeps what was not committed. Several supervisors share
the slots, and so the limits. Limits apply only to `dibs swarm`: an agent that starts another one by
itself is not counted.

Commands never come from the store: the person who starts a supervisor says what agent, planner and
verification are.
"""
