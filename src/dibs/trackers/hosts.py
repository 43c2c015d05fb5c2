"""The issues of a repository on GitHub, Gitea or GitLab: list, read, change, comment.

Hosts differ in a few names, which are the attributes of their classes. The code that reads a file
of issues also reads the issues of a host.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import quote

from dibs.errors import InvalidError, NotFoundError
from dibs.records import quoted
from dibs.trackers import github, gitlab
from dibs.trackers.fields import CANCELLED, OPEN, names_of
from dibs.trackers.forge import PAGE, Forge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, ClassVar

    from dibs.trackers.fields import Item

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)+")


class Issue:
    """An issue as the source has it.

    item: the arguments of `work.put` for it, or what is wrong with it
    spelled: its labels as they are written there, by their names here
    """

    def __init__(self, number: str, record: Item, item: Item | InvalidError) -> None:
        self.number, self.record, self.item = number, record, item
        self.changed_ms = moment_ms(record.get("updated_at"))
        labels = record.get("labels")
        texts = (
            [one.get("name") if isinstance(one, dict) else one for one in labels or ()]
            if isinstance(labels, list)
            else []
        )
        self.spelled = {
            name: text for text in texts if isinstance(text, str) for name in names_of(text)
        }

    @property
    def id(self) -> str:
        return "" if isinstance(self.item, InvalidError) else str(self.item["id"])

    @property
    def assignee(self) -> str:
        payload = self.item.get("payload", {}) if isinstance(self.item, dict) else {}
        people = payload.get("assignees") or [payload.get("assignee", "")]
        return str(people[0])


class GitHub:
    scheme = "github"
    api = "https://api.github.com"
    cancels = True
    """Whether it distinguishes cancelled from completed issues."""
    complete = False
    """Whether it lists all issues each time; otherwise only those that have changed."""
    at_once = False
    """Whether all changes are made together at the end."""
    people = "assignees"
    """The field for the assignee in an issue's payload."""
    size = PAGE
    number = "number"
    query: ClassVar[dict[str, Any]] = {
        "state": "all",
        "sort": "created",
        "direction": "asc",
        "per_page": PAGE,
    }
    since = "since"
    issues, comments = "issues", "comments"

    def __init__(self, name: str, base: str, token: str, patience_s: float) -> None:
        if REPOSITORY.fullmatch(name) is None:
            raise InvalidError(
                f"{quoted(name)} is not the name of a repository",
                next=f"write {self.scheme}:OWNER/REPO",
            )
        self.source = f"{self.scheme}:{name}"
        self.forge = Forge(base, self.headers(token), patience_s)
        self.top = self.path(name)

    def headers(self, token: str) -> dict[str, str]:
        version = {"X-GitHub-Api-Version": "2022-11-28"}
        return {**version, **({"Authorization": f"Bearer {token}"} if token else {})}

    def path(self, name: str) -> str:
        return f"/repos/{quote(name)}"

    def listed(self, since: str) -> Iterator[Issue]:
        """The issues that have changed since then; all of them if it is empty."""
        query: dict[str, Any] = {**self.query, **({self.since: since} if since else {})}
        for record in self.forge.pages(f"{self.top}/{self.issues}", self.size, **query):
            if not record.get("pull_request"):
                yield self.issue(record)

    def one(self, id: str) -> Issue | None:
        number = id.removeprefix(f"{self.source}#")
        if not number.isdecimal():
            return None
        try:
            record = self.forge.get(f"{self.top}/{self.issues}/{number}")
        except NotFoundError:
            return None
        return self.issue(record) if isinstance(record, dict) else None

    def issue(self, record: Item) -> Issue:
        item = self.item(record)
        if isinstance(item, dict):
            item.pop("parent", None)  # the parent may be in another repository
        return Issue(str(record.get(self.number)), record, item)

    def item(self, record: Item) -> Item | InvalidError:
        return github.issue_of(record, f"{self.source}#", self.scheme)

    def push(self, issue: Issue, changes: dict[str, Any], comment: str, marker: str) -> None:
        """Change an issue there; a closing comment is made first, and only once."""
        here = f"{self.top}/{self.issues}/{issue.number}"
        if comment and not self.has_comment(here, marker):
            self.forge.send("POST", f"{here}/{self.comments}", {"body": f"{comment}\n\n{marker}"})
        self.change(here, issue, changes)

    def has_comment(self, here: str, marker: str) -> bool:
        found = self.forge.pages(f"{here}/{self.comments}", self.size, per_page=PAGE)
        return any(marker in str(one.get("body")) for one in found)

    def change(self, here: str, issue: Issue, changes: dict[str, Any]) -> None:
        body: Item = {}
        for field, value in changes.items():
            if field == "title":
                body["title"] = value
            elif field == "labels":
                body["labels"] = [issue.spelled.get(name, name) for name in value]
            elif field == "assignee":
                body["assignees"] = [value] if value else []
            else:
                body["state"] = "open" if value == OPEN else "closed"
                if self.cancels and value != OPEN:
                    body["state_reason"] = "not_planned" if value == CANCELLED else "completed"
        self.send(here, body)

    def send(self, here: str, body: Item) -> None:
        self.forge.send("PATCH", here, body)

    def finish(self) -> None:
        """Finish: nothing is left to do."""

    @property
    def now(self) -> str:
        """When the listing began, by the server's clock: the next run begins there."""
        if not self.forge.date:
            return ""
        return datetime.fromtimestamp(self.forge.date - 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Gitea(GitHub):
    scheme = "gitea"
    api = ""
    cancels = False
    size = 50
    query: ClassVar[dict[str, Any]] = {"state": "all", "type": "issues", "limit": 50}

    def headers(self, token: str) -> dict[str, str]:
        return {"Authorization": f"token {token}"} if token else {}

    def send(self, here: str, body: Item) -> None:
        if "labels" in body:
            self.forge.send("PUT", f"{here}/labels", {"labels": body.pop("labels")})
        if body:
            super().send(here, body)


class GitLab(GitHub):
    scheme = "gitlab"
    api = "https://gitlab.com/api/v4"
    cancels = False
    number = "iid"
    query: ClassVar[dict[str, Any]] = {
        "scope": "all",
        "order_by": "created_at",
        "sort": "asc",
        "per_page": PAGE,
    }
    since = "updated_after"
    comments = "notes"

    def headers(self, token: str) -> dict[str, str]:
        return {"PRIVATE-TOKEN": token} if token else {}

    def path(self, name: str) -> str:
        return f"/projects/{quote(name, safe='')}"

    def item(self, record: Item) -> Item | InvalidError:
        return gitlab.issue_of(record, f"{self.source}#")

    def send(self, here: str, body: Item) -> None:
        if "state" in body:
            body["state_event"] = "reopen" if body.pop("state") == "open" else "close"
        if "labels" in body:
            body["labels"] = ",".join(body["labels"])
        if "assignees" in body:
            body["assignee_ids"] = [self.user(name) for name in body.pop("assignees")] or [0]
        self.forge.send("PUT", here, body)

    def user(self, name: str) -> int:
        found = self.forge.get("/users", username=name)
        first = found[0] if isinstance(found, list) and found else {}
        if not isinstance(first, dict) or not isinstance(first.get("id"), int):
            raise InvalidError(f"there is no account {quoted(name)}", next="check --assignee")
        return int(first["id"])


HOSTS = {host.scheme: host for host in (GitHub, Gitea, GitLab)}


def moment_ms(text: object) -> int:
    """A time in the store's clock; 0 for an invalid one."""
    try:
        return int(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
