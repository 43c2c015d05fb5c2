"""The pages of the dashboard, each with an address of its own, in a real Chromium."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from dibs.nouns.events.kinds import kinds
from dibs.surfaces.http.watching import FOLDER, LOG_BYTES
from tests.surfaces.browser import Agent, chromium, looking, sign_in
from tests.surfaces.daemon import Daemon, serving
from tests.surfaces.shell import PATIENCE_S, Shell, finish
from tests.surfaces.test_dashboard import MARKUP, PERSON, PHONE, busy_scene, item, serious

STRANGE = "github:a/b#1?x=%2F&y=../..;<b>"
"""A task's id with all that an address could trip over."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def daemon(shell: Shell) -> Iterator[Daemon]:
    with serving(shell) as found:
        yield found


@pytest.fixture
def page(browser: Browser, daemon: Daemon) -> Iterator[Page]:
    with looking(browser, daemon, PERSON) as found:
        expect(found.locator("#connection")).to_have_text("live")
        yield found


@pytest.fixture
def agent(shell: Shell, daemon: Daemon) -> Iterator[Callable[[str], Agent]]:
    with ExitStack() as stack:

        def start(name: str) -> Agent:
            found = Agent(shell, name)
            stack.callback(found.close)
            return found

        yield start


def section(page: Page, name: str) -> Any:
    return page.locator(f"#page-body > #{name}")


def about(page: Page) -> tuple[str, dict[str, list[str]]]:
    """What the address says."""
    parts = urlsplit(page.url)
    return parts.path, parse_qs(parts.query)


# ---- each page, by clicking and by its address ----------------------------------------------


