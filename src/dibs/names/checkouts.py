"""Which space a directory belongs to, read from the disk without running git.

A space is a repository with all its linked worktrees and all its submodules: its root is the top of
the main worktree of the outermost superproject. A bare repository with worktrees has no such top,
so its git directory is the root, whose own files are named `.git/…` as in any other checkout.
Outside any repository the space is the nearest directory upwards that holds `.dibs`; if there is
none, `/`.

The rules are git's: a `.git` file that names a git directory with a `commondir` is a linked
worktree; one that names a directory below `modules/` of the enclosing checkout is a submodule, and
so is a repository that the enclosing `.gitmodules` lists; any other is a repository whose git
directory is elsewhere. A `.git` file that leads nowhere is refused by name: looking further up
would put its files into a space they do not belong to. A directory `.git` that is not a git
directory is skipped if git finds another one further up.

A stranger may have written these files, so none of them alone moves a space to another place: the
repository must list the worktree as its own, and a main worktree must lead back to the repository.

Environment variables, global configuration and `include` are not consulted, so every process
that looks from the same directory finds the same space.

Other facts from the disk are here too: whether case matters, and the hash of a file.
"""

from __future__ import annotations

import os

from dibs.digest import sha256
from dibs.errors import InvalidError
from dibs.records import folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_HASHED_BYTES = 64 << 20
PATH_BYTES = 8192
"""Longer than any path; a file that names a path is not read further."""
SETTINGS_BYTES = 1 << 20
CLONES = 5
"""How far clones of clones are followed."""
# Without O_NONBLOCK a fifo would wait for its writer.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_HOST = "abcdefghijklmnopqrstuvwxyz0123456789_.-"
_DEFAULT_PORTS = {"ssh": "22", "https": "443", "http": "80", "git": "9418"}


class Checkout:
    """A working tree of a space: where it is, and where in the space its top belongs."""

    def __init__(self, root: str, top: str, prefix: str = "", kind: str = "repository") -> None:
        self.root = root
        self.top = top
        # '' except for a bare git directory, and for a linked worktree of a submodule, whose top
        # is the submodule's place.
        self.prefix = prefix
        # 'repository', 'directory' (it holds `.dibs`) or 'none' (neither all the way up).
        self.kind = kind

    def key(self, real: str) -> str:
        """The name within the space, as `/src/a.py`, of a canonical path in this checkout."""
        inside = real[len(self.top) :].lstrip("/")
        return f"{self.prefix}/{inside}" if inside else self.prefix


def checkout_around(real: str) -> Checkout:
    """Find the checkout that contains a canonical path; the path itself need not exist."""
    top = _top_around(real)
    if top is not None:
        return _checkout_at(top)
    for directory in upwards(real):
        if _is_git_dir(directory, directory) and _is_bare(directory):
            return Checkout(directory, directory, "/.git")
        if _has_store(directory):
            return Checkout(directory, directory, kind="directory")
    return Checkout("/", "/", kind="none")


def _has_store(directory: str) -> bool:
    """Whether this user has a `.dibs` there; another user's, as in `/tmp`, is skipped."""
    try:
        status = os.lstat(f"{directory}/.dibs")
    except OSError:
        return False
    kinds = (0o040000, 0o120000)  # a link is refused by name when it is opened
    return status.st_mode & 0o170000 in kinds and status.st_uid == os.geteuid()


def origin(root: str) -> str | None:
    """Return the remote `origin` of the repository with this root as `host/owner/repository`.

    None if there is none, or none on another machine. Credentials are never part of it.
    """
    url = setting(git_directory(root), "remote.origin", "url")
    return None if url is None else _host_and_path(url)


