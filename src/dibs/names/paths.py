"""What can be claimed, and the one name of each such resource, determined from the disk.

A resource is a path, a glob or a name. A path covers itself and everything below it, whether it
exists or not; nothing can be below it if it is a file when it is claimed. A glob
covers what it matches and everything below that; a name such as `port:3000` is only itself. Text is
read in this order: `path:` forces a path; `scheme:rest` with a scheme of two characters or more
(`[a-z][a-z0-9_-]+`) is a name; `*` or `?` makes a glob; everything else is a path. A leading `./`
keeps `ab:c` from being a name.

Two resources overlap if and only if some path is covered by both, or both are links to one
file.

A path is named from the top of its checkout, after symbolic links are resolved as the kernel does,
in NFC, and in folded case if the root's disk ignores case. So every worktree, main or linked,
wherever it is, gives a file the same name, and a submodule's file is named from its superproject. A
glob's leading part without wildcards is resolved in the same way. A file with several hard links
carries its inode, which makes all its paths one resource. What belongs to another space, and the
store itself, is refused.

Several repositories may share a space. Its paths are those of one of them, its *home*: the first
that joined it. The path of another repository has that repository's label in front:
`repo:github.com/acme/shop//src/a.py`. So the files of two repositories are never the same, while a
name such as `db:staging` is one resource for all. Only `git:…` names belong to a repository, as its
index and refs do: outside of the home they end with `@` and the repository.

Not seen: a hard or symbolic link *below* a claimed directory or matched by a glob, and a disk that
ignores case only in parts. `Place` reads the disk again at each call and remembers only whether
case matters and the repository's name, so it may live as long as its process.
"""

from __future__ import annotations

import os

from dibs.arguments import RESOURCE_LIMIT
from dibs.errors import InvalidError
from dibs.names.checkouts import (
    Checkout,
    checkout_around,
    content_hash,
    is_case_blind,
    origin,
    source,
)
from dibs.storage.user_dir import machine_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_NAME = 500
MAX_COMPONENT_BYTES = 255

LABEL = "repo:"
_OF_REPOSITORY = "git:"
"""Names with this prefix mean something different in each repository."""
_SCHEME = "abcdefghijklmnopqrstuvwxyz0123456789_-"
_EXAMPLE = "name a path ('src/a.py'), a glob ('src/*.py') or a thing ('port:3000')"

# `stat.S_ISDIR` and its kin cost a call each, on the path of every claim.
_FILE_TYPE, _DIRECTORY, _LINK, _REGULAR = 0o170000, 0o040000, 0o120000, 0o100000


class Resource:
    """Something that can be claimed, by its one name; two with the same name are equal.

    `text` is what users see, and reading it again gives the same resource. `base` is the index key:
    `/src/a.py` for a path ('' for the root), the part before the first wildcard for a glob, and
    the name itself for a name. `inode` is set for an existing file with several hard links.
    `checkout` says in which working tree of which machine that was, None for names; it plays no
    part in overlap. Only these five are stored. `file` is the path on disk that the caller meant,
    None for globs and names.
    """

    __slots__ = ("base", "checkout", "file", "inode", "kind", "text")

    def __init__(
        self,
        text: str,
        kind: str,
        base: str,
        inode: str | None = None,
        file: str | None = None,
        checkout: str | None = None,
    ) -> None:
        self.text = text
        self.kind = kind
        self.base = base
        self.inode = inode
        self.file = file
        self.checkout = checkout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Resource({self.text!r}, {self.kind!r}, {self.base!r}, {self.inode!r})"


