"""What a shell command is going to change: said from its text, and held against a real bash.

Each row of the tables is a command and the edits that are said of it. Those of RUN are also run
in a real repository: every file that changes must have been named, and nothing may be named that
does not change. What cannot be recognised says why it is caught afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.names.globs import covers
from dibs.surfaces.hooks.shell import READS, UNKNOWN, WRITES, read, rules, syntax
from dibs.surfaces.hooks.shell.call import Disk
from dibs.surroundings.occasion import Edit


class Row(NamedTuple):
    """A command and the edits it is said to make, as in `write a.py, remove b.py, tree .`.

    seen: the edits if the files can be looked at, where that makes a difference
    late: why it changes files that are not named, and is caught afterwards
    spare: why it is said to change what it does not
    """

    command: str
    edits: str = ""
    seen: str | None = None
    late: str = ""
    spare: str = ""


REDIRECTIONS = [
    Row("echo x > a.py", "write a.py"),
    Row("echo x >> a.py", "write a.py"),
    Row("echo x >new.txt", "write new.txt"),
    Row("echo x>new.txt", "write new.txt"),
    Row("echo x 1>new.txt", "write new.txt"),
    Row("echo x 1>>new.txt 2>err.txt", "write new.txt, write err.txt"),
    Row("ls nothing 2> err.txt", "write err.txt"),
    Row("ls nothing &> all.txt", "write all.txt"),
    Row("ls nothing &>> a.py", "write a.py"),
    Row("ls nothing >& all.txt", "write all.txt"),
    Row("echo x >| a.py", "write a.py"),
    Row("echo x 1<>a.py", "write a.py"),
    Row("> a.py", "write a.py"),
    Row(": > a.py", "write a.py"),
    Row("exec > out.txt; echo x", "write out.txt"),
    Row("> new.txt echo x", "write new.txt"),
    Row("echo x > a.py > b.py", "write a.py, write b.py"),
    Row("echo x >&2"),
    Row("echo x 2>&1"),
    Row("echo x > /dev/null 2>&1"),
    Row("echo x 2>/dev/null"),
    Row("echo x > new.txt 2>&1", "write new.txt"),
    Row("cat < a.py"),
    Row('echo "a > b"'),
    Row("echo 'a > b'"),
    Row("echo a \\> b"),
    Row("[[ a > b ]]"),
    Row("[[ a > b && ( c < d ) ]] || echo x > new.txt", "write new.txt"),
    Row("echo $((1 > 2))"),
    Row("((1 > 2)) || echo x > new.txt", "write new.txt"),
    Row("echo $(( (1 + 2) > 1 )) > new.txt", "write new.txt"),
    Row("test a \\> b"),
    Row("grep -c '>' a.py"),
    Row("grep '=>' src/a.py | head -3"),
    Row('echo x > "with space.txt"', "write with space.txt"),
    Row("echo x > with\\ space.txt", "write with space.txt"),
    Row("echo x > 'it'\"'\"'s.txt'", "write it's.txt"),
    Row("echo x > $'tab\\tname.txt'", "write tab\tname.txt"),
    Row("echo x > new'.'\"txt\"", "write new.txt"),
    Row("echo x > ./src/../new.txt", "write new.txt"),
    Row("echo x > src/new.txt # > comment.txt", "write src/new.txt"),
    Row("# echo x > a.py"),
    Row("echo a#b > new.txt", "write new.txt"),
    Row("echo x \\\n  > new.txt", "write new.txt"),
    Row("echo x > \\\n  new.txt", "write new.txt"),
    Row("echo one > a.py\necho two > b.py", "write a.py, write b.py"),
    Row("echo x > a.py & wait", "write a.py"),
    Row("echo x > ~/notes.txt", "write ~/notes.txt"),
    Row('echo x > "$HOME/notes.txt"', "write ~/notes.txt"),
    Row("echo x > ${HOME}/notes.txt", "write ~/notes.txt"),
    Row("echo x > '~'", "write ~~"),
    Row('echo x > "$PWD/new.txt"', "write new.txt"),
    Row("echo x > $NAME"),
    Row("echo x > `echo new.txt`", "write new.txt"),
    Row("echo x > new-$(date +%s).txt", late="the name is the output of a command"),
    Row('printf "%s\\n" a b > new.txt', "write new.txt"),
    Row("{ echo a; echo b; } > new.txt", "write new.txt"),
    Row("( echo a; echo b ) >> new.txt", "write new.txt"),
    Row("for i in 1 2; do echo $i; done > new.txt", "write new.txt"),
    Row("while read l; do echo $l; done < a.py > new.txt", "write new.txt"),
    Row("cat a.py | sort | uniq > new.txt", "write new.txt"),
    Row("awk '{print $1 > \"new.txt\"}' a.py", "write new.txt"),
    Row("awk '{print $1}' a.py > tmp && mv tmp a.py", "write tmp, remove tmp, write a.py",
        spare="tmp is gone again"),
    Row("jq . data.json > tmp.json && mv tmp.json data.json",
        "write tmp.json, remove tmp.json, write data.json", spare="tmp.json is gone again"),
    Row("diff a.py b.py > changes.diff || true", "write changes.diff"),
    Row("git diff HEAD~1 > changes.diff", "write changes.diff"),
    Row("echo x > new.txt; cat new.txt; rm new.txt", "write new.txt, remove new.txt",
        spare="it is gone again"),
]  # fmt: skip

DOCUMENTS = [
    Row("cat > new.txt <<'EOF'\nrm a.py\necho x > b.py\nEOF", "write new.txt"),
    Row("cat <<EOF > new.txt\na > b\nEOF", "write new.txt"),
    Row('cat <<"EOF" >> a.py\n$(rm b.py)\nEOF', "write a.py"),
    Row("cat <<EOF > new.txt\n$(rm b.py)\nEOF", "remove b.py, write new.txt"),
    Row("cat <<EOF > new.txt\n\\$(rm b.py)\nEOF", "write new.txt"),
    Row("cat <<-EOF > new.txt\n\tone\n\tEOF\necho x > b.py", "write new.txt, write b.py"),
    Row("cat <<A > one.txt; cat <<B > two.txt\n> a.py\nA\n> b.py\nB\n",
        "write one.txt, write two.txt"),
    Row("mkdir -p x && cat > x/y.py <<'EOF'\nprint(1)\nEOF", "write x/y.py"),
    Row("cat <<'EOF' | tee new.txt\n> a.py\nEOF", "write new.txt"),
    Row("cat << 'END OF' > new.txt\n> a.py\nEND OF\n", "write new.txt"),
    Row("cat > new.txt <<'EOF'\nit's \"open\nEOF\nrm a.py", "write new.txt, remove a.py"),
    Row("python3 - <<'EOF'\nopen('a.py', 'w').write('x')\nEOF", "write a.py"),
    Row("python3 -c \"open('a.py', 'w').write('x')\"", "write a.py"),
    Row("bash <<'EOF'\nrm a.py\nEOF", "remove a.py"),
    Row("bash -s <<'EOF'\necho x > a.py\nEOF", "write a.py"),
    Row("cat > run.sh <<'EOF'\nrm a.py\nEOF\nbash run.sh", "write run.sh, remove a.py"),
    Row("wc -l <<< 'a > b'"),
    Row("cat <<EOF\nnothing > a.py\nEOF"),
    Row("cat <<EOF > new.txt && rm b.py\nbody\nEOF\nrm a.py",
        "write new.txt, remove b.py, remove a.py"),
    Row("cat <<'EOF' > new.txt\nno end\n", "write new.txt"),
    Row("x=$(cat <<'EOF'\n) > a.py\nEOF\n); echo \"$x\" > new.txt", "write new.txt"),
]  # fmt: skip

PYTHON = "write **/*.py, write **/*.pyi"
PYTHON_IN_SRC = "write src/**/*.py, write src/**/*.pyi"

WRITERS = [
    Row("echo x | tee a.py", "write a.py"),
    Row("echo x | tee -a a.py b.py > /dev/null", "write a.py, write b.py"),
    Row("echo x | tee new.txt | grep x", "write new.txt"),
    Row("sed -i 's/one/two/' a.py", "write a.py"),
    Row("sed -i 's/one/two/' a.py src/a.py", "write a.py, write src/a.py"),
    Row("sed -i -e 's/one/two/' -e 's/x/y/' a.py", "write a.py"),
    Row("sed -i.bak 's/one/two/' a.py", "write a.py, write a.py.bak"),
    Row("sed --in-place=.orig 's/one/two/' a.py", "write a.py, write a.py.orig"),
    Row("sed --in-place 's/one/two/' a.py", "write a.py"),
    Row("sed -n -i 's/one/two/p' a.py", "write a.py"),
    Row("sed -Ei 's/(one)/two/' a.py", "write a.py"),
    Row("sed -i '' -e 's/one/two/' a.py", "write a.py"),
    Row("sed -i '1d;$d' a.py", "write a.py"),
    Row("sed -i \"s/one/$x/\" a.py", "write a.py"),
    Row("sed -i \"s|one|$(date +%s)|\" a.py", "write a.py"),
    Row("sed -i '1i\\\nimport os > b.py' a.py", "write a.py"),
    Row("sed -i -f script.sed a.py", "write a.py"),
    Row("sed 's/one/two/' a.py"),
    Row("sed -n '1,5p' a.py"),
    Row("sed 's/one/two/' a.py > new.py", "write new.py"),
    Row("sed -i 's/one/two/' *.py", "write *.py"),
    Row("sed -i 's/one/two/' src/*.py src/deep/c.py", "write src/*.py, write src/deep/c.py"),
    Row("perl -pi -e 's/one/two/' a.py", "write a.py"),
    Row("perl -i -pe 's/one/two/' a.py b.py", "write a.py, write b.py"),
    Row("perl -0777 -i.bak -pe 's/one/two/' a.py", "write a.py, write a.py.bak"),
    Row("perl -ne 'print' a.py"),
    Row("mv a.py z.py", "remove a.py, write z.py"),
    Row("mv a.py src/", "remove a.py, write src/a.py"),
    Row("mv a.py src", "remove a.py, write src", seen="remove a.py, write src/a.py"),
    Row("mv a.py b.py src", "remove a.py, remove b.py, write src/a.py, write src/b.py"),
    Row("mv -t src a.py b.py", "remove a.py, remove b.py, write src/a.py, write src/b.py"),
    Row("mv -f -- a.py b.py", "remove a.py, write b.py"),
    Row("mv src lib", "remove src, write lib"),
    Row("mv a.py ..", "remove a.py, write ../a.py"),
    Row("mv *.py docs", "remove *.py, write docs/*.py"),
    Row("cp a.py b.py", "write b.py"),
    Row("cp a.py src/", "write src/a.py"),
    Row("cp -p a.py c.txt docs", "write docs/a.py, write docs/c.txt"),
    Row("cp -r src lib", "write lib"),
    Row("cp -r src docs", "write docs", seen="write docs/src"),
    Row("cp -r src/. docs/", "write docs"),
    Row("cp a.py{,.bak}", "write a.py.bak"),
    Row("cp --target-directory=docs a.py", "write docs/a.py"),
    Row("cp -T a.py b.py", "write b.py"),
    Row('cp "$missing" a.py', "write a.py", spare="its source is missing"),
    Row("install -m 644 a.py new.py", "write new.py"),
    Row("install -D a.py x/y/new.py", "write x/y/new.py"),
    Row("install -d x/y"),
    Row("ln -s a.py link.py", "write link.py"),
    Row("ln -sf ../a.py src/link.py", "write src/link.py"),
    Row("cd src && ln -s ../c.txt", "write src/c.txt"),
    Row("ln -s ../a.py docs/", "write docs/a.py"),
    Row("rm a.py", "remove a.py"),
    Row("rm -f a.py missing.py", "remove a.py, remove missing.py", spare="one is missing"),
    Row("rm -rf src", "remove src"),
    Row("rm -rf src/ docs/", "remove src, remove docs"),
    Row("rm src/*.py", "remove src/*.py"),
    Row("rm src/?.py", "remove src/?.py"),
    Row("rm {a,b}.py", "remove a.py, remove b.py"),
    Row("rm src/{a,deep/c}.py", "remove src/a.py, remove src/deep/c.py"),
    Row("rm '*.py' ; true", "remove *.py", spare="a quoted star is a letter"),
    Row("rm [ab].py", "remove ?.py"),
    Row("rm -- -odd.txt", "remove -odd.txt"),
    Row("/bin/rm a.py", "remove a.py"),
    Row("\\rm a.py", "remove a.py"),
    Row("unlink a.py", "remove a.py"),
    Row("rm src/deep/c.py && rmdir src/deep", "remove src/deep/c.py"),
    Row("truncate -s 0 a.py", "write a.py"),
    Row("truncate --size=3 a.py b.py", "write a.py, write b.py"),
    Row("touch new.txt", "write new.txt"),
    Row("touch -c a.py new.txt", ""),
    Row("touch -d yesterday new.txt src/new.txt", "write new.txt, write src/new.txt"),
    Row("mkdir -p x/y/z"),
    Row("chmod +x a.py"),
    Row("dd if=a.py of=new.py 2>/dev/null", "write new.py"),
    Row("sort -o a.py a.py", "write a.py"),
    Row("sort b.py --output=new.txt", "write new.txt"),
    Row("curl -s -o new.txt file://$PWD/a.py", "write new.txt"),
    Row("printf '1d\\nw\\nq\\n' | ed -s a.py", "write a.py"),
    Row("find src -name '*.py' -delete", "remove src/**/*.py"),
    Row("find src -type f -exec sed -i 's/one/two/' {} +", "write src/**"),
    Row("find . -name a.py -exec rm {} \\;", "remove **/a.py"),
    Row("find docs -name '*.md' -exec mv {} {}.bak \\;",
        "remove docs/**/*.md, write docs/**/*.md.bak"),
    Row("find src -name '*.py' -exec cp {} docs/ \\;", "write docs/*.py"),
    Row("find . -path ./.git -prune -o -name '*.md' -exec rm -f {} +", "remove **/*.md"),
    Row("find . -name '*.py' -exec grep one {} +"),
    Row("find . -name '*.py' | xargs sed -i 's/one/two/'", "write **/*.py"),
    Row("grep -rl one src | xargs rm", "remove src/**/*"),
    Row("grep -rl absent src | xargs -r rm", "remove src/**/*", spare="asked only if it matters"),
    Row("tar cf - src | (cd docs && tar xf -)", late="what an archive holds"),
    Row("ruff format spaced.py", "write spaced.py"),
    Row("ruff format", f"{PYTHON}, write **/*.ipynb", spare="not every ending is there"),
    Row("ruff format src/ spaced.py",
        f"{PYTHON_IN_SRC}, write src/**/*.ipynb, write spaced.py", spare="src is as it should be"),
    Row("ruff format --check spaced.py"),
    Row("ruff check --fix unused.py", "write unused.py"),
    Row("ruff check unused.py"),
    Row("python -m ruff format spaced.py", "write spaced.py"),
]  # fmt: skip

PATCH = """--- a/a.py
+++ b/a.py
@@ -1,4 +1,4 @@
-one
+two
 d
 c
 b
