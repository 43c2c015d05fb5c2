"""Take the pictures in docs/images: the dashboard of `dibs demo`, its pages, and on a phone.

For the one of workers and trains, a crew joins that scene. It lands nothing, but all that is
shown are tasks, leases and sessions of it.

    python -m tools.screenshots

It needs Chromium (tests/surfaces/get_browser) and takes a minute, for the scene has to have a past.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

import dibs
from dibs.dibs import note_of
from dibs.storage.adoption import forget

FOLDER = Path(__file__).parent.parent / "docs" / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 1000}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 780},
    "device_scale_factor": 1.5,
    "is_mobile": True,
    "has_touch": True,
}
STILL: dict[str, Any] = {"color_scheme": "light", "reduced_motion": "reduce", "locale": "en-GB"}
PAST_MS = 45_000
REST_MS = 500


def main() -> None:
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        sys.exit("there is no Chromium here: tests/surfaces/get_browser says how to get one")
    folder = tempfile.mkdtemp(prefix="dibs-pictures-")
    command = [sys.executable, "-m", "dibs", "--as", "sam", "demo", folder]
    command += ["--print", "--pace", "0.8"]
    demo = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        demo.stdout.readline()
        link = demo.stdout.readline().strip()
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=options)
            take(browser, link, folder)
            browser.close()
    finally:
        demo.terminate()
        demo.communicate()
        forget(note_of(f"{folder}/.dibs/demo.db", None, None))
        shutil.rmtree(folder)


def crew(space: dibs.Dibs, stack: ExitStack) -> None:
    """Workers at their tasks, a train that is conducted, and a question for a person."""
    lead = stack.enter_context(space.join("crew", status="5 tasks, 3 workers"))
    for title in ("Fix login", "Limit requests", "Rotate keys", "Index titles", "Test parser"):
        lead.work.add(title.lower().replace(" ", "-"), title=title, tags=["crew"])
    names = [f"crew/w{number}" for number in range(1, 4)]
    workers = [stack.enter_context(space.join(name, status="waits for a task")) for name in names]
    for number, worker in enumerate(workers, 1):
        task = worker.work.next(tags=["crew"])
        worker.work.land(f"crew/{task.id}", commit=f"{number}e4c1d7a9b" * 4, task=task.id)
    for worker in workers[:2]:
        task = worker.work.next(tags=["crew"])
        worker.agents.beat(status=f"{task.id}: {task.title}")
    lead.leases.claim("land:main", note="lands what is ready")
    first = lead.work.next_many(3, kind="landing", tags=["land:main"])
    lead.work.ask(first[2].id, "It changes src/keys.py, which is protected. May it be landed?")
    lead.work.abandon(first[1].id)


def take(browser: Browser, link: str, folder: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    home = link.partition("/sign-in")[0]
    with browser.new_context(**DESK, **STILL, base_url=home) as context:
        page = context.new_page()
        page.goto(link)
        # A person who opens the dashboard is present, so agents can ask them.
        page.get_by_text("Freeze a path").click()
        page.get_by_label("Path, glob or name").fill("src/legacy/")
        page.locator("#freeze").get_by_label("Why").fill("release in progress")
        page.get_by_role("button", name="Freeze", exact=True).click()
        page.get_by_text("Freeze a path").click()
        page.wait_for_timeout(PAST_MS)
        interesting(page)
        page.screenshot(path=FOLDER / "dashboard-light.png")
        page.emulate_media(color_scheme="dark")
        page.evaluate("document.getElementById('timeline').scrollIntoView()")
        page.wait_for_timeout(REST_MS)
        page.screenshot(path=FOLDER / "dashboard-dark.png")
        cookies = context.storage_state()
        page.emulate_media(color_scheme="light")
        take_pages(page)
        with ExitStack() as stack:
            space = dibs.open(f"{folder}/.dibs/demo.db", space="demo", start=folder)
            crew(stack.enter_context(space), stack)
            expect(page.locator("#trains li")).to_have_count(3)
            page.get_by_placeholder("Filter").fill("crew")  # of the rest there are other pictures
            expect(page.locator("#count-contention")).to_contain_text(" of ")  # the last one
            page.evaluate("window.scrollTo(0, 0)")
            page.screenshot(path=FOLDER / "dashboard-landing.png")
    with browser.new_context(**PHONE, **STILL, storage_state=cookies) as context:
        page = context.new_page()
        page.goto(home)
        interesting(page)
        page.screenshot(path=FOLDER / "dashboard-phone.png")


def take_pages(page: Page) -> None:
    """The page of one who waits, of a task with its graph, of what is waited for; and the past."""
    page.evaluate("window.scrollTo(0, 0)")
    interesting(page)
    page.locator("#attention-list .is-stuck .to").first.click()
    shot(page, "agent")
    page.goto("/")
    page.locator(".is-claimed .card", has_text="after ").first.locator(".head .to").click()
    shot(page, "task")
    page.goto("/")
    page.locator("#contention-rows .to").first.click()
    shot(page, "path")
    page.goto("/")
    slider = page.get_by_role("slider", name="Moment")
    last = int(slider.get_attribute("max") or 0)
    slider.fill(str(last * 2 // 3))
    expect(page.locator("#moment-says")).to_contain_text("The past")
    page.screenshot(path=FOLDER / "dashboard-past.png")
    page.get_by_role("button", name="Back to now").click()
    expect(page.locator("#moment-says")).to_have_text("now")


def shot(page: Page, name: str) -> None:
    expect(page.locator("#did li").first).to_be_attached()
    page.screenshot(path=FOLDER / f"dashboard-{name}.png")


def interesting(page: Page) -> None:
    """Wait for a moment in which somebody waits."""
    expect(page.locator("#attention-list .is-stuck").first).to_be_visible(timeout=60_000)


if __name__ == "__main__":
    main()
