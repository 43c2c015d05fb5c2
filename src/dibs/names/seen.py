"""Names that a caller resolved on its own disk for a remote daemon, and what it saw there.

The daemon accepts such a name as it is, if it is in its one spelling: the daemon's disk may be
another. For each path the caller also says what it knows: kind, inode and content hash.
"""

from __future__ import annotations

from dibs.arguments import check_text
from dibs.errors import InvalidError
from dibs.names.checkouts import Checkout
from dibs.names.paths import Place, Resource, refused, split, split_base

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from typing import Any

MAX_SEEN = 500
HERE = ""
"""The key, no possible name, under which the caller's checkout is given."""


def see(
    place: Place, calls: Iterable[tuple[dict[str, Any], list[str]]], hashed: bool
) -> dict[str, dict[str, str]]:
    """Resolve the resources in these arguments on the disk, and return what is seen there.

    calls: the arguments of each call, and which of them name resources
    """
    seen: dict[str, dict[str, str]] = {}
    if hashed and place.here is not None:
        seen[HERE] = {"checkout": place.here}

    def name(text: str) -> str:
        resource = place.resource(text)
        if resource.kind != "name":
            content = place.content_hash(resource) if hashed else None
            said = {"kind": resource.kind, "inode": resource.inode, "content_hash": content}
            # A resource named in two checkouts is wanted in all of them.
            known = seen.get(resource.text)
            if known is None or known.get("checkout") == resource.checkout:
                said["checkout"] = resource.checkout
            seen[resource.text] = {what: value for what, value in said.items() if value}
        return resource.text

    for given, names in calls:
        for argument in names:
            value = given.get(argument)
            if isinstance(value, str):
                given[argument] = name(value)
            elif value is not None:
                given[argument] = [name(text) for text in value]
    return seen


class Seen(Place):
    """The names of one call, and what its caller saw there."""

    def __init__(self, seen: dict[str, Any], disk: Place | None = None) -> None:
        """
        disk: what is visible from here, where the caller may have looked too
        """
        super().__init__(Checkout("/", "/"), "", case_blind=False)
        self._seen = seen
        self._disk = disk

    def resource(self, text: str, cwd: str | None = None) -> Resource:
        found = super().resource(text, cwd)
        if found.text != text:
            raise refused(text, f"is not a name in its usual spelling, which is {found.text!r}")
        if found.kind == "dir":
            if self._of(text, "kind") == "file":
                found.kind = "file"
            found.inode = self._of(text, "inode")
        if found.kind != "name":
            found.checkout = self._of(text, "checkout")
        return found

    @property
    def here(self) -> str | None:
        return self._of(HERE, "checkout")

    def content_hash(self, resource: Resource) -> str | None:
        return self._of(resource.text, "content_hash")

    def content_of(self, name: str) -> str | None:
        """Look where the caller says it is, if that is a checkout of this space on this disk."""
        disk, here = self._disk, self.here
        if disk is None or here is None or not here.startswith(f"{disk.machine}:/"):
            return None
        top = here.removeprefix(f"{disk.machine}:")
        try:
            found = disk.resource(f"path:{top}/{split(name)[1].removeprefix('path:')}")
        except InvalidError:
            return None
        same = found.checkout == here and found.text == name
        return disk.content_hash(found) if same else None

    def has(self, resource: Resource, content_hash: str | None) -> bool:
        """Look again if the caller's checkout is here; otherwise only check that it is a hash."""
        if content_hash is not None and not (len(content_hash) == 64 and content_hash.isalnum()):
            return False
        disk = self._disk
        if disk is None or split(resource.text)[0] != disk.label:
            return True
        found = disk.resource(f"path:{disk.top}{split_base(resource.base)[1]}")
        return found.checkout != resource.checkout or disk.content_hash(found) == content_hash

    def _of(self, text: str, what: str) -> str | None:
        said = self._seen.get(text)
        value = said.get(what) if isinstance(said, dict) else None
        return None if value is None else check_text(what, value, MAX_SEEN)

    def _locate(
        self, text: str, path: str, cwd: str | None
    ) -> tuple[str, str, os.stat_result | None, str]:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise refused(text, "contains '..', which only the caller's disk can resolve")
        return "".join(f"/{part}" for part in parts), "", None, ""
