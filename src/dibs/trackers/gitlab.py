"""Issues from GitLab's REST API and `glab issue list --output json`.

The id of an issue is `gitlab:GROUP/PROJECT#NUMBER`, read from its address.
"""

from __future__ import annotations

import re

from dibs.trackers.fields import COMPLETED, OPEN, filled, line_of, names_of, text_in, wrong
from dibs.trackers.github import logins, milestone
from dibs.trackers.plain import records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dibs.errors import InvalidError
    from dibs.trackers.fields import Item, Parsed

ADDRESS = re.compile(r"https?://[^/?#]+/([^?#]+?)/-/(?:issues|work_items)/\d{1,18}")


def parse(text: str, prefix: str = "") -> Parsed:
    for place, record in records(text):
        yield place, issue_of(record, prefix) if isinstance(record, dict) else record


def issue_of(record: Item, prefix: str = "") -> Item | InvalidError:
    number = record.get("iid")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        return wrong("it has no iid")
    url = text_in(record, "web_url")
    address = ADDRESS.match(url)
    if not prefix and address is None:
        return wrong(
            "it does not say which project it is in", "give --prefix gitlab:GROUP/PROJECT#"
        )
    own = prefix or f"gitlab:{address[1]}#"  # type: ignore[index]
    return {
        "id": f"{own}{number}",
        "title": line_of(record.get("title")),
        "state": COMPLETED if record.get("state") == "closed" else OPEN,
        "labels": names_of(record.get("labels")),
        "payload": filled(
            body=record.get("description"),
            url=url,
            assignees=logins(record),
            milestone=milestone(record),
        ),
    }