class Place:
    """Where a space is on this disk, seen from one of its checkouts.

    `root` is that of the space, `top` that of the present checkout, both canonical; they differ in
    a linked worktree. `store_dir` is where its store belongs. Relative paths are read from
    `start`, or else from the current directory of the process.
    """

    def __init__(
        self,
        checkout: Checkout,
        store_dir: str,
        *,
        start: str | None = None,
        case_blind: bool | None = None,
    ) -> None:
        self.checkout = checkout
        self.root = checkout.root
        self.top = checkout.top
        self.store_dir = store_dir
        self.start = start
        self._from_top = checkout.top.rstrip("/") + "/"
        self._case_blind = case_blind
        self._here: str | None = None
        self._repository = ""
        self.home = ""
        """The repository whose paths have no label in this space; "" if nobody has said."""
        self.label = ""
        """The prefix of this repository's paths."""

    @property
    def machine(self) -> str:
        """The machine's name: machines with a shared disk may have the same inodes and paths."""
        return machine_name()

    @property
    def repository(self) -> str:
        """The repository's name among others: its `origin`, else machine and root.

        A clone of a folder on this machine is the same repository as that folder.
        """
        if not self._repository:
            root = self.root
            if self.checkout.kind == "repository":
                root = source(root)
            self._repository = _remote(root, self.checkout.kind) or f"{self.machine}:{root}"
        return self._repository

    def share(self, home: str) -> None:
        """Name paths as in a space whose home is that repository."""
        self.home = home
        self.label = "" if self._is_home() else label_of(self.repository)

    def _is_home(self) -> bool:
        mine = self.repository
        if self.home in ("", mine, f"{self.machine}:{self.root}"):
            return True
        # Without an `origin` nobody can tell whether a clone or a mount on another machine is
        # another repository. To take it for the same never gives one file to two agents.
        return ":/" in mine and ":/" in self.home and not self.home.startswith(f"{self.machine}:/")

    @property
    def here(self) -> str | None:
        """The checkout that the caller is in, in the form of `Resource.checkout`."""
        if self._here is None:
            self._here = f"{self.machine}:{self.top}"
        return self._here

    @property
    def case_blind(self) -> bool:
        """Whether a name in another case is the same file, tried on what is in the root."""
        if self._case_blind is None:
            self._case_blind = is_case_blind(self.root)
        return self._case_blind

    def resource(self, text: str, cwd: str | None = None) -> Resource:
        """The resource that the text means to a caller in `cwd`, or an `InvalidError`."""
        check_text(text)
        if text.startswith("path:"):
            return self._path(text, text[5:], cwd)
        if text.startswith(LABEL) and (found := self._labelled(text)):
            return found
        if is_name(text):
            name = self._own_name(_composed(text))
            if len(name) > MAX_NAME:
                raise refused(text, f"is longer than {MAX_NAME} characters, the limit of a name")
            return Resource(name, "name", name)
        if is_glob(text):
            return self._glob(text, cwd)
        return self._path(text, text, cwd)

    def _own_name(self, name: str) -> str:
        end = f"@{self.label[len(LABEL) : -1]}"
        of_this = self.label and name.startswith(_OF_REPOSITORY) and "@" not in name
        return f"{name}{end}" if of_this else name

    def _labelled(self, text: str) -> Resource | None:
        """What a path with a label means; None if this is a name like any other."""
        label, path = split(text)
        if not label:
            return None
        if label in (self.label, label_of(self.repository)) and self.checkout.root != "/":
            inside = path.removeprefix("path:")
            if inside is path and is_glob(path):
                return self._glob(f"{self.top}/{path.removeprefix('./')}", None)
            return self._path(text, f"{self.top}/{inside}", None)
        from dibs.names.seen import Seen  # of another repository only the name is known

        found = Seen({}).resource(path)
        if found.kind == "name":
            raise refused(text, "has a repository in front of a name; only paths have one")
        if self.home and label == label_of(self.home):
            return found
        found.text, found.base = f"{label}/{found.text}", f"{label}{found.base}"
        return found

    def content_hash(self, resource: Resource) -> str | None:
        """The SHA-256 of the file, if the resource is one."""
        return content_hash(resource.file) if resource.file else None

    def content_of(self, name: str) -> str | None:
        """The same for a file of this checkout, by its name in a lease."""
        path = self.inside(name)
        return None if path is None else content_hash(f"{self.top}/{path}")

    def inside(self, name: str) -> str | None:
        """The path from the top of the checkout; None for a file of another repository."""
        label, path = split(name)
        return path.removeprefix("path:") if label == self.label else None

    def has(self, resource: Resource, content_hash: str | None) -> bool:
        """Whether a file has this content, as far as is visible here; `Seen` knows less."""
        return True

    def _path(self, text: str, path: str, cwd: str | None) -> Resource:
        key, real, status, top = self._locate(text, path, cwd)
        key = self._canonical(text, key)
        shown = key[1:] or "."
        if is_glob(shown) or is_name(shown):
            shown = f"path:{shown}"  # so that it is read as a path again
        if len(shown) > RESOURCE_LIMIT:
            raise refused(text, f"has a name of more than {RESOURCE_LIMIT:,} characters")
        shown, key = self._with_label(shown), f"{self.label}{key}"
        inode = None
        if status and status.st_nlink > 1 and status.st_mode & _FILE_TYPE == _REGULAR:
            inode = f"{self.machine}:{status.st_dev}:{status.st_ino}"
        # Nothing is below a file, so no glob can match there; what does not exist yet may become
        # a directory.
        file = status is not None and status.st_mode & _FILE_TYPE != _DIRECTORY
        kind = "file" if file else "dir"
        return Resource(shown, kind, key, inode, real, top and f"{self.machine}:{top}")

    def _glob(self, text: str, cwd: str | None) -> Resource:
        from dibs.names import globs  # late, since most claims have no pattern

        base = globs.literal_base(text)
        rest = [part for part in text[len(base) :].split("/") if part not in ("", ".")]
        if ".." in rest:
            raise refused(text, "has '..' after a wildcard, which has no clear meaning")
        here = "/" if text.startswith("/") else "."
        key, _, _, top = self._locate(text, base or here, cwd)
        # A wildcard in the name of a real directory counts as one from here on: the claim then
        # covers more than was meant, never less.
        pattern = self._canonical(text, "/".join((key, *rest)))[1:]
        shown = f"./{pattern}" if is_name(pattern) else pattern
        if len(shown) > globs.MAX_LENGTH:
            raise refused(text, f"is a pattern of more than {globs.MAX_LENGTH:,} characters")
        base = globs.literal_base(pattern)
        base = f"{self.label}/{base}" if base else self.label
        where = top and f"{self.machine}:{top}"
        return Resource(self._with_label(shown), "glob", base, checkout=where)

    def _with_label(self, shown: str) -> str:
        return f"{self.label}/{shown}" if self.label else shown

    def _locate(
        self, text: str, path: str, cwd: str | None
    ) -> tuple[str, str, os.stat_result | None, str]:
        """Find a path on disk: its name in the space, canonical path, status and checkout."""
        try:
            if not path.startswith("/"):
                path = f"{cwd or self.start or os.getcwd()}/{path}"
            found = self._walk(path) if self.checkout.kind == "repository" else None
            key, real, status, top = found or self._resolve(text, path)
        except (OSError, ValueError, RecursionError) as error:
            raise refused(text, f"cannot be found from {cwd or 'here'!r}: {error}") from None
        if real.startswith(self.store_dir) and f"{real}/".startswith(f"{self.store_dir}/"):
            raise _store_refused(text)
        return key, real, status, top

    def _walk(self, path: str) -> tuple[str, str, os.stat_result | None, str] | None:
        """Go down from the top; None if that is not enough to know where the path leads.

        This is realpath for the common case, at a fraction of its cost.
        """
        if not path.startswith(self._from_top):
            return None
        real = self.top.rstrip("/")
        status: os.stat_result | None = None
        there = True
        for part in path[len(self._from_top) :].split("/"):
            if part in ("", "."):
                continue
            if part == "..":
                return None
            real = f"{real}/{part}"
            if there:
                try:
                    status = os.lstat(real)
                except OSError:
                    status, there = None, False
                    continue
                kind = status.st_mode & _FILE_TYPE
                if kind == _LINK or (kind == _DIRECTORY and os.access(f"{real}/.git", os.F_OK)):
                    return None
        return self.checkout.key(real), real, status, self.top

    def _resolve(self, text: str, path: str) -> tuple[str, str, os.stat_result | None, str]:
        """Follow every link, and find the checkout that the end belongs to."""
        real = os.path.realpath(path)
        # After a loop of links, realpath leaves the rest of the path as it is.
        while (further := os.path.realpath(real)) != real:
            real = further
        checkout = checkout_around(real)
        if not _same_directory(checkout.root, self.root):
            raise self._outside(text, real, checkout)
        try:
            status = os.lstat(real)
        except OSError:
            status = None
        return checkout.key(real), real, status, checkout.top

    def _outside(self, text: str, real: str, checkout: Checkout) -> InvalidError:
        why = f"lies outside {self.root!r}, at {real!r}"
        if real.startswith(self._from_top) and checkout.kind == "repository":
            why = f"lies outside: {real!r} belongs to another repository, {checkout.top!r}"
        next = f"claim a name instead, such as 'file:{real}'"
        if checkout.kind != "none":
            next = f"run this in {checkout.top!r}, where it belongs"
        return refused(text, why, next=next)

    def _canonical(self, text: str, key: str) -> str:
        """Normalise a name, and refuse one that no store could keep."""
        check_characters(text, key)
        key = _composed(key, folded=self.case_blind)
        if len(key) > MAX_COMPONENT_BYTES // 4 and any(
            len(part.encode()) > MAX_COMPONENT_BYTES for part in key.split("/")
        ):
            raise refused(text, f"has a component of more than {MAX_COMPONENT_BYTES} bytes")
        if key == "/.dibs" or key.startswith("/.dibs/"):
            raise _store_refused(text)
        return key


