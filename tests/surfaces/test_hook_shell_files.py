"""What a command is known to change because a file of the project says so: scripts, recipes, lists.

Such a file may be anything, written by anybody: it is read within bounds, and never run.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from dibs.surfaces.hooks.chosen import is_chosen
from dibs.surfaces.hooks.shell import read
from dibs.surfaces.hooks.shell.call import DISK
from dibs.surroundings import archive


def changed(command: str, folder: Path) -> list[str]:
    found = [os.path.relpath(edit.path, folder) for edit in read(command, str(folder), DISK).edits]
    return sorted(found)


FILES = {
    "Makefile": "OUT = doc.md\n.PHONY: all gen sub\nall: gen\n\techo all > all.txt\ngen:\n"
    "\t@python gen.py > $(OUT)\nsub:\n\t$(MAKE) -C deep over\nthere.txt:\n\techo x > there.txt\n",
    "deep/Makefile": "over:\n\techo x > over.txt\n",
    "justfile": 'name := "b.md"\ncheck: build\n    true\nbuild:\n    echo x > {{name}}\n'
    'put file="c.md" *rest:\n    echo x > {{file}}\n    touch {{rest}}\n',
    "Taskfile.yml": "version: '3'\ntasks:\n  default: rm a.md\n  gen:\n    desc: Writes\n"
    "    deps: [first]\n    cmds:\n      - echo x > made.md\n      - task: last\n      - |\n"
    "        cd deep\n        # not: this\n        echo x > block.md\n  first:\n"
    "    cmd: touch f.md\n  last:\n    cmds:\n      - cmd: touch l.md\n      - task: gen\n",
    "package.json": json.dumps(
        {"scripts": {"fix": "node fix.js", "prefix": "echo x > log.txt", "list": "echo $1"}}
    ),
    "fix.js": "require('fs').writeFileSync(__dirname + '/web.js', '')\n",
    "gen.py": "from pathlib import Path\nROOT = Path(__file__).parent\n"
    "def main():\n    (ROOT / 'made.md').write_text('')\n"
    "if __name__ == '__main__':\n    main()\n",
    "run.sh": '#!/bin/sh\ncd "$(dirname "$0")"\nif [ "$1" = --check ]; then exit; fi\n'
    'echo x > "$1"\n',
    "names.txt": "a.md\nb.md\n",
    "there.txt": "one\n",
    "list.json": '{"list": [{"name": "a.md"}, {"name": "b.md"}], "one": "c.md"}',
    "lib/tool/make.py": "import sys\nopen(sys.argv[1], 'w')\n",
    ".pre-commit-config.yaml": "repos:\n- hooks:\n  - id: black\n  - id: check-yaml\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("make", "all.txt doc.md made.md"),
        ("make gen OUT=other.md", "made.md other.md"),
        ("make sub", "deep/over.txt"),
        ("make there.txt", ""),
        ("make -n", ""),
        ("make absent", ""),
        ("just check", "b.md"),
        ("just put", "c.md"),
        ("just put d.md e.md f.md", "d.md e.md f.md"),
        ("task", "a.md"),
        ("task gen", "deep/block.md f.md l.md made.md"),
        ("task --list; task absent", ""),
        ("npm run fix", "log.txt web.js"),
        ("npm run list -- x", ""),
        ("npm run absent", ""),
        ("python gen.py", "made.md"),
        ("cd deep && python3 ../gen.py", "made.md"),
        ("bash run.sh out.txt", "out.txt"),
        ("sh ./run.sh out.txt", "out.txt"),
        ("xargs -a names.txt rm", "a.md b.md"),
        ("while read f; do echo x > $f; done < names.txt", "a.md b.md"),
        ("cat names.txt | xargs touch", "a.md b.md"),
        ("touch there.txt new.txt", "new.txt"),
        ("mkdir d && echo x > d/a && echo x > d/b/c && cp -r d/. deep",
         "d/a d/b/c deep/a deep/b/c"),
        ("mkdir d && echo x > d/a && cp -r d/* deep", "d/a deep/a"),
        ("ex -sc '%s/a/b/|x' there.txt; vim -es -cwq names.txt; ex -sc 'q!' run.sh",
         "names.txt there.txt"),
        ("python - a.md b.md <<'E'\nimport sys\nfor f in sys.argv[1:]: open(f, 'w')\nE",
         "a.md b.md"),
        ("npm exec prettier -- --write gen.js", "gen.js"),
        ("pre-commit run --all-files", "**/*.py **/*.pyi"),
        ("pre-commit run check-yaml --all-files", ""),
        ("for f in *.txt; do mv $f ${f%.txt}.log; done",
         "names.log names.txt there.log there.txt"),
        ("[ -f there.txt ] || echo x > there.txt", ""),
        ("[ -f there.txt ] && echo x > there.txt", "there.txt"),
        ("test -d absent && echo x > a.md || echo x > b.md", "b.md"),
        ("if [ ! -e absent ]; then echo x > a.md; else echo x > b.md; fi", "a.md"),
        ("for d in . deep; do cd $d; for f in M*; do [ -e \"$f\" ] && echo x > \"$f\"; done; done",
         "M* deep/M*"),
        ("! [ -f there.txt ] && { echo x > a.md; rm b.md; }", ""),
        ("grep -q one there.txt || echo one >> there.txt", ""),
        ("grep -qxF two there.txt || echo two >> there.txt", "there.txt"),
        ("grep -q 'o.*e' there.txt || echo one >> there.txt", "there.txt"),
        ("for f in *.orig deep/*.rej; do mv $f ${f%.*}; done", ""),
        ("echo x > a.orig; for f in *.orig; do mv $f ${f%.orig}; done", "a a.orig a.orig"),
        ("mv -n names.txt there.txt; cp -n names.txt there.txt; ln -s names.txt there.txt", ""),
        ("mv -n names.txt new.txt; ln -sf run.sh there.txt", "names.txt new.txt there.txt"),
        ("bash -n run.sh; bash -n -c 'rm names.txt'", ""),
        ("rm there.txt; [ -f there.txt ] || echo x > a.md", "a.md there.txt"),
        ("while true; do [ -f there.txt ] && break; rm there.txt; done", ""),
        ("[ -s there.txt ] || rm there.txt; [ -s absent ] || rm names.txt", "names.txt"),
        ('[ "$(head -1 names.txt)" = a.md ] || rm there.txt', ""),
        ('[ "$(tail -n 1 names.txt)" = a.md ] || rm there.txt', "there.txt"),
        ("command -v no-such-command > /dev/null && rm there.txt", ""),
        ("which no-such-command || rm there.txt", "there.txt"),
        ("command -v sh && rm there.txt", "there.txt"),
        ("sh run.sh --check out.txt; sh run.sh", ""),
        ("cd absent; rm there.txt", "there.txt"),
        ("cd absent && rm there.txt", ""),
        ("cd absent || exit 1; rm there.txt", ""),
        ("mkdir absent; cd absent; touch new.txt", "absent/new.txt"),
        ("rename 's/[.]txt$/.md/' *.txt", "names.txt there.txt"),
        ("rename 's/names/all/' *.txt; rename -n 's/t/x/' *; rename 's/none/x/' *", "names.txt"),
        ("rename there here *.txt", "there.txt"),
        ("PYTHONPATH=lib python -m tool.make a.md", "a.md"),
        ("python -m tool.absent; python -m http.server", ""),
        ("jq -r '.list[].name' list.json | xargs rm", "a.md b.md"),
        ("for f in $(jq -r .one list.json); do rm $f; done", "c.md"),
        ("jq -r '.list | length' list.json | xargs rm; jq .one list.json | xargs rm", ""),
        ("echo a.md | xargs -I{} cat names.txt | xargs rm", "a.md b.md"),
        ("cat gen.py | ruff format - | head; black - < gen.py", ""),
        ("ruff format $UNKNOWN_FILES; gofmt -w $(list)", ""),
    ],
)  # fmt: skip
def test_what_a_file_of_the_project_says_is_known(project: Path, command: str, files: str) -> None:
    assert changed(command, project) == files.split()


CONFIG = r"""[core]
	bare = false