def source(root: str) -> str:
    """The root of the repository on this machine that the one with this root was cloned from.

    That of a clone of a clone is the first of them; of any other repository, itself.
    """
    for _ in range(CLONES):
        url = (setting(git_directory(root), "remote.origin", "url") or "").removeprefix("file://")
        if not url.startswith("/") or not os.path.isdir(url):
            break
        try:
            found = checkout_around(os.path.realpath(url))
        except InvalidError:
            break  # what is there is broken
        if found.kind != "repository" or found.root == root:
            break
        root = found.root
    return root


def git_directory(top: str) -> str:
    """The git directory of a checkout, which holds its index; a bare repository itself."""
    return _git_dir(top) if os.access(f"{top}/.git", os.F_OK) else top


def index_around(directory: str) -> tuple[str, str] | None:
    """The nearest checkout around a directory, and its index, the list of what git tracks."""
    top = _top_around(directory)
    return None if top is None else (top, os.path.join(_git_dir(top), "index"))


def is_case_blind(root: str) -> bool:
    """Look up one entry of a directory under its own name and in the other case."""
    sure = [name for name in (".git", ".dibs", "HEAD") if os.access(f"{root}/{name}", os.F_OK)]
    try:
        for name in sure or os.listdir(root):
            there = os.lstat(f"{root}/{name}")
            # On a case-sensitive disk, a file with two links might have both spellings.
            single = there.st_mode & 0o170000 == 0o040000 or there.st_nlink == 1
            if single and name.isascii() and name.swapcase() != name:
                return os.path.samestat(there, os.lstat(f"{root}/{name.swapcase()}"))
    except OSError:
        pass
    return False


def content_hash(file: str) -> str | None:
    """Return the SHA-256 of a regular file in hex.

    None if nothing is there, if it is not a regular file, and for files over 64 MiB, which would
    take too long to read during a claim.
    """
    try:
        fd = os.open(file, _READING)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if status.st_mode & 0o170000 != 0o100000 or status.st_size > MAX_HASHED_BYTES:
            return None
        # One more read than the size shows whether a process is writing to it right now.
        digest, left = sha256(), MAX_HASHED_BYTES
        chunk = os.read(fd, min(status.st_size, 1 << 18) + 1)
        while chunk:
            digest.update(chunk)
            left -= len(chunk)
            if left < 0:
                return None
            if left == MAX_HASHED_BYTES - status.st_size:
                break
            chunk = os.read(fd, 1 << 18)
        text: str = digest.hexdigest()
        return text
    except OSError:
        return None
    finally:
        os.close(fd)


def _host_and_path(url: str) -> str | None:
    scheme, separator, rest = url.partition("://")
    if separator:
        authority, _, path = rest.partition("/")
    else:
        scheme = "ssh"
        authority, separator, path = url.partition(":")
        if not separator or path.startswith(":"):
            return None
    host, _, port = authority.rpartition("@")[2].lower().partition(":")
    path = "/".join(part for part in path.partition("?")[0].partition("#")[0].split("/") if part)
    path = path.removesuffix(".git")
    # A single letter is a Windows drive; an '@' in the path may be the rest of a password.
    if len(host) < 2 or host.strip(_HOST) or (port and not port.isdigit()):
        return None
    if not path or "@" in path:
        return None
    return f"{host}/{path}" if port in ("", _DEFAULT_PORTS.get(scheme)) else f"{host}:{port}/{path}"


def upwards(directory: str) -> Iterator[str]:
    yield directory
    while directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
        yield directory


def _top_around(directory: str) -> str | None:
    """Where git finds `.git`; a directory that only has the name is skipped if there is another."""
    first = None
    for up in upwards(directory):
        if os.access(f"{up}/.git", os.F_OK):
            if _is_git_dir(f"{up}/.git", f"{up}/.git") or not os.path.isdir(f"{up}/.git"):
                return up
            first = first or up
    return first