def find_place(start: str | None, user_dir: str) -> Place:
    """Find the space of a directory, by default the current one.

    `user_dir` holds the store of a directory that is in no space.
    """
    try:
        real = os.path.realpath(start or os.getcwd())
        checkout = checkout_around(real)
    except (OSError, ValueError) as error:
        raise refused(start or ".", f"cannot be read: {error}") from None
    given = real if start else None
    if checkout.kind == "none":
        return Place(checkout, os.path.realpath(user_dir), start=given)
    return Place(checkout, os.path.join(checkout.root, ".dibs"), start=given)


def space_name(place: Place) -> str:
    """The space's name in a database shared by machines: its `origin`, else machine and root.

    Clones of one `origin` are one space, whatever the protocol and the user in its URL.
    """
    return _remote(place.root, place.checkout.kind) or f"{place.machine}:{place.root}"


def _remote(root: str, kind: str) -> str | None:
    return origin(root) if kind == "repository" else None


def _store_refused(text: str) -> InvalidError:
    return refused(text, "is in the store of dibs itself, which cannot be claimed")


def _composed(text: str, folded: bool = False) -> str:
    """Return a text in NFC, and in folded case on request."""
    if text.isascii():
        return text.casefold() if folded else text
    from unicodedata import normalize

    # Folding composed text would not be final for some Greek letters.
    return normalize("NFC", normalize("NFD", text).casefold() if folded else text)


