"""R11: one file, one name. A table of pairs, read in a real tree of real repositories.

Each side of a pair is a directory to stand in and a text to claim there. `same` is one name,
`overlap` is two names that conflict, `apart` is no conflict.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dibs.errors import InvalidError
from dibs.names.checkouts import Checkout
from dibs.names.paths import Place, Resource, find_place, resources_overlap

NFC, NFD = "caf\u00e9.py", "cafe\u0301.py"
ANGSTROM, A_RING = "\u212b.txt", "\u00c5.txt"

# where, text, where, text, verdict; `{base}` is the absolute path of the tree.
PAIRS = """
main            src/a.py                main            ./src/a.py              same
main            src/a.py                main            src//a.py               same
main            src/a.py                main            src/./a.py              same
main            src/a.py                main            src/a.py/               same
main            src/a.py                main            src/lib/../a.py         same
main            src/a.py                main            src/nothing/../a.py     same
main            src/a.py                main            path:src/a.py           same
main            src/a.py                main            {base}/main/src/a.py    same
main            src/a.py                main            {base}/main//src/a.py   same
main            src/a.py                main            {base}/./other/../main/src/a.py   same
main            src/a.py                main/src        a.py                    same
main            src/a.py                main/src/lib    ../a.py                 same
main            src/new.py              main/src        ./new.py                same
main            new/deep/x.py           main/src        ../new//deep/x.py       same
main            .                       main/src        ..                      same
main            .                       main            {base}/main             same
main            .                       main            src/..                  same
main            src/a.py                main            src/b.py                apart
main            src/a.py                main            src/A.py                apart
main            src/a.py                main            src/a.pyc               apart
main            a.py                    main            src/a.py                apart
main            ~                       main            ./~                     same

main            src/a.py                main            link.py                 same
main            src/a.py                main            chain.py                same
main            src/a.py                main            srclink/a.py            same
main            src/new.py              main            srclink/new.py          same
main            src                     main            srclink                 same
main            src                     main            srclink/                same
main            src/a.py                main            deep/../a.py            same
main            a.py                    main            deep/../a.py            apart
main            src/dangling.py         main            dangling                same
main            src/a.py                outside         {base}/intomain/a.py    apart
main            src/a.py                main            {base}/intomain/a.py    same
main            src/a.py                intomain        a.py                    same
main            src                     main            srclink/a.py            overlap
main            src/lib/c.py            main            deep/c.py               same
main            src/lib                 main            deep/c.py               overlap

main            src/b.py                main            hard.py                 overlap
main            src/b.py                main            src/a.py                apart
main            hard.py                 main            src/a.py                apart
main            hard.py                 main            link.py                 apart

main            {nfc}                   main            {nfd}                   same
main            {angstrom}              main            {aring}                 same
main            src/{nfd}               wt              src/{nfc}               same
main            db:{nfc}                main            db:{nfd}                same
main            *{nfc}                  main            {nfd}                   overlap
main            {nfc}                   main            cafe.py                 apart

main            a b.py                  main            a%20b.py                apart
main            src/a.py                main            src%2fa.py              apart
main            src/a.py                main            src/%61.py              apart
main            src/a.py                main            file:src/a.py           apart

main            src                     main            src/a.py                overlap
main            src                     main            src/not/yet.py          overlap
main            nodir                   main            nodir/x                 overlap
main            .                       main            src/a.py                overlap
main            .                       main            *.md                    overlap
main            src                     main            src2                    apart
main            src                     main            src2/a.py               apart
main            src                     main            src.py                  apart
main            src/a.py                main            src/a.py.orig           apart
main            src/lib                 main            src/li                  apart