[alias]
	undo = checkout HEAD -- ; not a comment of the shell
	fmt = "!sed -i \"s/ *$//\" there.txt"
	under = !rm
	log = checkout there.txt
	loop = loop
	put = "!f() { cp \"$1\" \"$2\"; }; f"
"""


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("git undo there.txt", "there.txt"),
        ("git -C deep undo Makefile", "deep/Makefile"),
        ("git fmt", "there.txt"),
        ("cd deep && git under there.txt", "there.txt"),
        ("git put there.txt deep", "deep/there.txt"),
        ("git log there.txt", ""),
        ("git loop; git absent", ""),
        ("git mine names.txt", "names.txt"),
        ("git config alias.x fmt; git commit -m x", ""),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_an_alias_of_git_is_what_it_is_short_for(
    project: Path, command: str, files: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = project / "home"
    git = home / "repository" if linked else project / ".git"
    git.mkdir(parents=True)
    (git / "config").write_text(CONFIG)
    if linked:
        (project / ".git").write_text(f"gitdir: {git}/worktrees/project\n")
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text("[alias]\nmine = rm\nundo = status\n")
    monkeypatch.setenv("HOME", str(home))
    assert changed(command, project) == files.split()


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("git commit -m x", "there.txt"),
        ("cd deep && git add . && git commit --amend -q", "there.txt"),
        ("git commit --no-verify -m x; git commit -nm x; git commit --dry-run", ""),
        ("git commit -m 'no --no-verify'", "there.txt"),
        ("git log; git push", ""),
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_the_hook_before_a_commit_is_a_part_of_it(
    project: Path, command: str, files: str, linked: bool
) -> None:
    git = project / "repository" if linked else project / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "hooks/pre-commit").write_text("#!/bin/sh\nset -e\nsed -i 's/x/y/' there.txt\n")
    if linked:
        (project / ".git").write_text(f"gitdir: {git}/worktrees/project\n")
    assert changed(command, project) == files.split()


@pytest.mark.parametrize(("branch", "files"), [("main", "there.txt"), ("other", "")])
def test_the_branch_is_known(project: Path, branch: str, files: str) -> None:
    (project / ".git").mkdir()
    (project / ".git/HEAD").write_text(f"ref: refs/heads/{branch}\n")
    command = '[ "$(git branch --show-current)" = main ] && rm there.txt'
    assert changed(command, project) == files.split()
    command = '[ "$(git rev-parse --abbrev-ref HEAD)" != main ] || rm there.txt'
    assert changed(command, project) == files.split()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("Makefile", "a:\n" + "\tmake a\n" * 1000, "make a"),
        ("Makefile", "".join(f"t{n}: t{n + 1} t{n + 1}\n\ttrue\n" for n in range(2000)), "make"),
        ("Makefile", "".join(f"V{n} = $(V{n + 1})$(V{n + 1})\n" for n in range(2000))
         + "a:\n" + "\techo $(V0)\n" * 300, "make a"),
        ("run.sh", "#!/bin/sh\n" + "./run.sh\n" * 1000, "./run.sh"),
        ("package.json", '{"scripts": {"a": "npm run a; npm run a"}}', "npm run a"),
        ("package.json", "[" * 60_000, "npm run a"),
        ("gen.py", "for x in 'a':\n" + " if x: continue\n" * 4000, "python gen.py"),
        ("gen.py", "x" * 100_000, "python gen.py"),
    ],
)  # fmt: skip
def test_a_file_that_leads_in_cycles_comes_to_an_end(
    tmp_path: Path, name: str, text: str, command: str
) -> None:
    (tmp_path / name).write_text(text)
    assert changed(command, tmp_path) == []


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.sh")
    assert changed("sh run.sh; ./run.sh; cat run.sh | xargs rm", tmp_path) == []


def test_the_names_in_an_archive_are_known_without_unpacking_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("top/x.py", "1")
        packed.writestr("../out.py", "1")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("top/y.py"), io.BytesIO())
    assert archive.members(str(tmp_path / "a.zip")) == ["top/x.py"]
    assert archive.members(str(tmp_path / "a.tgz"), 1) == ["y.py"]
    (tmp_path / "b.tgz").write_bytes((tmp_path / "a.tgz").read_bytes()[:40])
    assert archive.members(str(tmp_path / "b.tgz")) == []
    assert archive.members(str(tmp_path / "absent")) == []


@pytest.mark.timeout(30)
def test_of_a_small_archive_with_gigabytes_in_it_little_is_read(tmp_path: Path) -> None:
    import gzip

    with gzip.open(tmp_path / "bomb.tgz", "wb", compresslevel=9) as packed:
        head = tarfile.TarInfo("zeros")
        head.size = 1 << 40
        packed.write(head.tobuf(tarfile.GNU_FORMAT))
        for _ in range(300):
            packed.write(bytes(1 << 20))
    assert archive.members(str(tmp_path / "bomb.tgz")) in ([], ["zeros"])


@pytest.mark.parametrize(
    ("ask", "chosen"),
    [
        ("with||one", True), ("with||two|one", True), ("with||ONE", False), ("with|i|ONE", True),
        ("named|src/", True), ("unnamed|src/", False), ("ending|.py|.js", True),
        ("unlike|tests", True), ("unlike|src", False), ("unlike|*.py", False),
        ("unlike|./src/*", False), ("unlike|*/a.py", False), ("unlike|*/lib/*", True),
        ("copied|TOP/other", True), ("copied|TOP/src", True), ("copied|TOP/absent", False),
        ("there", True), ("untidy", False), ("empty", False), ("older|60", False),
    ],
)  # fmt: skip
def test_a_file_is_one_of_those_that_are_meant(tmp_path: Path, ask: str, chosen: bool) -> None:
    for folder in ("src", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.py").write_text("one\n")
    asks = [("only", *ask.replace("TOP", str(tmp_path)).split("|"))]
    file = str(tmp_path / "src/a.py")
    assert is_chosen(asks, file, str(tmp_path), str(tmp_path / "src")) == chosen