"""
CODEX = """*** Begin Patch
*** Update File: a.py
*** Move to: src/moved.py
@@
-one
+two
*** Add File: new.txt
+> b.py
*** Delete File: c.txt
*** End Patch
"""

PATCHES = [
    Row(f"patch -p1 <<'EOF'\n{PATCH}EOF", "write a.py"),
    Row(f"git apply <<'EOF'\n{PATCH}EOF", "write a.py"),
    Row(f"git apply - <<'EOF'\n{PATCH}EOF", "write a.py"),
    Row(f"git apply --check <<'EOF'\n{PATCH}EOF"),
    Row(f"git apply --directory=src <<'EOF'\n{PATCH}EOF", "write src/a.py"),
    Row(f"cat > x.diff <<'EOF'\n{PATCH}EOF\npatch -p1 < x.diff", "write x.diff, write a.py"),
    Row(f"cat > x.diff <<'EOF'\n{PATCH}EOF\ngit apply x.diff", "write x.diff, write a.py"),
    Row(f"cat <<'EOF' | patch -p1\n{PATCH}EOF", "write a.py"),
    Row(f"patch -p1 --dry-run <<'EOF'\n{PATCH}EOF"),
    Row(f"patch -d src -p1 <<'EOF'\n{PATCH}EOF", "write src/a.py"),
    Row(f"patch a.py <<'EOF'\n{PATCH}EOF", "write a.py"),
    Row(f"patch a.py -o new.py <<'EOF'\n{PATCH}EOF", "write new.py"),
    Row("patch -p1 < fix.diff", late="the patch is in a file"),
    Row("patch -p1 -i fix.diff", late="the patch is in a file"),
    Row("git apply fix.diff", "tree ."),
    Row("git diff HEAD~1 | git apply -R", "tree ."),
]

GIT = [
    Row("git checkout -- dirty.py", "write dirty.py"),
    Row("git checkout dirty.py", "write dirty.py"),
    Row("git checkout HEAD~1 -- a.py b.py", "write a.py, write b.py"),
    Row("git checkout HEAD~1 a.py", "write a.py"),
    Row("git checkout .", "write ."),
    Row("git checkout -- '*.py'", "write **/*.py"),
    Row("git checkout Makefile", "tree .", seen="write Makefile"),
    Row("git checkout other", "tree ."),
    Row("git checkout -q other", "tree ."),
    Row("git checkout -", "tree ."),
    Row("git checkout -b new"),
    Row("git checkout -b new HEAD~1", "tree ."),
    Row("git switch other", "tree ."),
    Row("git switch -c new"),
    Row("git restore dirty.py", "write dirty.py"),
    Row("git restore --source=HEAD~1 a.py", "write a.py"),
    Row("git restore -s HEAD~1 -- a.py b.py", "write a.py, write b.py"),
    Row("git add dirty.py && git restore --staged dirty.py"),
    Row("git restore --staged --worktree dirty.py", "write dirty.py"),
    Row("git rm -q a.py", "remove a.py"),
    Row("git rm -q --cached a.py"),
    Row("git rm -rq src", "remove src"),
    Row("git mv a.py z.py", "remove a.py, write z.py"),
    Row("git mv a.py src/", "remove a.py, write src/a.py",
        spare="git refuses: it is there"),
    Row("git clean -fdq", "tree ."),
    Row("git clean -n"),
    Row("git clean -f untracked.txt", "remove untracked.txt"),
    Row("git stash", "tree ."),
    Row("git stash -q && git stash pop -q", "tree .", spare="it is all back"),
    Row("git stash list"),
    Row("git stash push -m wip dirty.py", "write dirty.py"),
    Row("git stash push -q -- dirty.py", "write dirty.py"),
    Row("git reset"),
    Row("git reset --soft HEAD~1"),
    Row("git reset -q HEAD~1"),
    Row("git reset --hard", "tree ."),
    Row("git reset --hard HEAD~1", "tree ."),
    Row("git merge -q other", "tree ."),
    Row("git stash -q; git rebase -q other", "tree ."),
    Row("git stash -q; git revert --no-edit HEAD", "tree ."),
    Row("git stash -q; git cherry-pick other", "tree ."),
    Row("git commit -qam x"),
    Row("git add -A && git commit -qm 'a > b'"),
    Row("git -C src checkout HEAD~1 -- a.py", "write src/a.py"),
    Row("git -C src rm -q a.py", "remove src/a.py"),
    Row("git -c core.autocrlf=false checkout -- dirty.py", "write dirty.py"),
    Row("git --no-pager diff > out.diff", "write out.diff"),
    Row("git diff --output=out.diff", "write out.diff"),
    Row("cd src && git stash", "tree src"),
    Row("git log --oneline | head -2"),
    Row("git show HEAD:a.py > old.py", "write old.py"),
    Row("git show HEAD~1:a.py > a.py", "write a.py"),
    Row("git worktree add -q ../other other", late="a new checkout beside this one"),
]  # fmt: skip

SHAPES = [
    Row("cd src && echo x > new.txt", "write src/new.txt"),
    Row("cd src && sed -i 's/one/two/' a.py && cd .. && rm a.py", "write src/a.py, remove a.py"),
    Row("cd src; cd deep; echo x > new.txt", "write src/deep/new.txt"),
    Row("cd src && cd - >/dev/null && echo x > new.txt", "write new.txt"),
    Row("(cd src && echo x > new.txt); echo x > new.txt", "write src/new.txt, write new.txt"),
    Row("pushd src >/dev/null; echo x > new.txt; popd >/dev/null; echo x > new.txt",
        "write src/new.txt, write new.txt"),
    Row("cd src | cat; echo x > new.txt", "write new.txt"),
    Row("cd ~ && echo x > notes.txt", "write ~/notes.txt"),
    Row("cd && echo x > notes.txt", "write ~/notes.txt"),
    Row('cd "$PWD/src" && echo x > new.txt', "write src/new.txt"),
    Row('cd "$(git rev-parse --show-toplevel)" && echo x > new.txt',
        "write new.txt"),
    Row("cd src || exit 1; echo x > new.txt", "write src/new.txt"),
    Row("cd missing 2>/dev/null || cd src; echo x > new.txt",
        "write src/new.txt, write missing/new.txt", "write src/new.txt"),
    Row("mkdir new; cd new; echo x > new.txt", "write new/new.txt"),
    Row("if [ -d src ]; then cd src; fi; echo x > new.txt",
        "write src/new.txt, write new.txt", spare="one of two branches"),
    Row("if true; then echo x > a.py; else echo x > b.py; fi", "write a.py"),
    Row("if ls >/dev/null; then echo x > a.py; else echo x > b.py; fi",
        "write a.py, write b.py", spare="one of two branches"),
    Row("if [ -f a.py ]; then rm a.py; fi", "remove a.py"),
    Row("if cd src; then echo x > new.txt; fi", "write src/new.txt"),
    Row("[ -f a.py ] && rm a.py", "remove a.py"),
    Row("test -f missing || echo x > new.txt", "write new.txt"),
    Row("true && echo x > a.py || echo y > b.py", "write a.py"),
    Row("ls >/dev/null && ls >/dev/null || echo y > b.py", "write b.py", spare="one of two"),
    Row("for f in a.py b.py; do sed -i 's/one/two/' $f; done", "write a.py, write b.py"),
    Row('for f in a.py b.py; do cp "$f" "$f.bak"; done', "write a.py.bak, write b.py.bak"),
    Row('for f in *.py; do mv "$f" "${f%.py}.txt"; done', "remove *.py, write *.txt"),
    Row("for d in src docs; do (cd $d && echo x > new.txt); done",
        "write src/new.txt, write docs/new.txt"),
    Row("for d in src docs; do cd $d; echo x > new.txt; cd ..; done; rm a.py",
        "write src/new.txt, write docs/new.txt, remove a.py"),
    Row("for i in {1..3}; do echo $i > n$i.txt; done", "write n1.txt, write n2.txt, write n3.txt"),
    Row("for f in $(ls *.py); do rm $f; done", "remove *.py"),
    Row("for ((i=0; i<2; i++)); do echo $i >> new.txt; done", "write new.txt"),
    Row("ls *.py | while read f; do rm $f; done", "remove *.py"),
    Row("i=0; while [ $i -lt 2 ]; do echo x >> new.txt; i=$((i+1)); done", "write new.txt"),
    Row("until true; do echo x > a.py; done"),
    Row("while false; do echo x > a.py; done"),
    Row("for f in a.py b.py; do true; continue; rm $f; done"),
    Row('[ "$OLD" = "$NEW" ] || echo x > a.py', late="nobody knows what is in the variables"),
    Row('OLD=$(date); [ "$OLD" = "$(date)x" ] && rm a.py'),
    Row('if [ "$(date)" = x ]; then rm a.py; else rm b.py; fi', late="which branch it is"),
    Row('if [ "$(date)" = x ]; then rm a.py; else rm -f a.py; fi', "remove a.py"),
    Row('while [ "$(date)" = x ]; do rm a.py; done'),
    Row('F=a.py; [ "$(date)" = x ] && F=b.py; rm "$F"', "remove a.py, remove b.py",
        spare="one of two"),
    Row('[ -n "$(ls *.py)" ] && rm a.py', "remove a.py"),
    Row("[ 2 -gt 1 ] && rm a.py; [ 2 -lt 1 ] && rm b.py", "remove a.py"),
    Row("ls > /dev/null; [ $? -eq 0 ] && rm a.py", "remove a.py"),
    Row("bash -c '[ $# -lt 1 ] && exit 2; rm a.py'"),
    Row("bash -c '[ $# -lt 1 ] && exit 2; rm \"$1\"' x a.py", "remove a.py"),
    Row("bash -c 'if [ \"$1\" != --go ]; then exit 0; fi; rm a.py' x --stay"),
    Row("bash -c 'if [ \"$1\" != --go ]; then exit 0; fi; rm a.py' x --go", "remove a.py"),
    Row("bash -c 'for one in \"$@\"; do rm a.py; done'"),
    Row("bash -c 'while [ $# -gt 0 ]; do case $1 in --go) GO=1;; esac; shift; done;"
        " if [ -n \"$GO\" ]; then rm a.py; fi' x --now --go", "remove a.py"),
    Row("bash -c 'fix() { rm a.py; }; check() { cat a.py; }; \"$@\"' x check"),
    Row("bash -c 'fix() { rm a.py; }; check() { cat a.py; }; \"$@\"' x fix", "remove a.py"),
    Row("true | f() { rm a.py; }; f || rm b.py", "remove b.py"),
    Row("(f() { rm a.py; }); f || rm b.py", "remove b.py"),
    Row("{ f() { rm a.py; }; }; if true; then g() { f; }; fi; g", "remove a.py"),
    Row("usage() { echo use; exit 1; }; (true && usage; rm a.py); rm b.py", "remove b.py"),
    Row("which no-such-command || rm a.py", "remove a.py"),
    Row("case x in a) rm b.py;; x|y) rm a.py;; *) rm c.txt;; esac", "remove a.py"),
    Row("case $(date) in a) rm b.py;; *) rm a.py;; esac", "remove a.py"),
    Row("for f in a.py c.txt; do case $f in *.py) rm $f;; *.txt) mv $f d.txt;; esac; done",
        "remove a.py, remove c.txt, write d.txt", spare="one case"),
    Row('if [ "$(uname)" = Plan9 ]; then rm a.py; else rm b.py; fi', "remove b.py"),
    Row('[[ "$OSTYPE" == plan9* ]] && rm a.py; [[ x.py == *.py ]] && rm b.py', "remove b.py"),
    Row("case $(uname) in\n  (Linux) echo x > new.txt ;;\n  *) echo y ;;\nesac\nrm a.py",
        "write new.txt, remove a.py"),
    Row("F=a.py; echo x > $F", "write a.py"),
    Row('F=new.txt\nG="src/$F"\necho x > "$G"', "write src/new.txt"),
    Row('FILES="a.py b.py"; rm $FILES', "remove a.py, remove b.py"),
    Row('FILES=$(printf "a.py\\nb.py\\n"); rm $FILES', "remove a.py, remove b.py"),
    Row("files=(a.py b.py); rm \"${files[@]}\"", "remove a.py, remove b.py"),
    Row("files=(a.py b.py); for i in 0 1; do rm \"${files[$i]}\"; done",
        "remove a.py, remove b.py"),
    Row("command=(rm -f a.py); \"${command[@]}\"", "remove a.py"),
    Row("run() { echo \"+ $*\"; \"$@\"; }; run rm -f a.py", "remove a.py"),
    Row("move() { local from=$1; shift 1; mv \"$from\" \"$@\"; }; move a.py z.py",
        "remove a.py, write z.py"),
    Row("printf -v name 'src/%s.py' b; rm $name", "remove src/b.py"),
    Row("printf 'src/%s.py\\n' a b | xargs rm", "remove src/a.py, remove src/b.py"),
    Row("F=a.py\npython3 <<E\nopen(\"$F\", 'a').write(\"\\$x\\n\")\nE", "write a.py"),
    Row("export F=a.py; echo x > $F", "write a.py"),
    Row("D=~/x; mkdir $D; echo x > $D/y", "write ~/x/y"),
    Row("F=a; F+=.py; rm $F", "remove a.py"),
    Row("F=src/a.py; echo x > ${F##*/}; rm ${F%/*}/b.py", "write a.py, remove src/b.py"),
    Row("F=a.py; echo x > ${F/.py/.txt}", "write a.txt"),
    Row("F='*.py'; rm $F", "remove *.py"),
    Row("F=a.py; read F <<< b.py; rm $F", "remove b.py"),
    Row("F=a.py; (F=b.py); rm $F", "remove a.py"),
    Row("if ls >/dev/null; then F=a.py; else F=b.py; fi; rm $F",
        "remove a.py, remove b.py", spare="one of two branches"),
    Row("f() { echo x > new.txt; }; f", "write new.txt"),
    Row("function f { rm a.py; }; f", "remove a.py"),
    Row("f() { cd src; rm a.py; }; (f); rm b.py", "remove src/a.py, remove b.py"),
    Row("f() { rm \"$1\"; }; f a.py", "remove a.py"),
    Row("! rm a.py", "remove a.py"),
    Row("time rm a.py", "remove a.py"),
    Row("env A=b rm a.py", "remove a.py"),
    Row("A=b C=d rm a.py", "remove a.py"),
    Row("nice -n 5 rm a.py", "remove a.py"),
    Row("nohup rm a.py", "remove a.py"),
    Row("command rm a.py", "remove a.py"),
    Row("command -v rm a.py"),
    Row("exec rm a.py", "remove a.py"),
    Row("timeout 5 rm a.py", "remove a.py"),
    Row("timeout -s KILL 5s nice rm a.py", "remove a.py"),
    Row("bash -c 'echo x > a.py'", "write a.py"),
    Row("bash -lc \"cd src && rm a.py\"", "remove src/a.py"),
    Row("bash -euo pipefail -c 'rm a.py'", "remove a.py"),
    Row("sh -c 'sh -c \"rm a.py\"'", "remove a.py"),
    Row("cd src && bash -c 'cd deep; rm c.py'; rm a.py", "remove src/deep/c.py, remove src/a.py"),
    Row("eval 'rm a.py'", "remove a.py"),
    Row("trap 'rm -f a.py' EXIT; echo done", "remove a.py"),
    Row("echo $(rm a.py)", "remove a.py"),
    Row("echo `rm a.py`", "remove a.py"),
    Row('echo "$(cd src && rm a.py)" > new.txt', "remove src/a.py, write new.txt"),
    Row("x=$(echo x > a.py)", "write a.py"),
    Row("x=\"$(echo \"$(rm 'a.py')\")\"", "remove a.py"),
    Row("echo \"`echo \\`rm a.py\\``\"", "remove a.py"),
    Row("diff <(sort a.py) <(sort b.py > sorted.txt)", "write sorted.txt"),
    Row("echo x | tee >(cat > new.txt) > /dev/null; sleep 0.2", "write new.txt"),
    Row("echo $(case x in x) echo y;; esac) > new.txt", "write new.txt"),
    Row("{ rm a.py; } && { rm b.py; }", "remove a.py, remove b.py"),
    Row("((1)) && rm a.py", "remove a.py"),
    Row("( ( rm a.py ) )", "remove a.py"),
    Row("rm a.py |\n cat", "remove a.py"),
    Row("true &&\n\n rm a.py", "remove a.py"),
    Row("echo if; echo then > new.txt", "write new.txt"),
    Row("echo done } fi > new.txt; rm a.py", "write new.txt, remove a.py"),
    Row("set -e; rm a.py", "remove a.py"),
    Row("rm 'a.py", "remove a.py", spare="the quote is never closed, bash refuses"),
    Row("echo 'rm a.py'"),
    Row("git commit -qam \"$(cat <<'EOF'\nit's > a.py (done)\nEOF\n)\""),
    Row("make -n -f /dev/null; true"),
    Row("cat a.py | python3 -c 'open(\"b.py\", \"w\").write(\"x\")'", "write b.py"),
]  # fmt: skip

RUN = [*REDIRECTIONS, *DOCUMENTS, *WRITERS, *PATCHES, *GIT, *SHAPES]

# Tools that a machine with bash and git may still lack.
TOOLS = (
    "perl", "patch", "ed", "curl", "jq", "awk", "node", "ruby", "npm", "cargo", "go", "gofmt",
    "gzip", "xz", "zstd", "bzip2", "zip", "unzip", "sqlite3", "openssl", "rsync", "wget",
)  # fmt: skip

SCRIPT = "js jsx mjs cjs ts tsx mts cts"
WEB = ", ".join(
    f"write **/*.{ending}"
    for ending in (
        f"{SCRIPT} json jsonc json5 css scss less html vue md mdx yaml yml graphql gql hbs".split()
    )
)
BIOME = ", ".join(
    f"write src/**/*.{ending}"
    for ending in f"{SCRIPT} json jsonc css graphql html vue svelte astro".split()
)

# Tools that are on few machines: only what is said of them can be tested.
NOT_RUN = [
    Row("sudo rm a.py", "remove a.py"),
    Row("sudo -u root -E tee a.py", "write a.py"),
    Row(f"apply_patch <<'EOF'\n{CODEX}EOF",
        "remove a.py, write src/moved.py, write new.txt, remove c.txt"),
    Row(f"cd src && apply_patch '{CODEX}'",
        "remove src/a.py, write src/src/moved.py, write src/new.txt, remove src/c.txt"),
    Row(f"cat <<'EOF' | apply_patch\n{CODEX}EOF",
        "remove a.py, write src/moved.py, write new.txt, remove c.txt"),
    Row("prettier --write src/a.ts 'docs/**/*.{md,mdx}'",
        "write src/a.ts, write docs/**/*.md, write docs/**/*.mdx"),
    Row("prettier --check src"),
    Row("npx prettier --write .", WEB),
    Row("npx -y prettier@3 --config x.json -w a.ts", "write a.ts"),
    Row("pnpm exec prettier --write a.ts", "write a.ts"),
    Row("pnpm install a b", "write package.json, write pnpm-lock.yaml"),
    Row("yarn prettier --write a.ts", "write a.ts"),
    Row("yarn add a b", "write package.json, write yarn.lock"),
    Row("npm install --save x", "write package.json, write package-lock.json"),
    Row("bunx @biomejs/biome check --write src", BIOME),
    Row("biome format"),
    Row("biome format --write", BIOME.replace("src/", "")),
    Row("black .", PYTHON),
    Row("black -l 100 src a.py", f"{PYTHON_IN_SRC}, write a.py"),
    Row("black --check ."),
    Row("uvx black@24 src", PYTHON_IN_SRC),
    Row("uv run ruff format src", f"{PYTHON_IN_SRC}, write src/**/*.ipynb"),
    Row("poetry run isort a.py", "write a.py"),
    Row("python3 -m isort --profile black a.py", "write a.py"),
    Row("python -m pytest tests"),
    Row("gofmt -w main.go", "write main.go"),
    Row("goimports -w -local x main.go", "write main.go"),
    Row("rustfmt --edition 2021 src/main.rs", "write src/main.rs"),
    Row("rustfmt --check src/main.rs"),
    Row("cargo fmt", "write **/*.rs"),
    Row("cargo fmt --check"),
    Row("cargo build"),
    Row("go fmt ./...", "write **/*.go"),
    Row("gofmt -l ."),
    Row("clang-format -i a.c b.h", "write a.c, write b.h"),
    Row("clang-format a.c"),
    Row("eslint --fix src --ext .ts,.tsx", "write src/**/*.ts, write src/**/*.tsx"),
    Row("npx eslint src"),
    Row("autopep8 -i a.py", "write a.py"),
    Row("yapf -i -r src", PYTHON_IN_SRC),
    Row("shfmt -w -i 2 run.sh", "write run.sh"),
    Row("dos2unix a.py", "write a.py"),
    Row("yq -i '.a = 1' a.yaml", "write a.yaml"),
    Row("yq '.a' a.yaml"),
    Row("sd old new a.py b.py", "write a.py, write b.py"),
    Row("sponge a.py < b.py", "write a.py"),
    Row("gawk -i inplace '{print}' a.py", "write a.py"),
    Row("wget -qO new.html https://example.org", "write new.html"),
    Row("curl -fsSL https://example.org/x.tgz -o x.tgz", "write x.tgz"),
    Row("curl -O https://example.org/x.tgz?y=z", "write x.tgz"),
    Row("git pull --rebase", "tree ."),
    Row("git am < x.mbox", "tree ."),
    Row("git bisect start"),
    Row("git bisect start HEAD HEAD~9", "tree ."),
    Row("git bisect run make test", "tree ."),
    Row("git stash --help"),
    Row("git rebase -h"),
    Row("git read-tree main"),
    Row("git merge --continue"),
    Row("git merge --abort", "tree ."),
    Row("git cherry-pick --quit"),
    Row("git switch"),
    Row("git submodule update --init", "tree ."),
    Row("git --git-dir=/x/.git --work-tree=/x reset --hard", "tree /x"),
    Row("git worktree remove ../x", "remove ../x"),
    Row("git stash drop"),
    Row("rm ~nobody/x"),
    Row("rm -rf $UNKNOWN/x"),
    Row("ssh host 'rm a.py'"),
    Row("docker run x rm a.py"),
]  # fmt: skip


def writes(command: str, cwd: str, kind_of: Callable[[str], str] = lambda _: "") -> list[Edit]:
    """What is said of a command, but for what git can be asked about it (`test_hook_git`)."""
    return list({Edit(one.path, one.kind): 0 for one in read(command, cwd, Disk(kind_of)).edits})


def only_reads(command: str) -> bool:
    return read(command, "/repo").says == READS


def edits_of(said: str, repository: Path) -> set[Edit]:
    home = repository.parent / "home"
    found = set()
    for item in said.split(", ") if said else ():
        kind, name = item.split(" ", 1)
        path = str(repository / "~") if name == "~~" else str(repository / name)
        if name.startswith("~/"):
            path = str(home / name[2:])
        found.add(Edit(os.path.normpath(path), kind))
    return found


def look(path: str) -> str:
    return "directory" if os.path.isdir(path) else "file" if os.path.lexists(path) else ""


def git(repository: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=repository, check=True, capture_output=True)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two commits, another branch, and something not committed yet."""
    top = tmp_path_factory.mktemp("template")
    (top / "home").mkdir()
    (top / "home" / ".gitconfig").write_text(
        "[user]\nname = A\nemail = a@example.org\n[advice]\ndetachedHead = false\n"
        "[init]\ndefaultBranch = main\n[gc]\nauto = 0\n"
    )
    repository = top / "repo"
    (repository / "src" / "deep").mkdir(parents=True)
    (repository / "docs").mkdir()
    git(repository, "init", "-q", "--template=", "-b", "main")
    git(repository, "config", "user.name", "A")
    git(repository, "config", "user.email", "a@example.org")
    for name in ("a.py", "b.py", "src/a.py", "src/b.py"):
        (repository / name).write_text(f"zero\nd\nc\nb\n# {name}\n")
    for name in ("c.txt", "with space.txt", "src/deep/c.py", "docs/x.md", "dirty.py", "-odd.txt"):
        (repository / name).write_text(f"one\n# {name}\n")
    (repository / "Makefile").write_text("all:\n")
    (repository / "data.json").write_text('{"a":1}')
    (repository / "spaced.py").write_text("x  =  1\n")
    (repository / "unused.py").write_text("import os\n")
    (repository / "fix.diff").write_text(PATCH)
    (repository / "script.sed").write_text("s/one/two/\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "first")
    git(repository, "checkout", "-q", "-b", "other")
    (repository / "docs" / "other.md").write_text("other\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "other")
    git(repository, "checkout", "-q", "main")
    for name in ("a.py", "b.py", "src/a.py", "src/b.py"):
        (repository / name).write_text(f"one\nd\nc\nb\n# {name}\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    git(repository, "gc", "-q")  # fewer files: it is copied for every test
    (repository / "dirty.py").write_text("not committed\n")
    (repository / "Makefile").write_text("none:\n")
    (repository / "untracked.txt").write_text("one\n")
    return top


@pytest.fixture
def repository(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(template, tmp_path / "top", symlinks=True)
    monkeypatch.setenv("HOME", str(tmp_path / "top" / "home"))
    return tmp_path / "top" / "repo"


# What tools keep for themselves in a home.
TOOLS_OWN = (".git", ".npm", ".config", ".cache", "go")


def files_of(top: Path) -> dict[str, bytes]:
    found = {}
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in TOOLS_OWN]
        for name in names:
            path = os.path.join(folder, name)
            link = os.path.islink(path)
            found[path] = os.readlink(path).encode() if link else Path(path).read_bytes()
    return found


def run(command: str, repository: Path) -> set[str]:
    """Run it in a real bash; give the files that changed, came or went."""
    before = files_of(repository.parent)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    kept = {"HOME": os.environ["HOME"], "PATH": path, "RUFF_NO_CACHE": "true", "LC_ALL": "C.UTF-8"}
    subprocess.run(
        ["bash", "-c", command],
        cwd=repository,
        env=kept,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=20,
    )
    after = files_of(repository.parent)
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def is_covered(path: str, edit: Edit, repository: Path) -> bool:
    if edit.kind == "tree":
        return path.startswith(f"{repository}/")
    return covers(edit.path.removeprefix("/"), path.removeprefix("/"))


def seen_or(row: Row) -> str:
    return row.edits if row.seen is None else row.seen


@pytest.mark.parametrize("row", [*RUN, *NOT_RUN], ids=lambda row: row.command)
def test_what_is_said_of_a_command(row: Row, repository: Path) -> None:
    check_what_is_said(row, repository)


def check_what_is_said(row: Row, repository: Path) -> None:
    assert set(writes(row.command, str(repository))) == edits_of(row.edits, repository)
    assert set(writes(row.command, str(repository), look)) == edits_of(seen_or(row), repository)


@pytest.mark.short(3)
@pytest.mark.parametrize("row", RUN, ids=lambda row: row.command)
def test_a_real_bash_changes_what_was_said_and_nothing_else(row: Row, repository: Path) -> None:
    compare_with_bash(row, repository)


def compare_with_bash(row: Row, repository: Path) -> None:
    for tool in TOOLS:
        if tool in row.command.split() and not shutil.which(tool):
            pytest.skip(f"{tool} is not on this machine")
    said = writes(row.command, str(repository))
    seen = writes(row.command, str(repository), look)
    only = only_reads(row.command)
    changed = run(row.command, repository)
    for edits in (said, seen):
        missed = {
            path for path in changed if not any(is_covered(path, one, repository) for one in edits)
        }
        assert bool(missed) == bool(row.late), missed
        idle = [
            one for one in edits if not any(is_covered(path, one, repository) for path in changed)
        ]
        assert bool(idle) == bool(row.spare), idle
    assert not (only and changed)


ONLY_READS = """
ls -la src
cat a.py
head -5 a.py | tail -2
grep -rn 'x > y' src
grep -c one a.py > /dev/null 2>&1
find . -name '*.py' -newer a.py
wc -l *.py
diff a.py b.py
stat a.py 2>&1
pwd; whoami; date
echo "a > b"
printf '%s' x
git status
git --no-pager log --oneline -5
git diff HEAD~1 -- a.py
git -C src show HEAD:src/a.py
git blame a.py
git branch
git branch --list 'x*'
git stash list
git ls-files | sort -u
git rev-parse --show-toplevel
git config --get user.name
git stash --help
git rebase -h
sed -n '1,5p' a.py
sed -n '/one/,$p;1d' a.py
sed 's/one/two/g' a.py
sort a.py | uniq -c | sort -rn
jq .a data.json
which bash && type ls
sleep 0; true
test -f a.py && [ -d src ] && [[ a < b ]]
cd src && ls
export A=b; echo $A
for f in a.py b.py; do wc -l "$f"; done
if [ -f a.py ]; then cat a.py; else echo none; fi
while false; do echo x; done
(cd src; ls)
{ ls; pwd; }
x=$(git rev-parse HEAD); echo "$x"
LC_ALL=C sort a.py
timeout 5 ls
command -v git
env
bash -c 'ls; pwd'
cat <<'EOF'
rm a.py
EOF
dibs status
ls # > a.py
set -euo pipefail; ls
PAGER=cat git log -1
/bin/ls; /usr/bin/env
F=a.py; cat $F
awk '{print $1}' a.py
awk -F: '$1 > 5 && /a>b/ {print $2 " > "}' a.py
sed -e 's|one|two|g' -e '/x/d' a.py
echo $(( $(wc -l < a.py) + 1 ))
black --check .
ruff check .
ruff format --diff src
tar tf x.tar
gzip -dc x.gz
curl -fsS http://localhost:1/health
"""

MAY_WRITE = """
rm a.py
echo x > a.py
echo $(rm a.py)
cat <<EOF
$(rm a.py)
EOF
ls; touch x
ls | tee x
ls > x
ls 2> x
ls >& x
ls > $x
find . -delete
find . -exec rm {} +
find . $x
sed -i s/a/b/ a.py
sed -n 'w x' a.py
sed -n '1w x' a.py
sed 's/one/two/w x' a.py
sed 's/one/touch x/e' a.py
sed -n -f script.sed a.py
awk '{print > "x"}' a.py
awk '{print | "sh"}' a.py
awk -f x.awk a.py
sort -o a.py a.py
sort -uo a.py a.py
sort --output=a.py a.py
uniq a.py b.py
tree -o x
git checkout main
git branch new
git tag v1
git config user.name x
git diff --output=x
git -c core.pager='touch x' log
git $x
$x
"$(echo rm)" a.py
./ls
python3 -c 1
make
PATH=. ls
bash run.sh
bash -c 'rm a.py'
env ./ls
nice ./ls
command ./ls
timeout 5 ./ls
env PATH=. ls
export PATH=.; ls
declare -x PATH=.; ls
for PATH in .; do ls; done
printf -v PATH .; ls
((PATH=1)); ls
echo $(( $(rm a.py) ))
(( $(rm a.py) ))
[[ $(( $(rm a.py) )) ]]
x='$(rm a.py)'; echo "${x@P}"
x='a[$(rm a.py)]'; echo $((x))
PS4='$(rm a.py)'; set -x; ls
PAGER='touch x' git log
GIT_EXTERNAL_DIFF=./x git diff
LD_PRELOAD=./x.so ls
BASH_ENV=x bash -c ls
npx -c 'rm a.py' prettier --check .
prettier --write --check .
prettier --write -l .
gofmt -w -d .
terraform fmt -diff
scalafmt --diff
php-cs-fixer fix -n
perltidy a.pl
black .
black --check . > x
cargo clippy
rubocop --auto-gen-config
eslint -o x src
eslint --cache src
ruff check -o x
tree -R
time -o x ls
command time -o x ls
sudo ls
ls() { rm a.py; }
diff <(rm a.py) b.py
xargs rm
dibs run -- rm a.py
dibs recover a.py
eval ls
. ./x
case x in x) rm a.py;; esac
for f in $(rm a.py); do ls; done
export A=$(rm a.py)
[[ -n $(rm a.py) ]]
"""


def commands_of(table: str) -> Iterator[str]:
    """The lines of a table; a here-document goes on to its EOF."""
    lines = iter(table.strip().split("\n"))
    for line in lines:
        if "<<" in line:
            for more in lines:
                line += "\n" + more
                if more == "EOF":
                    break
        yield line


@pytest.mark.parametrize("command", list(commands_of(ONLY_READS)))
def test_a_command_that_only_reads_is_known_and_changes_nothing(
    command: str, repository: Path
) -> None:
    assert only_reads(command)
    assert writes(command, str(repository)) == []
    if not command.startswith("dibs"):
        assert run(command, repository) == set()


@pytest.mark.parametrize("command", list(commands_of(MAY_WRITE)))
def test_a_command_that_may_write_is_never_said_to_only_read(command: str) -> None:
    assert not only_reads(command)


# Commands made of parts: what holds for each alone must hold for all of them together.
ATOMS = st.sampled_from(
    """
    echo x > {f}|echo x>>{f}|rm -f {f}|touch {f}|cp c.txt {f}|mv -f c.txt {f}|cat c.txt|cd ..
    tee {f} < c.txt|{ mkdir -p src; cd src; }|{ mkdir -p docs; cd docs; }|true|false|echo 'a > b'
    sed -i s/one/two/ {f}|V={f}; echo y > "$V"|{ mkdir -p src; pushd src; }|popd|: > {f}
    cat > {f} <<'E'\n> wrong\n$(rm c.txt)\nE\n|echo $(echo x > {f})
    bash -c 'echo x > {f}'|for v in {f} n1; do echo z > $v; done|echo x > "{f}"
    """.strip()
    .replace("\n    ", "|")
    .split("|")
)
NAMES = st.sampled_from(["a.py", "n1", "src/n2", "'n 3'", "./b.py", "docs/n4", "n5"])
SIMPLE = st.builds(lambda atom, name: atom.replace("{f}", name), ATOMS, NAMES)


def nested(opening: str, inner: str, closing: str) -> str:
    return opening * 1_500 + inner + closing * 1_500


@pytest.mark.parametrize(
    "command",
    [
        f"sed -E -i 's/{nested('(', 'x', ')')}/y/' a.py",
        f"perl -pi -e 's/{'(' * 350}x{')' * 350}/y/' a.py",
        f"grep -lE '{'(' * 350}x{')' * 350}' * | xargs sed -i s/a/b/",
        f"[ {nested('! ', '-e f', '')} ] && echo x > f",
        f"[[ {nested('( ', 'a == b', ' )')} ]] && echo x > f",
        f"echo {nested('$(', 'echo x', ')')} > f",
        f"echo {nested('${a:-', 'x', '}')} > f",
        nested("if true; then ", "echo x > f", "; fi"),
        f"python3 -c 'open({nested('(', 'name', ')')})'",
        f"node -e 'f({nested('[', 'name', ']')})'",
    ],
)
def test_nothing_is_nested_too_deeply_to_be_read(command: str) -> None:
    assert read(command, "/anywhere").says in (WRITES, UNKNOWN)


def moves(text: str) -> bool:
    """Whether it may leave the directory; after `&&` that is taken to happen, failed or not."""
    return any(word in text for word in ("cd ", "pushd", "popd"))


def joined(parts: list[str], marks: list[str]) -> str:
    """Commands one after another; one that ends a here-document has ended its line."""
    out = parts[0]
    for part, mark in zip(parts[1:], marks, strict=False):
        out += "" if out.endswith("\n") else "; " if mark == " && " and moves(part) else mark
        out += part
    return out


def compounds(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    marks = st.lists(
        st.sampled_from([" && ", " || ", "; ", "\n", " | ", " & "]), min_size=3, max_size=3
    )
    body = st.builds(joined, st.lists(inner, min_size=1, max_size=4), marks)
    line = body.map(lambda text: text if text.endswith("\n") else text + "\n")
    return st.one_of(
        body,
        line.map("({})".format),
        line.map("{{ {}}}".format),
        line.map("if true; then {}fi".format),
        line.map("if false; then cd src\n else {}fi".format),
        line.map("for i in 1; do {}done".format),
        line.map("case x in y) cd src;; x) {};; esac".format),
        line.map(function),
        line.map("echo $({})".format),
        line.map('echo "$({})"'.format),
        line.map("true | {{ {}}}".format),
        line.map(loop),
    )


def loop(body: str) -> str:
    """One that ends, whatever loops are inside it: each has a variable of its own."""
    n = f"n{len(body)}"
    return f'{n}=; while [ -z "${n}" ]; do {n}=1; {body}done'


def function(body: str) -> str:
    """One that is called; what is inside it has another name, so that none calls itself."""
    return f"f{len(body)}() {{ {body}}}; f{len(body)}"


@settings(max_examples=60, deadline=None)
@given(command=st.recursive(SIMPLE, compounds, max_leaves=6))
def test_parts_put_together_change_nothing_that_was_not_said(
    command: str, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("parts") / "top"
    shutil.copytree(template, top, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    repository = top / "repo"
    said = writes(command, str(repository), look)
    only = only_reads(command)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(top / "home"))
        changed = run(command, repository)
    missed = {
        path for path in changed if not any(is_covered(path, one, repository) for one in said)
    }
    shutil.rmtree(top)
    assert not missed
    assert not (only and changed)


PIECES = st.sampled_from(
    "$( ) ` ' \" \\ \n ; & | < > << <<- <<< EOF ${ } { [[ ]] (( )) if fi case esac in for do done"
    " # = a=( * ? [ ~ $x $' cd eval bash\t-c echo rm git patch find\t-exec sed\t-i".split(" ")
)


@settings(max_examples=200, deadline=None)
@given(
    command=st.one_of(
        st.text(max_size=200),
        st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=40).map(" ".join),
        st.lists(PIECES, max_size=40).map("".join),
    )
)
def test_any_text_at_all_gives_absolute_paths_and_no_error(command: str) -> None:
    for edit in writes(command, "/repo"):
        assert edit.path.startswith("/")
        assert edit.kind in ("write", "remove", "tree")
    assert only_reads(command) in (True, False)


@pytest.mark.parametrize(
    "piece",
    ["echo a > b;", "$(", "((\n", "(", "{", "`", "cat <<E\n", "cat <<E\n$(", "${", "x=$x$x;", "if ",
     "case x in ", "{a,b}", "for i in 1 2 3; do ", "eval 'eval '", "bash -c '", "[[ ", "$'", "a|",
     "cd $x || cd y;", "rm * ", "env ", "git -C ", "\n", " ", "sed -n '/a", "\\", "a=b "],
)  # fmt: skip
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(200_000, marks=pytest.mark.timeout(15)),
        pytest.param(1_000_000, marks=[pytest.mark.timeout(30), pytest.mark.stress]),
    ],
)
def test_a_megabyte_of_anything_comes_to_an_end(piece: str, size: int) -> None:
    command = piece * (size // len(piece))
    assert len(writes(command, "/repo")) <= 1_000
    assert only_reads(command) in (True, False)


def test_a_long_here_document_does_not_hide_what_comes_after_it() -> None:
    body = "some text > with 'quotes\n" * 40_000
    command = f"cat > a.py <<'EOF'\n{body}EOF\nrm b.py"
    assert writes(command, "/repo") == [Edit("/repo/a.py"), Edit("/repo/b.py", "remove")]


def test_a_directory_that_cannot_be_known_leaves_only_absolute_paths() -> None:
    assert writes('cd "$x" && rm a.py /tmp/b.py && git stash', "/repo") == [
        Edit("/tmp/b.py", "remove")
    ]


def test_patches_of_git_are_named_from_the_top_of_the_checkout(repository: Path) -> None:
    command = f"cd src && git apply <<'EOF'\ndiff --git a/src/a.py b/src/a.py\n{PATCH}EOF"
    command = command.replace("--- a/a.py", "--- a/src/a.py").replace(
        "+++ b/a.py", "+++ b/src/a.py"
    )
    said = writes(command, str(repository), look)
    assert said == [Edit(str(repository / "src/a.py"))]
    assert run(command, repository) == {said[0].path}


@pytest.mark.parametrize(
    ("command", "says", "edits"),
    [
        ("ls -la", READS, []),
        ("git log --oneline | head -3; cat a.py 2>/dev/null", READS, []),
        ("", READS, []),
        ("sed -i s/a/b/ c.py", WRITES, [Edit("/repo/c.py", asks=(("only", "with", "", "a"),))]),
        ("ls; rm a.py", WRITES, [Edit("/repo/a.py", "remove")]),
        ("git stash", WRITES, [Edit("/repo", "tree", asks=(("dirty",), ("refuses", "unmerged")))]),
        ("python3 build.py; rm a.py", WRITES, [Edit("/repo/a.py", "remove")]),
        ("python3 build.py", UNKNOWN, []),
        ("make test", UNKNOWN, []),
        ("git log -p | xargs rm", UNKNOWN, []),
        ("$EDITOR a.py", UNKNOWN, []),
        ('echo x > "$name"', UNKNOWN, []),
        ("mkdir -p src", UNKNOWN, []),
    ],
)
def test_a_verdict_says_what_is_written_or_that_it_only_reads_or_that_it_cannot_be_told(
    command: str, says: str, edits: list[Edit]
) -> None:
    verdict = read(command, "/repo")
    assert (verdict.says, verdict.edits) == (says, edits)


@pytest.mark.parametrize(
    "command",
    [
        "ls $(ls",
        "ls <(ls",
        "cat <<EOF\n$(ls\nEOF",
        "ls " + "$(ls " * 30 + ")" * 30,
        "ls\n" * 20_000,
        "bash -c 'ls $(ls'",
        "l\0s",
        "ls \0",
    ],
    ids=lambda command: repr(command)[:30],
)
def test_a_command_that_cannot_be_parsed_is_not_said_to_only_read(command: str) -> None:
    verdict = read(command, "/repo")
    assert (verdict.says, verdict.edits) == (UNKNOWN, [])


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("ls -la", 1),
        ("sed -i s/a/b/ c.py", 1),
        ("ls; echo $(rm a.py) `rm b.py` <<E\n$(rm c.py)\nE", 1),
        ("bash -c 'ls'", 2),
        ("bash -c 'rm a.py'", 2),
        ("for i in 1 2 3; do bash -c 'rm a.py'; done; eval 'rm a.py'", 2),
    ],
)
def test_a_text_is_tokenised_once(
    command: str, texts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    class Counting(syntax.ShellReader):
        def __init__(self, text: str) -> None:
            found.append(text)
            super().__init__(text)

    monkeypatch.setattr(syntax, "ShellReader", Counting)
    read(command, "/repo")
    assert found[0] == command
    assert len(found) == len(set(found)) == texts


def test_a_command_is_known_by_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read("polish a.py", "/repo").says == UNKNOWN
    rule = rules.Rule(rules.operands(unless="--dry-run"), reads=lambda args: "--dry-run" in args)
    monkeypatch.setitem(rules.COMMANDS, "polish", rule)
    assert read("cd src; sudo polish a.py", "/repo").edits == [Edit("/repo/src/a.py")]
    assert read("find . -exec polish {} +", "/repo").edits == [Edit("/repo/**")]
    assert read("ls; polish --dry-run a.py", "/repo").says == READS
    assert read("polish --dry-run $x", "/repo").says == UNKNOWN


def test_a_command_that_only_reads_loads_little() -> None:
    code = (
        "from dibs.surfaces.hooks.shell import read; import sys; print(read(sys.argv[1], '/').says"
    )
    for command, says, unneeded in [
        ("ls -la", READS, {"re", "walk", "toolchain"}),
        ("sed -i s/a/b/ c.py", WRITES, {"re", "toolchain"}),
        ("git log", READS, {"re", "walk", "toolchain"}),
    ]:
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"{code}, *sys.modules)", command],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        said, *loaded = done.stdout.split()
        assert said == says
        assert not unneeded & {name.rpartition(".")[2] for name in loaded}