def _checkout_at(directory: str) -> Checkout:
    git_dir = _git_dir(directory)
    if (common := common_dir(directory, git_dir)) is None:
        return _main_checkout(directory, git_dir)
    if not same_place(os.path.dirname(git_dir), f"{common}/worktrees"):
        raise _broken(directory, f"its repository {common!r} has no such worktree")
    other = back_link(git_dir) or directory
    # A moved worktree leaves nothing there; a copied one would share index and HEAD.
    if not same_place(other, directory) and _leads_to(other, git_dir):
        raise _broken(directory, f"it names the worktree {other!r}")
    main = _main_worktree(directory, common)
    if main is None:
        return Checkout(common, directory)
    if not os.path.isdir(main):
        raise _broken(directory, f"its main worktree {main!r} does not exist")
    owner = _main_checkout(main, common)
    return Checkout(owner.root, directory, owner.key(main))


def common_dir(directory: str, git_dir: str) -> str | None:
    """The git directory of the repository that a linked worktree belongs to; else None."""
    try:
        data = read_bytes(f"{git_dir}/commondir", PATH_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _broken(directory, f"its commondir cannot be read: {error.strerror}") from None
    if len(data) >= PATH_BYTES or b"\0" in data:
        raise _broken(directory, "its commondir is not a path")
    return os.path.realpath(os.path.join(git_dir, os.fsdecode(data.rstrip(b"\r\n"))))


def back_link(git_dir: str) -> str | None:
    """Where the repository says that a linked worktree is."""
    text = _read(f"{git_dir}/gitdir", PATH_BYTES)
    if not text or len(text) >= PATH_BYTES:
        return None
    return os.path.dirname(os.path.realpath(os.path.join(git_dir, text.rstrip("\r\n"))))


def _leads_to(directory: str, git_dir: str) -> bool:
    try:
        return _git_dir(directory) == git_dir
    except InvalidError:
        return False


def same_place(one: str, other: str) -> bool:
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False


def _main_checkout(directory: str, git_dir: str) -> Checkout:
    """Describe the checkout at a directory that is not a linked worktree."""
    above = os.path.dirname(directory)
    outer = _top_around(above) if above != directory else None
    if outer is not None and (_lists(outer, directory) or _absorbed(outer, git_dir)):
        return _checkout_at(outer)
    if git_dir != f"{directory}/.git" and git_dir.startswith(f"{directory}/") and _is_bare(git_dir):
        # Some people put a `.git` file beside a bare repository and its worktrees.
        return Checkout(git_dir, directory)
    return Checkout(directory, directory)


def _lists(outer: str, directory: str) -> bool:
    path = directory[len(outer) :].lstrip("/")
    return any(
        section.startswith("submodule.") and key == "path" and _unquoted(value).rstrip("/") == path
        for section, key, value in _settings(f"{outer}/.gitmodules")
    )


def _absorbed(outer: str, git_dir: str) -> bool:
    # The first test protects a repository from a broken one that happens to enclose it.
    return "/modules/" in git_dir and git_dir.startswith(f"{_git_dir(outer)}/modules/")


def _main_worktree(linked: str, common: str) -> str | None:
    """Find the main worktree of a repository from its git directory; None if it is bare."""
    if os.path.basename(common) == ".git":
        return os.path.dirname(common)
    worktree = setting(common, "core", "worktree")
    why = "does not say where its main worktree is"
    if worktree is not None:
        main = os.path.realpath(os.path.join(common, worktree))
        if not os.path.isdir(main) or _leads_to(main, common):
            return main
        why = f"says that its main worktree is {main!r}, where no .git leads back to it"
    elif _is_bare(common):
        return None
    raise InvalidError(
        f"{linked!r} is a linked worktree, and its repository {common!r} {why}",
        next=f"git --git-dir={folder(common)} config core.worktree <the main worktree>",
    )


def _is_bare(git_dir: str) -> bool:
    return (setting(git_dir, "core", "bare") or "").lower() in ("true", "yes", "on", "1")


def _git_dir(directory: str) -> str:
    """Follow `.git` to the git directory, canonical."""
    dot_git = f"{directory}/.git"
    if os.path.isdir(dot_git):
        return os.path.realpath(dot_git)
    text = _read(dot_git, PATH_BYTES)
    if text is None:
        raise _broken(directory, "it cannot be read")
    if len(text) >= PATH_BYTES:
        raise _broken(directory, "it is too long to be a path")
    if not text.startswith("gitdir: "):
        raise _broken(directory, "it does not begin with 'gitdir: '")
    git_dir = os.path.realpath(os.path.join(directory, text[8:].rstrip("\r\n")))
    if not os.path.isdir(git_dir):
        raise _broken(directory, f"it names {git_dir!r}, which does not exist")
    common = common_dir(directory, git_dir) or git_dir
    if not os.path.isdir(common):
        raise _broken(directory, f"its repository {common!r} does not exist")
    if not _is_git_dir(git_dir, common):
        raise _broken(directory, f"it names {git_dir!r}, which is not a git directory")
    return git_dir


def _is_git_dir(git_dir: str, common: str) -> bool:
    """Whether git would accept it as a git directory, by the three things it checks."""
    try:
        if os.path.islink(f"{git_dir}/HEAD"):
            head = b"ref:" + os.fsencode(os.readlink(f"{git_dir}/HEAD"))
        else:
            head = read_bytes(f"{git_dir}/HEAD", 64)
    except OSError:
        return False
    named = head[:4] == b"ref:" and head[4:].lstrip().startswith(b"refs/")
    if not named and (len(head) < 40 or head[:40].strip(b"0123456789abcdefABCDEF")):
        return False
    return os.access(f"{common}/objects", os.X_OK) and os.access(f"{common}/refs", os.X_OK)


def _broken(directory: str, why: str) -> InvalidError:
    return InvalidError(
        f"the file {directory + '/.git'!r} is broken: {why}",
        next=f"run `git -C {folder(directory)} status`, and `git worktree repair` from the main "
        "worktree",
    )


def _read(file: str, limit: int = SETTINGS_BYTES) -> str | None:
    """Read the beginning of a text file; None if it cannot be read or is not text."""
    try:
        data = read_bytes(file, limit)
    except OSError:
        return None
    return None if b"\0" in data else os.fsdecode(data)


def read_bytes(file: str, limit: int) -> bytes:
    handle, data = os.open(file, _READING), b""
    try:
        while len(data) < limit and (chunk := os.read(handle, min(limit, 1 << 16))):
            data += chunk
    finally:
        os.close(handle)
    return data


def setting(git_dir: str, section: str, key: str) -> str | None:
    # `git sparse-checkout` moves core.worktree and core.bare into the first.
    for file in ("config.worktree", "config"):
        for found in _settings(f"{git_dir}/{file}"):
            if found[:2] == (section, key):
                return _unquoted(found[2]) if len(found[2]) < PATH_BYTES else None
    return None


def _settings(file: str) -> Iterator[tuple[str, str, str]]:
    """Read a git configuration file as (section.subsection, key, value as written)."""
    section = ""
    for line in (_read(file) or "").replace("\\\n", "").splitlines():
        line = line.strip()
        if line.startswith("["):
            head, _, line = line[1:].partition("]")
            name, _, sub = head.partition(" ")
            section = f"{name.lower()}.{sub.strip()[1:-1]}" if sub else name.lower()
            line = line.strip()
        if line and line[0] not in "#;":
            key, equals, value = line.partition("=")
            yield section, key.strip().lower(), value.strip() if equals else "true"


def _unquoted(value: str) -> str:
    plain = ""
    quoted = escaped = False
    for char in value:
        if escaped:
            plain += {"n": "\n", "t": "\t"}.get(char, char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == '"':
            quoted = not quoted
        elif char in "#;" and not quoted:
            return plain.rstrip()
        else:
            plain += char
    return plain
