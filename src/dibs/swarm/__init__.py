"""`dibs swarm`: agents of the user's, each on a task and in a worktree of its own.

A supervisor over the operations that are there: it claims a task, starts the user's command on it,
and hands the commit in to be landed. What it knows is in the store and in git, and nowhere else:

    who works on what       sessions NAME/w1, NAME/w2 … with the task that each has claimed
    how many at once        leases: who works holds `swarm:slot:N`, and N is at most the limit
    limits, cost, an end    entries in the namespace `swarm` (see `limits`)
    where the log is        the entry `swarm.tasks/TASK`; the logs are in `.dibs/logs`
    what a worktree holds   its HEAD: on a branch of an attempt, or set free (see `worktree`)

So a supervisor can be killed at any moment. The kernel ends its sessions, whose tasks and slots are
free then; a shell at the end of a pipe ends the commands (`GroupTether`). The next supervisor finds
the tasks as `next` finds them, and keeps what was not committed. Several supervisors share the
slots, and so the limits. What is said of limits holds for who uses `dibs swarm`: an agent that
starts another by itself is not seen.

Commands never come out of the store: what agent, planner and verification are, the person says
who starts a supervisor.
"""