def test_the_page_of_an_agent_says_what_it_holds_does_waits_for_and_said(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice, bob = agent("alice"), agent("bob")
    alice("agents.beat", status="rewriting the parser")
    alice("leases.claim", "src/a.py", note="the parser")
    bob("leases.claim", "src/b.py", note="mine")
    alice("work.claim", "fix-login")
    alice.begin("leases.claim", "src/b.py", wait_s=PATIENCE_S)
    bob("messages.send", "leave b to me", to="alice")
    page.locator("#agents-list").get_by_role("link", name="alice").click()
    expect(page.locator("#page-title")).to_have_text("alice")
    assert about(page) == ("/agent", {"name": ["alice"]})
    for _ in range(2):  # as it was reached, and by its address
        expect(section(page, "summary")).to_contain_text("rewriting the parser")
        expect(section(page, "summary")).to_contain_text("waits")
        expect(section(page, "holds")).to_contain_text("src/a.py")
        expect(section(page, "holds")).to_contain_text("the parser")
        expect(section(page, "waits")).to_contain_text("src/b.py")
        expect(section(page, "waits")).to_contain_text("bob holds")
        expect(section(page, "tasks")).to_contain_text("fix-login")
        expect(section(page, "said")).to_contain_text("leave b to me")
        expect(section(page, "did")).to_contain_text("alice claimed src/a.py")
        expect(page.locator("#board")).to_be_hidden()
        page.reload()
    # It lives.
    bob("leases.release", "src/b.py")
    expect(section(page, "waits")).to_contain_text("It waits for nothing.")
    expect(section(page, "holds")).to_contain_text("src/b.py")


def test_the_page_of_a_task_has_its_payload_result_attempts_graph_and_files(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice, bob = agent("alice"), agent("bob")
    alice("work.add", "design", title="draw it")
    alice("work.add", "build", after=["design"], payload={"branch": "b7"}, leases=["src/c.py"])
    alice("work.add", "ship", after=["build"])
    alice("work.claim", "design")
    alice("work.complete", "design")
    bob("work.claim", "build")
    bob("work.abandon", "build", reason="the tests\nare red")
    alice("work.claim", "build")
    page.locator(".column.is-claimed").get_by_role("link", name="build", exact=True).click()
    expect(page.locator("#page-title")).to_have_text("build")
    assert about(page) == ("/task", {"id": ["build"]})
    expect(section(page, "payload")).to_contain_text('"branch": "b7"')
    expect(section(page, "attempts").locator("li")).to_have_count(2)
    expect(section(page, "attempts").locator("li").first).to_contain_text("under way")
    failed = section(page, "attempts").locator("li").last
    expect(failed).to_contain_text("bob")
    failed.get_by_text("What it said").click()
    expect(failed.locator("pre")).to_have_text("the tests\nare red")
    expect(section(page, "files")).to_contain_text("src/c.py held by alice")
    graph = section(page, "graph")
    expect(graph.locator("g.node")).to_have_count(3)
    expect(graph.locator("path.edge")).to_have_count(2)
    alice("work.complete", "build", result={"commit": "e4c1d7"})
    expect(section(page, "outcome")).to_contain_text("e4c1d7")
    # From task to task by the graph, and back.
    graph.get_by_role("link", name="ship").last.click()
    expect(page.locator("#page-title")).to_have_text("ship")
    page.go_back()
    expect(page.locator("#page-title")).to_have_text("build")
    page.go_back()
    expect(page.locator("#board")).to_be_visible()
    expect(page.locator(".column.is-done")).to_contain_text("build")
    page.go_forward()
    expect(section(page, "outcome")).to_contain_text("e4c1d7")
    page.reload()
    expect(section(page, "outcome")).to_contain_text("e4c1d7")


def test_the_page_of_a_task_shows_the_end_of_each_log_as_text_or_where_it_is(
    page: Page, shell: Shell, daemon: Daemon
) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.invalid"]
    commit = [*git, "commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(commit, cwd=shell.folder, check=True)
    shell.as_("lead").ok("work", "add", "fix")
    colours = r"\033[31mred\033[0m\007 \342\200\256 <b>loud</b>\n"
    printed = f"yes | head -n 20000; printf '{colours}'; exit 3"
    swarm = ("swarm", "1", "--attempts", "1", "--", "sh", "-c", printed)
    logs = []
    for _ in range(2):
        assert finish(shell.start(*swarm), 60).code == 0
        logs.append(shell.json("swarm", "logs", "fix")["log"])
        shell.person(PERSON).ok("work", "reopen", "fix")
    Path(logs[0]).unlink()
    page.goto("/task?id=fix")
    attempts = section(page, "attempts").locator("li")
    expect(attempts).to_have_count(2)
    last, first = attempts.nth(0), attempts.nth(1)
    last.get_by_text("End of its log").click()
    shown = last.locator("details").last.locator("pre")
    expect(shown).to_contain_text("y\ny\nred  <b>loud</b>")
    assert len(shown.inner_text()) <= LOG_BYTES
    expect(last).to_contain_text(f"The whole log is in {logs[1]}")
    first.get_by_text("End of its log").click()
    expect(first).to_contain_text(f"Look on the machine that ran the attempt: {logs[0]}")
    # Nobody else is shown a log, and nothing but logs is shown.
    client = daemon.client()
    ask = ("GET", "/attempt-logs?task=fix")
    assert next(iter(client.request(*ask).json.values())).endswith("<b>loud</b>")
    refused = client.request(*ask, headers={"Dibs-Party": "agent"})
    assert (refused.status, refused.json["error"]) == (403, "not_yours")
    assert client.request(*ask, headers={"Authorization": ""}).status == 401
    client.close()
    secret = Path(logs[1]).with_name("secret.log")
    secret.symlink_to(shell.folder / ".git" / "HEAD")
    for path in (str(secret), str(shell.folder / ".git" / "HEAD"), f"{secret.parent}/../x.log"):
        value = json.dumps({"epoch": 1, "log": path})
        shell.as_("mallory").ok("state", "set", "swarm.tasks", "evil", value, "--force")
        assert daemon.client().request("GET", "/attempt-logs?task=evil").json == {}


def test_the_page_of_a_path_has_its_holders_waits_and_changes(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice, bob = agent("alice"), agent("bob")
    alice("leases.claim", "src/a.py", note="the parser")
    bob.begin("leases.claim", "src/a.py", wait_s=PATIENCE_S)
    page.locator("#leases-tree").get_by_role("link", name="src/a.py").click()
    expect(page.locator("#page-title")).to_have_text("src/a.py")
    assert about(page) == ("/path", {"name": ["src/a.py"]})
    expect(section(page, "holders")).to_contain_text("alice holds it")
    expect(section(page, "holders")).to_contain_text("the parser")
    expect(section(page, "waiting")).to_contain_text("bob waits for it")
    alice("leases.release", "src/a.py", outcome="modified")
    bob.hear()
    expect(section(page, "holders")).to_contain_text("bob holds it")
    expect(section(page, "waiting")).to_contain_text("Nobody waits for it.")
    expect(section(page, "waits")).to_contain_text("bob waited")
    expect(section(page, "changes")).to_contain_text("modified by alice")
    expect(section(page, "did")).to_contain_text("alice released src/a.py")
    # What holds a folder is told of all that is in it.
    page.locator(".crumbs").get_by_role("link", name="src").click()
    expect(page.locator("#page-title")).to_have_text("src")
    expect(section(page, "holders")).to_contain_text("bob holds src/a.py")


def test_any_name_makes_an_address(page: Page, agent: Callable[[str], Agent]) -> None:
    alice = agent("alice/tests")
    for id in (STRANGE, "..", MARKUP[:150]):
        alice("work.add", id, title=f"title of {id[:60]}")
    for id in (STRANGE, "..", MARKUP[:150]):
        page.locator(".column.is-available").get_by_role("link", name=id, exact=True).click()
        expect(page.locator("#page-title")).to_have_text(id)
        expect(section(page, "summary")).to_contain_text(f"title of {id[:60]}")
        page.reload()
        expect(page.locator("#page-title")).to_have_text(id)
        page.locator("#page-home").click()
        expect(page.locator("#board")).to_be_visible()
    page.locator("#agents-list").get_by_role("link", name="alice/tests").click()
    expect(page.locator("#page-title")).to_have_text("alice/tests")
    assert page.evaluate("window.hacked") is None


def test_what_is_unknown_is_said_to_be(browser: Browser, daemon: Daemon) -> None:
    with browser.new_context(base_url=daemon.url) as context:
        page = context.new_page()  # one that may complain: the browser notes the refusal
        page.goto(sign_in(daemon, PERSON))
        for address in ("/task?id=nothing", "/agent?name=nobody"):
            page.goto(address)
            expect(page.locator("#unknown")).to_be_visible()
        page.goto("/path?name=src/none.py")
        expect(page.locator("#holders")).to_contain_text("Nobody holds it.")


def test_a_person_acts_on_the_pages(page: Page, agent: Callable[[str], Agent]) -> None:
    alice = agent("alice")
    alice("leases.claim", "src/a.py")
    page.goto("/agent?name=alice")
    page.get_by_role("button", name="Release src/a.py, held by alice").click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    expect(section(page, "holds")).to_contain_text("It holds nothing.")
    page.get_by_role("button", name="Write to alice").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.type("sorry")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#toast")).to_contain_text("sent to alice")
    assert alice("messages.inbox")[-1]["body"] == "sorry"


def test_what_happened_long_ago_is_asked_for_page_by_page(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice = agent("alice")
    for number in range(60):
        alice("leases.claim", "port:1", note=f"round {number}.")
        alice("leases.release", "port:1")
    page.goto("/path?name=port:1")
    expect(section(page, "did").locator("li")).to_have_count(50)
    section(page, "did").get_by_role("button", name="Show earlier events").click()
    expect(section(page, "did").locator("li")).to_have_count(100)
    section(page, "did").get_by_role("button", name="Show earlier events").click()
    expect(section(page, "did")).to_contain_text("round 0.")
    expect(section(page, "did").get_by_role("button")).to_have_count(0)
    alice("leases.claim", "port:1", note="once more")
    expect(section(page, "did").locator("li")).to_have_count(121)
    expect(section(page, "did").locator("li").first).to_contain_text("once more")


def test_every_kind_of_event_has_words() -> None:
    source = Path(FOLDER, "journal.js").read_text()
    assert [kind for kind in kinds() if f'"{kind}": "' not in source] == []


# ---- signing in ----------------------------------------------------------------------------


def test_whoever_signs_in_comes_to_the_address_they_wanted(
    browser: Browser, daemon: Daemon, agent: Callable[[str], Agent]
) -> None:
    agent("alice")("work.add", "fix-login", title="the title")
    with browser.new_context(base_url=daemon.url) as context:
        asking = context.new_page()
        asking.goto("/task?id=fix-login")
        expect(asking.locator("#signin")).to_be_visible()
        signed = context.new_page()
        signed.goto(sign_in(daemon, PERSON))
        expect(signed.locator("#page-title")).to_have_text("fix-login")
        # The one that asked goes on by itself when somebody comes back to it.
        asking.bring_to_front()
        asking.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(asking.locator("#summary")).to_contain_text("the title")
        signed.goto("/")
        expect(signed.locator("#board")).to_be_visible()


def test_a_used_link_shows_a_page(browser: Browser, daemon: Daemon) -> None:
    link = sign_in(daemon, PERSON)
    with browser.new_context(base_url=daemon.url) as context:
        page = context.new_page()
        page.goto(link)
        answer = page.goto(link)
        assert answer is not None
        assert (answer.status, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
        assert answer.headers["cache-control"] == "no-store"
        expect(page.locator("h2")).to_have_text("This link has expired or was already used")
        expect(page.locator("main")).to_contain_text("dibs open")
        assert serious(page) == []
    client = daemon.client()
    assert client.request("GET", link).error == "bad_code"
    client.close()


def test_the_page_is_called_like_the_repository(page: Page, daemon: Daemon) -> None:
    name = daemon.shell.folder.name
    expect(page.locator("#space")).to_have_text(name)
    expect(page).to_have_title(f"dibs {name}")


# ---- what is true --------------------------------------------------------------------------


def test_counts_and_empty_states_are_true_under_a_filter(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice, bob = agent("alice"), agent("bob")
    alice("leases.claim", "src/a.py", "docs/b.md")
    for number in range(3):
        alice("work.add", f"task-{number}", title="odd" if number % 2 else "even")
    bob("messages.announce", "something")
    expect(page.locator("#count-work")).to_have_text("3")
    page.locator("#filter").fill("odd")
    expect(page.locator("#count-work")).to_have_text("1 of 3")
    expect(page.locator("#column-available")).to_have_text("Available 1 of 3")
    expect(page.locator("#count-agents")).to_have_text("0 of 2")
    expect(page.locator("#agents-none")).to_have_text("No agents match the filter.")
    expect(page.locator("#leases-none")).to_have_text("Nothing matches the filter.")
    expect(page.locator("#count-leases")).to_have_text("0 of 2")
    expect(page.locator("#messages-none")).to_contain_text("matches the filter")
    # The address keeps it.
    assert about(page) == ("/", {"filter": ["odd"]})
    page.reload()
    expect(page.locator("#filter")).to_have_value("odd")
    expect(page.locator("#count-work")).to_have_text("1 of 3")
    page.locator("#filter").fill("nothing like it")
    expect(page.locator("#work-none")).to_have_text("No tasks match the filter.")
    page.locator("#filter").fill("")
    expect(page.locator("#count-agents")).to_have_text("2")
    expect(page.locator("#count-leases")).to_have_text("2")


def test_tasks_that_were_not_loaded_count_and_are_found_and_shown(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice = agent("alice")
    tasks = [{"id": f"task-{number:03}", "title": f"title {number:03}"} for number in range(260)]
    alice("work.add_many", tasks)
    expect(page.locator("#column-available")).to_have_text("Available 260")
    cards = page.locator(".column.is-available .card")
    expect(cards).to_have_count(20)
    page.locator("#filter").fill("title 25")  # those are beyond what was loaded
    expect(page.locator("#column-available")).to_have_text("Available 10 of 260")
    expect(cards).to_have_count(10)
    expect(page.locator("#count-work")).to_have_text("10 of 260")
    page.locator("#filter").fill("")
    more = page.get_by_role("button", name="Show more tasks: Available")
    for _ in range(8):
        expect(more).to_be_visible()
        more.click()
    expect(more).to_have_count(0)
    expect(cards).to_have_count(260)


def test_a_filter_finds_tasks_by_what_they_have_and_names_no_loaded_task_unknown(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice = agent("alice")
    tasks = [
        {"id": f"task-{number:03}", "tags": ["sql"] if number % 2 else ["python"]}
        for number in range(260)
    ]
    alice("work.add_many", tasks)
    alice("work.add", "last", after=["task-259"])
    expect(page.locator("#column-available")).to_have_text("Available 260")
    page.locator("#filter").fill("SQL")
    expect(page.locator("#column-available")).to_have_text("Available 130 of 260")
    page.locator("#filter").fill("available")
    expect(page.locator("#column-available")).to_have_text("Available 200+ of 260")
    page.locator("#filter").fill("last")
    expect(page.locator(".column.is-blocked .needs")).to_have_text("after task-259")
    expect(page.locator("#plan")).to_be_hidden()


def test_what_was_done_before_thousands_of_events_is_shown_as_done(
    page: Page, agent: Callable[[str], Agent]
) -> None:
    alice = agent("alice")
    for number in range(20):
        alice("work.claim", f"done-{number:02}")
        alice("work.complete", f"done-{number:02}")
    for begin in range(0, 4400, 200):
        alice("work.add_many", [{"id": f"t{begin + number}"} for number in range(200)])
    page.reload()
    expect(page.locator("#column-done")).to_have_text("Done 20")
    expect(page.locator(".column.is-done .card")).to_have_count(15)
    page.get_by_role("button", name="Show more tasks: Done").click()
    expect(page.locator(".column.is-done .card")).to_have_count(20)


def test_many_who_died_are_one_row(page: Page, agent: Callable[[str], Agent]) -> None:
    names = [f"worker{number}" for number in range(4)]
    crew = [agent(name) for name in names]
    for number, one in enumerate(crew):
        one("leases.claim", f"port:{number}")
    expect(page.locator("#agents-list > li")).to_have_count(4)
    crew[0].die()
    expect(item(page, "died", "worker0", "port:0")).to_be_visible()
    for one in crew[1:]:
        one.die()
    deaths = page.locator("#attention-list > li").filter(has_text="died")
    expect(deaths).to_have_count(1)
    expect(deaths).to_contain_text("4 agents died")
    deaths.get_by_text("Who").click()
    for name in names:
        expect(deaths.get_by_role("link", name=name)).to_be_visible()
    page.locator("#filter").fill("worker2")
    expect(deaths).to_contain_text("1 of 4 agents died")


def test_contention_over_time_is_drawn(page: Page, agent: Callable[[str], Agent]) -> None:
    alice, bob = agent("alice"), agent("bob")
    alice("leases.claim", "src/a.py")
    bob.begin("leases.claim", "src/a.py", wait_s=PATIENCE_S)
    expect(page.locator("#waits-says")).to_contain_text("1 wait, ")
    expect(page.locator("#waits-chart rect").first).to_be_attached()
    page.get_by_text("Which agents compete most").click()
    expect(page.locator("#insights-body li").first).to_contain_text("alice and bob 1 time, ")
    page.locator("#contention-rows").get_by_role("link", name="src/a.py").click()
    expect(page.locator("#page-title")).to_have_text("src/a.py")


# ---- the past ------------------------------------------------------------------------------


def a_past(page: Page, daemon: Daemon, agent: Callable[[str], Agent]) -> int:
    """Something that was, and is no more; the seq at which it was."""
    alice, bob = agent("alice"), agent("bob")
    alice("leases.claim", "src/a.py", note="the parser")
    alice("work.claim", "fix-login")
    alice("state.set", "plan", "goal", "monday")
    bob.begin("leases.claim", "src/a.py", wait_s=PATIENCE_S)
    expect(item(page, "blocked", "bob")).to_be_visible()
    then = int(daemon.client()("events.last"))
    alice("work.complete", "fix-login", result="done")
    alice("leases.release", "src/a.py")
    bob.hear()
    bob("leases.release", "src/a.py")
    alice("state.set", "plan", "goal", "friday", expected_version=1)
    expect(page.locator("#leases-none")).to_be_visible()
    return then


def test_the_slider_shows_an_earlier_moment(
    page: Page, daemon: Daemon, agent: Callable[[str], Agent]
) -> None:
    then = a_past(page, daemon, agent)
    slider = page.get_by_role("slider", name="Moment")
    expect(slider).to_be_visible()
    slider.fill(str(then))
    expect(page.locator("#moment-says")).to_contain_text("The past: ")
    expect(page.locator("#moment-says")).to_contain_text(f"event {then} of")
    assert about(page) == ("/", {"at": [str(then)]})
    for _ in range(2):  # by the slider, and by the address
        expect(page.locator("#leases-tree .holder")).to_contain_text("alice")
        expect(page.locator("#leases-tree .queue")).to_contain_text("bob")
        expect(page.locator(".column.is-claimed .card")).to_contain_text("fix-login")
        expect(page.locator("#column-done")).to_have_text("Done 0")
        expect(page.locator("#state-list")).to_contain_text("monday")
        # Nothing can be done to it, and what is not known of it is not shown.
        for name in ("Release", "Requeue", "Write", "Send", "Freeze"):
            expect(page.get_by_role("button", name=name)).to_have_count(0)
        expect(page.locator("#attention")).to_be_hidden()
        page.reload()
    # What happens now does not change it.
    agent("carol")("leases.claim", "src/new.py")
    page.wait_for_timeout(500)
    expect(page.locator("#leases-tree")).not_to_contain_text("src/new.py")
    # Links stay in it.
    page.locator(".column.is-claimed").get_by_role("link", name="fix-login").click()
    expect(section(page, "summary")).to_contain_text("claimed by alice")
    expect(section(page, "did")).not_to_contain_text("completed")
    page.keyboard.press("n")
    expect(section(page, "summary")).to_contain_text("completed")
    assert about(page) == ("/task", {"id": ["fix-login"]})
    page.go_back()
    expect(section(page, "summary")).to_contain_text("claimed by alice")
    page.go_back()
    expect(page.locator("#moment-says")).to_contain_text("The past")
    page.get_by_role("button", name="Back to now").click()
    expect(page.locator("#leases-tree")).to_contain_text("src/new.py")
    expect(page.locator("#state-list")).to_contain_text("friday")
    expect(page.locator("#attention")).to_be_visible()
    expect(page.get_by_role("button", name="Release src/new.py, held by carol")).to_be_visible()
    assert about(page) == ("/", {})


def test_the_past_of_more_tasks_than_are_loaded_is_true_too(
    page: Page, daemon: Daemon, agent: Callable[[str], Agent]
) -> None:
    alice = agent("alice")
    for begin in range(0, 1200, 200):
        ids = [f"task-{begin + number:04}" for number in range(200)]
        alice("work.add_many", [{"id": id, "title": f"title {id}"} for id in ids])
    alice("work.add", "last", after=["task-1198"])
    then = int(daemon.client()("events.last"))
    alice("work.claim", "task-1198")
    page.goto(f"/?at={then}")
    expect(page.locator("#column-available")).to_have_text("Available 1,200")
    expect(page.locator(".column.is-blocked .card")).to_contain_text("last")
    more = page.get_by_role("button", name="Show more tasks: Available")
    while more.count():
        more.click()
    expect(page.locator("#more-available")).to_contain_text("more are not loaded; use the filter")
    page.locator("#filter").fill("title task-119")
    expect(page.locator("#column-available")).to_have_text("Available 10 of 1,200")
    expect(page.locator(".column.is-available .card")).to_have_count(10)
    expect(page.locator("#now")).to_have_text("Then")
    page.goto(f"/task?id=task-1198&at={then}")
    expect(section(page, "summary")).to_contain_text("title task-1198")
    expect(section(page, "graph")).to_contain_text("needed by last")
    page.goto(f"/task?id=last&at={then}")
    expect(section(page, "graph").locator("g.is-available")).to_contain_text("task-1198")
    page.goto(f"/task?id=never&at={then}")
    expect(section(page, "unknown")).to_contain_text("There is no task")


def test_the_slider_moves_by_keyboard_and_one_step_leads_back(
    page: Page, daemon: Daemon, agent: Callable[[str], Agent]
) -> None:
    a_past(page, daemon, agent)
    slider = page.get_by_role("slider", name="Moment")
    last = int(daemon.client()("events.last"))
    expect(slider).to_have_attribute("max", str(last))
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#moment-says")).to_contain_text(f"event {last - 3} of {last}")
    expect(page.locator("body")).to_have_class("is-past")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#moment-says")).to_contain_text(f"event {last - 4} of {last}")
    expect(slider).to_be_focused()
    assert serious(page) == []
    page.go_back()
    expect(page.locator("#moment-says")).to_have_text("now")
    expect(page.locator("body")).not_to_have_class("is-past")


def test_a_moment_that_is_not_kept_is_refused_and_now_is_shown(
    browser: Browser, daemon: Daemon, agent: Callable[[str], Agent]
) -> None:
    agent("alice")("leases.claim", "src/a.py")
    with browser.new_context(base_url=daemon.url) as context:
        page = context.new_page()  # one that may complain: the browser notes the refusal
        page.goto(sign_in(daemon, PERSON))
        page.goto("/?at=999999999")
        expect(page.locator("#toast")).to_contain_text("Refused: ")
        expect(page.locator("#leases-tree")).to_contain_text("src/a.py")
        assert about(page) == ("/", {})


# ---- for everybody -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "theme"), [("desk", "light"), ("desk", "dark"), ("phone", "light")]
)
def test_axe_finds_nothing_serious_on_the_pages(
    browser: Browser, daemon: Daemon, agent: Callable[[str], Agent], device: str, theme: Any
) -> None:
    options = PHONE if device == "phone" else {}
    busy_scene(agent)
    with looking(browser, daemon, PERSON, color_scheme=theme, **options) as page:
        for address in ("/agent?name=bob", "/task?id=second", "/path?name=src/a.py"):
            page.goto(address)
            expect(page.locator("#did li").first).to_be_visible()
            for closed in page.locator("details:visible > summary").all():
                closed.click()
            assert serious(page) == [], address
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{wide} pixels of {address} do not fit"


def test_the_pages_are_reached_by_keyboard(page: Page, agent: Callable[[str], Agent]) -> None:
    alice = agent("alice")
    alice("leases.claim", "src/a.py")
    link = page.locator("#agents-list").get_by_role("link", name="alice")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#page-title")).to_be_focused()
    expect(page).to_have_title(re.compile("^alice · dibs "))
    home = page.locator("#page-home")
    home.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#board")).to_be_visible()


def test_a_link_that_was_followed_during_a_break_is_shown_after_it(
    browser: Browser, daemon: Daemon, agent: Callable[[str], Agent]
) -> None:
    agent("alice")("work.add", "fix-login", title="the title")
    # Who signs in with a cookie must do so again after a restart, who has a token need not.
    headers = {"Authorization": f"Bearer {daemon.token}"}
    with browser.new_context(base_url=daemon.url, extra_http_headers=headers) as context:
        page = context.new_page()
        page.goto("/")
        card = page.locator(".column.is-available").get_by_role("link", name="fix-login")
        expect(card).to_be_visible()
        daemon.kill()
        expect(page.locator("#connection")).to_contain_text("connection lost")
        card.click()
        daemon.start()
        expect(page.locator("#summary")).to_contain_text("the title")
        expect(page.locator("#board")).to_be_hidden()