def _same_directory(a: str, b: str) -> bool:
    """Compare by inode too: a bind mount or another case may spell one root in two ways."""
    try:
        return a == b or os.path.samefile(a, b)
    except OSError:
        return False


def ancestors(base: str) -> list[str]:
    """List a key and all keys above it, nearest first."""
    label, keys = "", [base]
    if base.startswith(LABEL):
        label, base = split_base(base)
    if base.startswith("/"):
        while base:
            base = base[: base.rindex("/")]
            keys.append(f"{label}{base}")
    return keys


def near(base: str) -> dict[str, Any]:
    """Return the keys of all that could overlap with a key: those above it, including itself, and
    those below it as an open interval in the order of code points."""
    if base and not base.startswith("/") and not split_base(base)[0]:
        return {"ancestors": [base], "low": base, "high": base}
    return {"ancestors": ancestors(base), "low": f"{base}/", "high": f"{base}0"}


def named(text: str, kind: str = "file") -> Resource:
    """The resource for a name in the store, without looking at a disk.

    kind: whether a path was a file or a directory
    """
    if text.startswith(LABEL):
        label, path = split(text)
        if label:
            found = named(path, kind)
            return Resource(text, found.kind, f"{label}{found.base}")
    if text.startswith("path:"):
        return Resource(text, kind, f"/{text[5:]}")
    if is_name(text):
        return Resource(text, "name", text)
    if is_glob(text):
        from dibs.names import globs

        base = globs.literal_base(text.removeprefix("./"))
        return Resource(text, "glob", f"/{base}" if base else "")
    return Resource(text, kind, "" if text == "." else f"/{text}")