main            src/a.py                wt              src/a.py                same
main            src/a.py                wt/src          a.py                    same
main            src/a.py                wt              {base}/main/src/a.py    same
main            src/a.py                main            {base}/wt/src/a.py      same
main            src/new.py              main            ../wt/src/new.py        same
main            src/a.py                main/.worktrees/in  src/a.py            same
main            src/a.py                main            .worktrees/in/src/a.py  same
main            src/*.py                main            .worktrees/in/src/a.py  overlap
main            src/*.py                main            .worktrees/in/src/*.py  same
main            src/a.py                wt              ../main/.worktrees/in/src/a.py  same
wt              src/*.py                main/.worktrees/in  src/lib/../a.py     overlap
wt              src/a.py                main/.worktrees/in  src/b.py            apart
main            .                       main            .worktrees/in           same
main            .worktrees              main            .worktrees/in/src/a.py  apart

bw1             x.py                    bw2             x.py                    same
bw1             x.py                    bw1             {base}/bw2/x.py         same
bw1             x.py                    bw2             y.py                    apart
bw1             .git/HEAD               bw1             {base}/bare.git/HEAD    same
bw1             HEAD                    bare.git        HEAD                    apart
bw1             port:3000               bare.git        port:3000               same
proj/one        x.py                    proj/two        x.py                    same
proj/one        x.py                    proj            two/x.py                same
proj/one        x.py                    proj            {base}/proj/one/x.py    same
proj/one        x.py                    bw1             x.py                    apart

main            sub/x.c                 main/sub        x.c                     same
main            sub                     main/sub        x.c                     overlap
main            sub                     main/sub        .                       same
main            sub/inner/y.c           main/sub        inner/y.c               same
main            sub/inner/y.c           main/sub/inner  y.c                     same
main            sub/x.c                 wt/sub          x.c                     same
main            sub/x.c                 wt              sub/x.c                 same
main/sub        x.c                     wt/sub          x.c                     same
main/sub        x.c                     subwt           x.c                     same
main            sub/*.c                 subwt           x.c                     overlap
main            x.c                     main/sub        x.c                     apart
main            embedded/x.c            main/embedded   x.c                     same
main            src/a.py                main/sub        ../src/a.py             same

main            src/*.py                main            src/a.py                overlap
main            src/*.py                main            src/lib/c.py            apart
main            src/**/*.py             main            src/lib/c.py            overlap
main            src/**/*.py             main            src/a.py                overlap
main            **/*.py                 main            README.md               apart
main            src/**/*.sql            main            src/a.py                apart
main            new/**/*.py             main            new                     overlap
main            new/**/*.py             main            new/                    overlap
main            src/*.py                main            src/a.py/below          overlap
main            src/*.py                main            src                     overlap
main            src/*.py                main            src2                    apart
main            srclink/*.py            main            src/a.py                overlap
main            srclink/*.py            main            src/*.py                same
main/src        *.py                    main            src/*.py                same
main/src/lib    ../*.py                 main            src/*.py                same
main            {base}/wt/src/*.py      main            src//./*.py             same
main            src/**                  main            src                     overlap
main            **/c.py                 main            src/lib                 overlap
main            src/?.py                main            src/ab.py               apart
main            pages/[id].tsx          main            pages/i.tsx             apart
main            pages/[id].tsx          main            pages/*.tsx             overlap
main            a{{b,c}}                main            ab                      apart
main            path:odd*name           main            oddXname                apart
main            path:odd*name           main            odd*name                overlap
main            src/*.py                main            src/a*                  overlap
main            src/*.py                main            src/*.ts                apart
main            **/*_test.go            main            pkg/**                  overlap
main            src/**/x/*              main            src/*/y/*               overlap
main            src/*/x                 main            src/*/y                 apart
main            a*b*c                   main            *cab                    apart
main            a*b*c                   main            a*bc                    overlap
main            **                      main            .git/config             overlap

main            src\\a.py               main            src/a.py                apart
main            CON                     main            con                     apart
main            NUL                     main            NUL.txt                 apart
main            README.md.              main            README.md               apart
main            README.md::$DATA        main            README.md               apart
main            LONGFI~1.TXT            main            longfilename.txt        apart
main            C:/src                  main            src                     apart

main            port:3000               wt              port:3000               same
main            port:3000               main/sub        port:3000               same
main            port:3000               main            port:30000              apart
main            port:3000               main            ./port:3000             apart
main            build:                  main            build:x                 apart
main            port:*                  main            port:3000               apart
main            git:index               main            .git/index              apart
main            ./ab:c                  main            path:ab:c               same
main            ./ab:c/*                main            path:ab:c/x             overlap
main            db:x                    main            DB:x                    apart

main            src/a.py                other           src/a.py                apart
main            .                       other           .                       apart
main            port:3000               other           port:3000               apart
main            src/a.py                main/vendor/other  src/a.py             apart
sep             x.py                    sep             {base}/sep/x.py         same
loose           x.py                    loose/dir       ../x.py                 same
loose           dir                     loose/dir       x.py                    overlap
"""

REFUSED = """
main            {base}/outside/x.py
main            ../outside/x.py
main            out/x.py
main            {base}/other/src/a.py
main            vendor/other/src/a.py
main            vendor/other
main            vendor/other/*.py
main            .dibs
main            .dibs/dibs.db
main            ./src/../.dibs/key
main            .dibs/*
main            {base}/bare.git/HEAD
wt              ../*.py
main            src/*/../a.py
main            /*
bw1             {base}/bare.git/.dibs/x
proj            .bare/.dibs/x
loose           {base}/main/src/a.py
loose           nested/x
outside         {base}/main/src/a.py
"""


def git(*arguments: str, cwd: Path) -> None:
    flags = "-c user.name=t -c user.email=t@t -c protocol.file.allow=always -c init.defaultBranch=m"
    subprocess.run(
        ["git", *flags.split(), *arguments],
        cwd=cwd,
        check=True,
        capture_output=True,
        env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
    )


def repository(path: Path, *files: str) -> Path:
    path.mkdir(parents=True)
    git("init", cwd=path)
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    git("add", "-A", cwd=path)
    git("commit", "-m", "first", "--allow-empty", cwd=path)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = Path(os.path.realpath(tmp_path_factory.mktemp("tree")))
    inner = repository(base / "origins/inner", "y.c")
    sub = repository(base / "origins/sub", "x.c")
    git("submodule", "add", str(inner), "inner", cwd=sub)
    git("commit", "-m", "inner", cwd=sub)

    main = repository(
        base / "main", "src/a.py", "src/b.py", "src/lib/c.py", "src2/a.py", "README.md"
    )
    git("submodule", "add", str(sub), "sub", cwd=main)
    git("submodule", "update", "--init", "--recursive", cwd=main)
    repository(main / "embedded", "x.c")
    git("submodule", "add", "./embedded", "embedded", cwd=main)
    git("commit", "-m", "submodules", cwd=main)
    git("worktree", "add", "../wt", cwd=main)
    git("worktree", "add", ".worktrees/in", cwd=main)
    git("submodule", "update", "--init", "--recursive", "sub", cwd=base / "wt")
    git("worktree", "add", "../../subwt", cwd=main / "sub")
    repository(main / "vendor/other", "src/a.py")
    repository(base / "other", "src/a.py")

    (main / NFC).write_text("")
    (main / ".dibs").mkdir()
    os.link(main / "src/b.py", main / "hard.py")
    for name, target in {
        "main/link.py": "src/a.py",
        "main/chain.py": "link.py",
        "main/srclink": "src",
        "main/deep": "src/lib",
        "main/dangling": "src/dangling.py",
        "main/out": "../outside",
        "intomain": "main/src",
    }.items():
        (base / name).symlink_to(target)

    git("clone", "--bare", str(base / "other"), "bare.git", cwd=base)
    git("worktree", "add", "../bw1", "-b", "one", cwd=base / "bare.git")
    git("worktree", "add", "../bw2", "-b", "two", cwd=base / "bare.git")
    (base / "proj").mkdir()
    git("clone", "--bare", str(base / "other"), ".bare", cwd=base / "proj")
    (base / "proj/.git").write_text("gitdir: ./.bare\n")
    git("worktree", "add", "one", cwd=base / "proj")
    git("worktree", "add", "two", cwd=base / "proj")
    (base / "sep").mkdir()
    git("init", "--separate-git-dir", str(base / "sep.git"), cwd=base / "sep")

    for name in ("outside", "loose/.dibs", "loose/dir", "loose/nested/.dibs"):
        (base / name).mkdir(parents=True)
    return base


def rows(table: str, base: Path) -> list[list[str]]:
    words = {"base": base, "nfc": NFC, "nfd": NFD, "angstrom": ANGSTROM, "aring": A_RING}
    # `a b.py` has one blank in it, so columns are two or more apart.
    return [
        [cell.strip().format(**words) for cell in line.split("  ") if cell.strip()]
        for line in table.splitlines()
        if line.strip()
    ]


def named(base: Path, where: str, text: str) -> tuple[str, Resource] | None:
    cwd = str(base / where)
    place = find_place(cwd, str(base / "user"))
    try:
        return place.root, place.resource(text, cwd)
    except InvalidError:
        return None


def verdict(a: tuple[str, Resource] | None, b: tuple[str, Resource] | None) -> str:
    if a is None or b is None or a[0] != b[0]:
        return "apart"
    overlap = resources_overlap(a[1], b[1])
    assert overlap is resources_overlap(b[1], a[1])
    if a[1] == b[1]:
        assert overlap and a[1].base == b[1].base
        return "same"
    return "overlap" if overlap else "apart"


def test_one_file_has_one_name(base: Path) -> None:
    table = rows(PAIRS, base)
    missed: list[str] = []
    false: list[str] = []
    for where_a, text_a, where_b, text_b, expected in table:
        got = verdict(named(base, where_a, text_a), named(base, where_b, text_b))
        if got != expected:
            (missed if got == "apart" or expected == "same" else false).append(
                f"{where_a}: {text_a} | {where_b}: {text_b} is {got}, not {expected}"
            )
    print(f"R11: {len(table)} pairs, {len(missed)} missed, {len(false)} false")
    assert len(table) >= 80
    assert not missed
    assert not false


def test_what_belongs_elsewhere_is_refused(base: Path) -> None:
    accepted = [row for row in rows(REFUSED, base) if named(base, *row)]
    assert not accepted


def test_every_checkout_finds_the_same_store(base: Path) -> None:
    user = str(base / "user")
    for where in (
        *("main", "main/src", "main/.git/hooks", "wt", "wt/src", "main/.worktrees/in"),
        *("main/sub", "main/sub/inner", "wt/sub", "subwt", "main/embedded"),
    ):
        assert find_place(str(base / where), user).store_dir == str(base / "main/.dibs"), where
    for where in ("bw1", "bw2", "bare.git", "bare.git/hooks"):
        assert find_place(str(base / where), user).store_dir == str(base / "bare.git/.dibs")
    for where in ("proj", "proj/one", "proj/two"):
        assert find_place(str(base / where), user).store_dir == str(base / "proj/.bare/.dibs")
    assert find_place(str(base / "sep"), user).store_dir == str(base / "sep/.dibs")
    assert find_place(str(base / "loose/dir"), user).store_dir == str(base / "loose/.dibs")
    outside = find_place(str(base / "outside"), user)
    assert (outside.root, outside.top, outside.store_dir) == ("/", "/", user)


def test_the_top_is_the_checkout_we_are_in(base: Path) -> None:
    for where, top in {
        "main/src": "main",
        "wt/src": "wt",
        "wt/sub": "wt",
        "main/sub/inner": "main",
        "main/.worktrees/in/src": "main/.worktrees/in",
        "subwt": "subwt",
        "bw1": "bw1",
    }.items():
        assert find_place(str(base / where), "/u").top == str(base / top)


def test_a_resource_knows_its_file_in_the_callers_checkout(base: Path) -> None:
    for where, text, file in (
        ("main", "src/a.py", "main/src/a.py"),
        ("wt", "src/a.py", "wt/src/a.py"),
        ("main", "srclink/a.py", "main/src/a.py"),
        ("subwt", "x.c", "subwt/x.c"),
    ):
        found = named(base, where, text)
        assert found and found[1].file == str(base / file)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("README.md", "readme.MD", "same"),
        ("SRC/*.PY", "src/a.py", "overlap"),
        ("stra\u00dfe", "STRASSE", "same"),
        ("CAFE\u0301", "caf\u00e9", "same"),
        ("\u1fb3", "\u0391\u0345", "same"),
        ("\u1fb4", "\u0391\u0345\u0301", "same"),
        ("README.md", "readme.txt", "apart"),
        ("Port:3000", "port:3000", "apart"),
        ("db:X", "db:x", "apart"),
    ],
)
def test_case_is_folded_where_the_disk_is_blind_to_it(
    base: Path, a: str, b: str, expected: str
) -> None:
    root = str(base / "main")
    blind = Place(Checkout(root, root), f"{root}/.dibs", case_blind=True)
    first, second = (blind.resource(text, root) for text in (a, b))
    assert verdict((root, first), (root, second)) == expected
    assert blind.resource(first.text, root) == first
    with pytest.raises(InvalidError):
        blind.resource(".DIBS/x", root)


@pytest.fixture
def blind_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that is blind to case: the one here, or one in a loop mount."""
    (tmp_path / "probe").mkdir()
    if (tmp_path / "PROBE").exists():
        yield tmp_path
        return
    if os.geteuid() != 0:
        pytest.skip("this disk sees case, and only root can mount one that does not")
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    reasons = []
    for make in (
        ["mkfs.vfat"],
        ["mkfs.ext4", "-q", "-O", "casefold"],
        ["mkfs.xfs", "-nversion=ci"],
    ):
        if shutil.which(make[0]) is None:
            reasons.append(f"{make[0]} is not installed")
            continue
        image.unlink(missing_ok=True)
        with image.open("wb") as file:
            file.truncate(320 << 20 if "xfs" in make[0] else 32 << 20)
        for command in ([*make, str(image)], ["mount", "-o", "loop", str(image), str(mount)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reasons.append(" ".join(f"{make[0]}: {done.stderr}".split()))
                break
        else:
            try:
                top = mount / "top"
                top.mkdir()
                subprocess.run(["chattr", "+F", str(top)], capture_output=True, check=False)
                yield top
            finally:
                subprocess.run(["umount", str(mount)], check=True)
            return
    pytest.skip(f"no file system here is blind to case: {'; '.join(reasons)}")


def test_another_case_is_the_same_file_on_a_disk_blind_to_it(blind_disk: Path) -> None:
    repo = repository(blind_disk / "Repo", "README.md")
    place = find_place(str(repo), "/u")
    assert place.case_blind
    assert place.resource("README.md", str(repo)) == place.resource("readme.MD", str(repo))
    shouted = str(blind_disk / "REPO/README.MD")
    assert place.resource(shouted, str(repo)) == place.resource("README.md", str(repo))


def test_this_disk_is_seen_as_it_is(base: Path) -> None:
    blind = (base / "MAIN").exists()
    for where in ("main", "wt", "bw1", "loose", "outside"):
        place = find_place(str(base / where), "/u")
        assert where == "outside" or place.case_blind is blind
