"""A client's own list of tasks, mirrored as work if the settings ask for it (`client_tasks`).

A task that an agent puts on its list is added and claimed for that agent, so that others see what
it is going to do and do not take it. What is not done when its session ends becomes available to
all. A team's list is open to all, since the client does not say which member takes a task.
"""

from __future__ import annotations

from dibs.arguments import TTL_MAX_S
from dibs.errors import ExistsError, RefusedError
from dibs.surroundings.occasion import DONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.surfaces.hooks.case import Case

MIRROR = "mirror"
LONGEST = 200


def mirror(case: Case) -> None:
    occasion = case.occasion
    if case.config.client_tasks != MIRROR or not occasion.task:
        return
    id = f"{occasion.client}:{occasion.team or occasion.session}#{occasion.task}"
    work = case.agent.work
    try:
        try:
            work.add(id, title=" ".join(occasion.title.split())[:LONGEST])
        except ExistsError:
            pass
        if occasion.event == DONE:
            work.claim(id)
            work.complete(id)
        elif not occasion.team:
            work.claim(id, ttl_s=TTL_MAX_S)
    except RefusedError:
        pass  # somebody has it, or it is done: the store says so already
