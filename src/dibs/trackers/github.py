"""Issues from GitHub's REST API and `gh issue list --json`; Gitea's are nearly the same.

The id of an issue is `github:OWNER/REPO#NUMBER`, read from its address. If the address is missing,
`--prefix` gives it. Pull requests, which the API lists among the issues, are left out.
"""

from __future__ import annotations

import re

from dibs.trackers.fields import (
    CANCELLED,
    COMPLETED,
    OPEN,
    filled,
    line_of,
    names_of,
    text_in,
    wrong,
)
from dibs.trackers.plain import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.errors import InvalidError
    from dibs.trackers.fields import Item, Parsed

ADDRESS = re.compile(r"https?://[^/?#]+/(?:api/v3/)?(?:repos/)?([^/?#]+/[^/?#]+)/issues/(\d{1,18})")
FIELDS = "number,title,body,state,stateReason,labels,assignees,url"
"""What to ask `gh issue list --json` for."""


def parse(text: str, prefix: str = "") -> Parsed:
    for place, record in records(text):
        if not isinstance(record, dict):
            yield place, record
        elif not record.get("pull_request"):
            yield place, issue_of(record, prefix)


def issue_of(record: Item, prefix: str = "", scheme: str = "github") -> Item | InvalidError:
    number = record.get("number")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        return wrong("it has no number")
    url = text_in(record, "html_url", "url")
    address = ADDRESS.match(url)
    if not prefix and address is None:
        return wrong(
            "it does not say which repository it is in",
            f"give --prefix {scheme}:OWNER/REPO#, or ask gh for --json {FIELDS}",
        )
    above = ADDRESS.match(text_in(record, "parent_issue_url"))
    own = prefix or f"{scheme}:{address[1]}#"  # type: ignore[index]
    return {
        "id": f"{own}{number}",
        "title": line_of(record.get("title")),
        "state": state_in(record),
        "labels": names_of(record.get("labels")),
        **({"parent": f"{scheme}:{above[1]}#{above[2]}"} if above else {}),
        "payload": filled(
            body=record.get("body"), url=url, assignees=logins(record), milestone=milestone(record)
        ),
    }


def state_in(record: Item) -> str:
    if str(record.get("state", "")).lower() != "closed":
        return OPEN
    reason = text_in(record, "state_reason", "stateReason").lower()
    return CANCELLED if reason in ("not_planned", "duplicate") else COMPLETED


def logins(record: Item) -> list[str]:
    people = record.get("assignees")
    listed = people if isinstance(people, list) else [record.get("assignee")]
    found = [text_in(one, "login", "username") for one in listed if isinstance(one, dict)]
    return [login for login in found if login]


def milestone(record: Item) -> str:
    said = record.get("milestone")
    return text_in(said, "title") if isinstance(said, dict) else ""