def resources_overlap(a: Resource, b: Resource) -> bool:
    """Whether some path is covered by both; names overlap only with themselves."""
    if "name" in (a.kind, b.kind):
        return a == b
    if a.inode is not None and a.inode == b.inode:
        return True
    one, other = f"{a.base}/", f"{b.base}/"
    if not one.startswith(other) and not other.startswith(one):
        return False
    if "glob" not in (a.kind, b.kind):
        return True
    from dibs.names import globs

    if "file" in (a.kind, b.kind):
        glob, path = (a, b) if a.kind == "glob" else (b, a)
        return globs.covers(_pattern(glob), _pattern(path))
    return globs.overlap(_pattern(a), a.kind == "glob", _pattern(b), b.kind == "glob")


def is_whole_tree(resource: Resource) -> bool:
    """Whether it covers every path of a checkout: the root, or a pattern such as `**`."""
    if resource.kind == "name" or split_base(resource.base)[1]:
        return False
    if resource.kind != "glob":
        return True
    from dibs.names import globs

    # No real name looks like this, so a pattern that covers it covers every name.
    return globs.covers(_pattern(resource), "\ue000" * 8)


def _pattern(resource: Resource) -> str:
    if resource.kind == "glob":
        return split(resource.text)[1].removeprefix("./")
    return split_base(resource.base)[1][1:]


def label_of(repository: str) -> str:
    """The prefix of a repository's paths in a space that several repositories share."""
    return f"{LABEL}{repository.rstrip('/')}/"


def split(text: str) -> tuple[str, str]:
    """The label and the path in the name of a resource; all of it and no label without one."""
    head, slashes, path = text.partition("//")
    found = slashes and head.startswith(LABEL) and len(head) > len(LABEL) and path
    return (f"{head}/", path) if found else ("", text)


def split_base(base: str) -> tuple[str, str]:
    """The label and the key of a path; of a name, the name."""
    if not base.startswith(LABEL):
        return "", base
    if base[-1] == "/":  # the root of a repository
        return base, ""
    label = split(base)[0]
    return label, base[len(label) :]


def is_name(text: str) -> bool:
    """Whether the text is `scheme:rest`, but not a path with the label of a repository."""
    scheme, colon, _ = text.partition(":")
    if scheme == "repo" and split(text)[0]:
        return False
    return bool(colon and len(scheme) > 1 and "a" <= scheme[0] <= "z" and not scheme.strip(_SCHEME))


def is_glob(text: str) -> bool:
    """Whether the text has a wildcard."""
    return "*" in text or "?" in text


def check_text(text: object) -> None:
    """Refuse what cannot be a resource of any kind."""
    if not isinstance(text, str):
        raise InvalidError(f"a resource is text, not {type(text).__name__}", next=_EXAMPLE)
    if text in ("", "path:") or text.isspace():
        raise InvalidError("a resource cannot be empty", next=_EXAMPLE)
    if len(text) > RESOURCE_LIMIT:
        raise refused(text, f"is longer than {RESOURCE_LIMIT:,} characters")
    check_characters(text, text)


def check_characters(text: str, part: str) -> None:
    """Refuse control characters and invalid UTF-8 in a part of what the text led to."""
    if part.isascii() and part.isprintable():
        return
    if any(char < " " or "\x7f" <= char <= "\x9f" for char in part):
        raise refused(text, "has a control character")
    if any("\ud800" <= char <= "\udfff" for char in part):
        raise refused(text, "is not valid UTF-8")


def refused(text: str, why: str, *, next: str = _EXAMPLE) -> InvalidError:
    """Say what is wrong with a text, which is shown safely and shortened."""
    shown = repr(text if len(text) <= 80 else f"{text[:80]}…")
    return InvalidError(f"{shown} {why}", next=next)
