"""The dashboard with ten thousand tasks and two hundred agents, in a real Chromium."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import dibs
from dibs.dibs import Dibs
from tests.surfaces.browser import chromium, looking
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import Shell
from tests.surfaces.test_dashboard import PERSON

TASKS, AGENTS, ENDED, ROUNDS = 10_000, 200, 300, 150
FIRST_VIEW_MS, LONG_TASK_MS = 1_000, 200
FIRST_VIEW = "first view"
QUIET_MS = 2_500
"""In which what comes in the background is there."""

# What the browser measures: tasks of its main thread that took long, and when all was first shown.
MEASURE = """
window.long = [];
new PerformanceObserver((list) => list.getEntries().forEach((one) => window.long.push(
  { took: one.duration, at: one.startTime }))).observe({ type: "longtask", buffered: true });
new MutationObserver(() => {
  const shown = document.querySelector("#board:not([hidden])") &&
    document.querySelectorAll("#agents-list > li").length > 0 &&
    document.querySelectorAll(".column.is-available .card").length > 0;
  if (shown && !window.firstView) window.firstView = performance.now();
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as found:
        yield found


def crowd(space: Dibs, stack: ExitStack) -> list[Any]:
    """Everybody, with what each holds and works on."""
    agents = [stack.enter_context(space.join(f"agent{number:03}")) for number in range(AGENTS)]
    lead = agents[0]
    tasks = [
        {
            "id": f"task-{number:05}",
            "title": f"change module {number:05} so that it does what it says",
            "payload": {"module": number, "steps": ["read", "change", "test"]},
            "priority": number % 7,
            "after": [f"task-{number - 1:05}"] if number % 20 == 19 else [],
        }
        for number in range(TASKS)
    ]
    for begin in range(0, TASKS, 200):
        lead.work.add_many(tasks[begin : begin + 200])
    for number in range(ENDED):
        lead.work.claim(f"task-{number * 20:05}")
        lead.work.complete(f"task-{number * 20:05}", result={"commit": "e4c1d7"})
    for number, one in enumerate(agents):
        one.agents.beat(status=f"works on module {number}")
        one.work.claim(f"task-{number * 20 + 1:05}")
        one.leases.claim(f"src/part{number % 15}/module{number}.py", f"docs/{number}.md")
        one.messages.announce(f"I begin with module {number}")
    return agents


@pytest.mark.stress
def test_ten_thousand_tasks_and_two_hundred_agents_stay_fluid(
    browser: Browser, daemon: Daemon, shell: Shell
) -> None:
    draw = random.Random(19)
    with ExitStack() as stack:
        space = stack.enter_context(dibs.open(start=str(shell.folder), user_dir=shell.user_dir))
        agents = crowd(space, stack)
        best: dict[str, float] = {}
        # A busy machine may hold one thing up in one round, but not in each of four.
        for _ in range(4):
            with looking(browser, daemon, PERSON) as page:
                page.add_init_script(MEASURE)
                for what, ms in one_round(page, agents, draw).items():
                    best[what] = min(ms, best.get(what, ms))
            if fits(best):
                break
    print(f"\n{TASKS:,} tasks, {AGENTS} agents, the first view and the longest tasks:")
    print("\n".join(f"{ms:7.0f} ms  {what}" for what, ms in best.items()))
    assert fits(best), best


def fits(best: dict[str, float]) -> bool:
    long = [ms for what, ms in best.items() if what != FIRST_VIEW]
    return best[FIRST_VIEW] < FIRST_VIEW_MS and max(long) < LONG_TASK_MS


def one_round(page: Page, agents: list[Any], draw: random.Random) -> dict[str, float]:
    """Open everything while all are at work: how soon it was there, the longest task of each."""
    took: dict[str, float] = {}
    page.goto("/")
    expect(page.locator(".column.is-available .card").first).to_be_visible()
    took[FIRST_VIEW] = float(page.evaluate("window.firstView"))
    expect(page.locator("#column-available")).to_contain_text("Available 9,")
    expect(page.locator("#count-agents")).to_have_text(str(AGENTS))
    expect(page.locator("#agents-list > li")).to_have_count(30)
    page.wait_for_timeout(QUIET_MS)
    took["loading"] = worst(page)
    # All are at work while somebody reads.
    for number in range(ROUNDS):
        one = draw.choice(agents)
        name = f"port:{draw.randrange(40)}"
        one.leases.claim(name)
        one.leases.release(name)
        one.agents.beat(status=f"round {number}")
        if number % 10 == 0:
            page.mouse.wheel(0, 900 if number % 40 else -9000)
    page.wait_for_timeout(QUIET_MS)
    took["following"] = worst(page)
    page.locator("#filter").fill("module 0999")
    expect(page.locator("#column-available")).to_contain_text("of 9")
    took["filtering"] = worst(page)
    page.locator("#filter").fill("")
    expect(page.locator("#column-available")).to_contain_text("Available 9,")
    page.get_by_role("button", name="Show more tasks: Available").click()
    expect(page.locator(".column.is-available .card")).to_have_count(50)
    took["showing more"] = worst(page)
    slider = page.get_by_role("slider", name="Moment")
    slider.fill(str(int(slider.get_attribute("max") or 0) - 50))
    expect(page.locator("#moment-says")).to_contain_text("The past")
    took["the past"] = worst(page)
    for address in ("/agent?name=agent007", "/task?id=task-05019", "/path?name=src"):
        page.goto(address)
        expect(page.locator("#did li").first).to_be_visible()
        took[address] = worst(page)
    return took


def worst(page: Page) -> float:
    """The longest task since the last time that this was asked."""
    return max(page.evaluate("window.long.splice(0).map((one) => one.took)"), default=0.0)
