"""Files that a command names in a roundabout way: in a line of Python, by `xargs`, in a loop.

Every row is also run by a real bash, as in `test_hook_shell`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dibs.surfaces.hooks.shell import READS, UNKNOWN, read
from dibs.surfaces.hooks.shell.call import Disk
from dibs.surroundings.occasion import Edit
from tests.surfaces.test_hook_shell import (
    Row,
    check_what_is_said,
    compare_with_bash,
    files_of,
    only_reads,
    repository,
    template,
    writes,
)

__all__ = ["repository", "template"]

PYTHON = [
    Row("python3 -c \"print(open('a.py').read())\""),
    Row("python3 -c \"print('w', 'a.py')\""),
    Row("python3 -c \"import sys; open(sys.argv[1], 'w')\" new.txt", "write new.txt"),
    Row("python3 - b.py <<'EOF'\nimport sys\nopen(sys.argv[1], 'a').write('x')\nEOF", "write b.py"),
    Row("python3 <<'EOF'\nfrom pathlib import Path\np = Path('src') / 'a.py'\n"
        "p.write_text(p.read_text().replace('one', 'two'))\nEOF", "write src/a.py"),
    Row("python3 - <<'EOF'\nimport pathlib as P\nfor name in ['a.py', 'b.py']:\n"
        "    P.Path(name).write_text('x')\nEOF", "write a.py, write b.py"),
    Row("python3 - <<'EOF'\ndef fix(path, old='one'):\n    text = open(path).read()\n"
        "    with open(path, 'w') as f:\n        f.write(text.replace(old, 'two'))\n\n"
        "fix('a.py')\nfix(path='b.py')\nEOF", "write a.py, write b.py"),
    Row("python3 - <<'EOF'\nfor name, old in [('a.py', 'one'), ('src/a.py', 'd')]:\n"
        "    s = open(name).read()\n    open(name, mode='w').write(s.replace(old, '!'))\nEOF",
        "write a.py, write src/a.py"),
    Row("python3 - <<'EOF'\nfiles = {'n1.txt': 'x', 'n2.txt': 'y'}\n"
        "for name, text in files.items():\n    open(name, 'w').write(text)\nEOF",
        "write n1.txt, write n2.txt"),
    Row("python3 - <<'EOF'\nimport os, shutil\nshutil.copy('a.py', 'docs')\n"
        "shutil.move('b.py', 'z.py')\nos.remove('c.txt')\nos.rename('data.json', 'd.json')\nEOF",
        "write docs, remove b.py, write z.py, remove c.txt, remove data.json, write d.json",
        seen="write docs/a.py, remove b.py, write z.py, remove c.txt, remove data.json,"
        " write d.json"),
    Row("python3 - <<'EOF'\nimport subprocess, os\n"
        "subprocess.run(['sed', '-i', 's/one/x/', 'a.py'])\nos.system('rm b.py')\nEOF",
        "write a.py, remove b.py"),
    Row("python3 - <<'EOF'\nimport json\nd = json.load(open('data.json'))\nd['b'] = 2\n"
        "json.dump(d, open('data.json', 'w'))\nEOF", "write data.json"),
    Row("cat > fix.py <<'EOF'\nopen('a.py', 'w').write('x')\nEOF\npython3 fix.py; rm fix.py",
        "write fix.py, write a.py, remove fix.py", spare="fix.py is gone again"),
    Row("python3 - <<'EOF'\nimport os.path\nbase = 'src'\nfor n in ('a', 'b'):\n"
        "    open(os.path.join(base, f'{n}.py'), 'w').write(n)\nEOF",
        "write src/a.py, write src/b.py"),
    Row("python3 - <<'EOF'\nfrom pathlib import Path\nfor p in Path('src').glob('*.py'):\n"
        "    p.write_text('x')\nEOF", "write src/*.py"),
    Row("python3 - <<'EOF'\nfrom pathlib import Path\nfor p in Path('.').rglob('*.py'):\n"
        "    if 'one' in p.read_text():\n        p.write_text('x')\nEOF", "write **/*.py"),
    Row("python3 - <<'EOF'\nfrom pathlib import Path\nfor p in Path('.').rglob('*.py'):\n"
        "    if p.stat().st_size:\n        p.write_text('x')\nEOF",
        late="which files those are"),
    Row("python3 -c \"x = 'a.py'; y = open(x)\nx = 'b.py'\nopen(x, 'w')\"", "write b.py"),
    Row("python3 - <<'EOF'\nimport os\nos.chdir('src')\nopen('a.py', 'w')\nEOF", "write src/a.py"),
    Row("python3 - <<'EOF'\nimport shutil\nsource, (target, rest) = 'a.py', ('z.py', 1)\n"
        "shutil.copy(source, target)\nEOF", "write z.py"),
    Row("python3 - a.py x b.py <<'EOF'\nimport sys\n_, first, _, last = sys.argv\n"
        "open(first, 'w')\nto, other = sys.argv[2:4]\nopen(other, 'a').write(to)\nEOF",
        "write a.py, write b.py"),
    Row("python3 -m json.tool data.json out.json", "write out.json"),
    Row("python3 -c 'this is no python(('; true"),
    Row("python3 - --check <<'EOF'\nimport sys\nif '--check' in sys.argv:\n    sys.exit()\n"
        "open('a.py', 'w')\nEOF"),
    Row("python3 - --check <<'EOF'\nimport sys\ncheck = '--check' in sys.argv[1:]\n"
        "if not check:\n    open('a.py', 'w')\nEOF"),
    Row("python3 - z.py <<'EOF'\nimport sys\ndef main(argv):\n"
        "    open(argv[1] if len(argv) > 1 else 'a.py', 'w')\nmain(sys.argv)\nEOF", "write z.py"),
    Row("python3 - a.py -o z.py <<'EOF'\nimport argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('names', nargs='+')\np.add_argument('-o', '--out', default='y.py')\n"
        "p.add_argument('--fix', action='store_true')\na = p.parse_args()\nopen(a.out, 'w')\n"
        "for name in a.names:\n    if a.fix:\n        open(name, 'w')\nEOF", "write z.py"),
    Row("python3 - <<'EOF'\nclass Edit:\n    def __init__(self, name):\n"
        "        self.name = name\n    def save(self):\n        open(self.name, 'w')\n"
        "Edit('a.py').save()\nEOF", "write a.py"),
    Row("python3 - <<'EOF'\nimport subprocess\n"
        "for name in subprocess.check_output(['git', 'ls-files', '*.py'], text=True).split():\n"
        "    open(name, 'a').write('x')\nEOF", "write **/*.py"),
    Row("python3 - <<'EOF'\nif __name__ == '__main__':\n    open('a.py', 'w')\nEOF", "write a.py"),
]  # fmt: skip

SCRIPTS = [
    Row("node -e \"require('fs').writeFileSync('new.js', 'x')\"", "write new.js"),
    Row("node -e \"console.log(require('fs').readFileSync('a.py', 'utf8'))\""),
    Row("node - <<'EOF'\nconst fs = require('fs'); const p = 'data.json'\n"
        "const j = JSON.parse(fs.readFileSync(p)); j.b = /'/g.source\n"
        "fs.writeFileSync(p, JSON.stringify(j))\nEOF", "write data.json"),
    Row("node -e \"const fs = require('fs'); for (const f of ['a.py', 'b.py'])"
        " fs.appendFileSync(f, 'x')\"", "write a.py, write b.py"),
    Row("node -e \"const fs = require('fs'); ['a.py', 'b.py'].forEach(f => fs.unlinkSync(f))\"",
        "remove a.py, remove b.py"),
    Row("node -e \"const fs = require('fs'), path = require('path');"
        " fs.copyFileSync('a.py', path.join('src', 'c.py')); fs.renameSync('b.py', 'z.py')\"",
        "write src/c.py, remove b.py, write z.py"),
    Row("node -e \"require('child_process').execSync('rm a.py')\"", "remove a.py"),
    Row("node -e \"const fs = require('fs'); for (const f of fs.readdirSync('src')) {"
        " if (f.endsWith('.py')) fs.appendFileSync('src/' + f, 'x') }\"", "write src/*.py"),
    Row("node -e \"const fs = require('fs'), path = require('path'); fs.readdirSync('src')"
        ".filter(f => f.endsWith('.py')).forEach(f => fs.unlinkSync(path.join('src', f)))\"",
        "remove src/*.py"),
    Row("node -e \"const fs = require('fs'); fs.readdirSync('docs')"
        ".forEach(f => fs.appendFileSync('docs/' + f, 'x'))\"", "write docs/*"),
    Row("node -e \"const fs = require('fs'); fs.readdirSync('.').filter(f => /^a.py/.test(f))"
        ".forEach(f => fs.unlinkSync(f))\"", late="which names are chosen"),
    Row("node -e \"console.log(require('fs').readdirSync('src').map(f => f + 'x'))\""),
    Row("node --input-type=module -e \"import {writeFileSync as w} from 'fs'; w('new.js', '')\"",
        "write new.js"),
    Row("node -e \"const {rmSync: gone, copyFileSync} = require('fs'); gone('b.py');"
        " copyFileSync('a.py', 'z.py')\"", "remove b.py, write z.py"),
    Row("node -e \"const {resolve} = require('path'), fs = require('fs');"
        " fs.writeFileSync(resolve(process.cwd(), 'src/n.js'), ['a', 'b'].join(''))\"",
        "write src/n.js"),
    Row("node -e \"const kinds = {open: w}; function w(x) { return x }; w('a.py', 'w')\""),
    Row("node -e \"const fs = require('fs'); const put = (f, x) => fs.writeFileSync(f, x);"
        " put('a.py', 'x'); put('new.js', 'b.py')\"", "write a.py, write new.js"),
    Row("node -e \"function gone(f) { require('fs').unlinkSync(f) } gone('a.py')\"",
        "remove a.py"),
    Row("node -e \"const [f, g] = process.argv.slice(1); const fs = require('fs');"
        " fs.unlinkSync(f); fs.appendFileSync(process.argv[2], g)\" a.py b.py",
        "remove a.py, write b.py"),
    Row("perl -e 'my $f = shift; for (@ARGV) { unlink $_ } rename $f, \"z.py\"' a.py b.py",
        "remove b.py, remove a.py, write z.py"),
    Row("perl -e 'for my $f (glob(\"docs/*.md src/*.py\")) { open(my $h, \">>\", $f);"
        " print $h \"x\" }'", "write docs/*.md, write src/*.py"),
    Row("perl -e 'my @f = glob \"src/*.py\"; unlink @f'", "remove src/*.py"),
    Row("ruby -e 'Dir[\"docs/*.md\"].each { |f| File.write(f, \"x\") }'", "write docs/*.md"),
    Row("node -e \"const d = 'src'; require('fs').writeFileSync(\\`\\${d}/n.js\\`, '')\"",
        "write src/n.js"),
    Row("perl -e 'open(my $f, \">\", \"new.txt\"); print $f \"x\"'", "write new.txt"),
    Row("perl -e 'open F, \">>a.py\"; print F 1; unlink \"b.py\", \"c.txt\"'",
        "write a.py, remove b.py, remove c.txt"),
    Row("perl -e 'for my $f (qw(a.py b.py)) { rename $f, \"$f.bak\" }'",
        "remove a.py, remove b.py, write a.py.bak, write b.py.bak"),
    Row("perl -e 'open(F, \"<\", \"a.py\"); s/x/y/ for <F>; print \"unlink b.py\"'"),
    Row("ruby -e 'File.write(\"new.rb\", \"x\")'", "write new.rb"),
    Row("ruby -e '%w[a.py b.py].each { |f| File.write(f, File.read(f) + \"x\") }'",
        "write a.py, write b.py"),
]  # fmt: skip

LISTS = [
    Row("printf 'a.py\\nb.py\\n' | xargs rm", "remove a.py, remove b.py"),
    Row("echo a.py b.py | xargs -n1 sed -i s/one/two/", "write a.py, write b.py"),
    Row("echo a.py | xargs -I{} cp {} {}.bak", "write a.py.bak"),
    Row("find src -name '*.py' -print0 | xargs -0 sed -i s/one/two/", "write src/**/*.py"),
    Row("find . -maxdepth 1 -name '*.py' | xargs rm", "remove *.py"),
    Row("find src \\( -name 'a.py' -o -name 'c.py' \\) -exec sed -i s/one/two/ {} +",
        "write src/**/a.py, write src/**/c.py"),
    Row("find . -name 'x.md' -exec sh -c 'mv \"$1\" \"$1.bak\"' _ {} \\;",
        "remove **/x.md, write **/x.md.bak"),
    Row("find . -type d -empty -delete"),
    Row("find src -name '*.py' -newer Makefile -exec rm {} +", "remove src/**/*.py",
        spare="none is newer"),
    Row("touch -cd yesterday a.py; find src -newer a.py -exec rm {} +", "",
        late="which files are newer"),
    Row("git ls-files '*.md' | xargs rm", "remove **/*.md"),
    Row("git ls-files | grep '\\.md$' | xargs rm", "remove **/*.md"),
    Row("git ls-files src | xargs sed -i s/one/two/", "write src"),
    Row("ls src/*.py | sort -r | head -1 | xargs rm", "remove src/*.py"),
    Row("for f in $(git ls-files 'docs/*.md'); do echo x >> $f; done", "write docs/**/*.md"),
    Row("find docs -name '*.md' | while read -r f; do mv \"$f\" \"$f.bak\"; done",
        "remove docs/**/*.md, write docs/**/*.md.bak"),
    Row("while IFS= read -r f; do rm \"$f\"; done <<'EOF'\na.py\nb.py\nEOF",
        "remove a.py, remove b.py"),
    Row("while read f; do rm $f; done < <(ls src/*.py)", "remove src/*.py"),
    Row("while read -r f old new; do sed -i \"s/$old/$new/\" \"$f\"; done <<'EOF'\n"
        "a.py one two\nsrc/a.py d e f\nEOF", "write a.py, write src/a.py"),
    Row("while IFS=, read -r from to; do mv $from $to; done <<'EOF'\na.py,n1.py\nb.py,n2.py\nEOF",
        "remove a.py, write n1.py, remove b.py, write n2.py"),
    Row("while IFS=: read -r d n; do touch $d/$n; done <<'EOF'\nsrc:n1\ndocs:n2\nEOF",
        "write src/n1, write docs/n2"),
    Row("IFS=: read -r n _ <<< 'n1:n2:n3'; touch $n", "write n1"),
    Row("read -r a b <<< 'n1 n2'; b=n3; touch $a $b", "write n1, write n3"),
    Row("mapfile -t all < <(ls *.py); rm \"${all[@]}\"", "remove *.py"),
    Row("{ echo a.py; echo b.py; } | xargs rm", "remove a.py, remove b.py"),
    Row("for i in 1 2; do echo n$i; done | xargs touch", "write n1, write n2"),
    Row("for i in $(seq 1 2); do touch n$i; done", "write n1, write n2"),
    Row("cat nothing.txt | xargs rm; true"),
    Row("echo a.py b.py | tr ' ' '\\n' | xargs -n1 rm", "remove a.py, remove b.py"),
]  # fmt: skip

VALUES = [
    Row("t=$(mktemp -d); sed s/one/two/ a.py > $t/a.py; cp $t/a.py .; rm -r $t", "write a.py"),
    Row("t=$(mktemp) && u=$(mktemp) && echo a.py > $t && echo b.py > $u && xargs rm < $t;"
        " rm $t $u", "remove a.py"),
    Row("echo x > $(pwd)/new.txt", "write new.txt"),
    Row("echo x > ${OUT:-new.txt}", "write new.txt"),
    Row("OUT=a.py; echo x > ${OUT:-new.txt}", "write a.py"),
    Row("D=src; echo x > \"${X:-$D}/new.txt\"", "write src/new.txt"),
    Row("d=$(dirname src/a.py); echo x > $d/new.txt", "write src/new.txt"),
    Row("f=src/a.py; cp $f docs/$(basename $f .py).txt", "write docs/a.txt"),
    Row("top=$(git rev-parse --show-toplevel 2>/dev/null || pwd); echo x > $top/new.txt",
        "write new.txt"),
    Row("f() { sed -i s/one/two/ \"$1\"; cp \"$1\" \"$2\"; }; f a.py z.py",
        "write a.py, write z.py"),
    Row("f() { for x in \"$@\"; do rm $x; done; }; f a.py b.py", "remove a.py, remove b.py"),
    Row("set -- a.py b.py; rm \"$1\"; touch $2.txt", "remove a.py, write b.py.txt"),
    Row("bash -c 'rm \"$1\"' _ a.py", "remove a.py"),
    Row("n=$(( $(wc -l < a.py) + 1 )); echo $n > new.txt", "write new.txt"),
    Row("echo $(( $(rm a.py; echo 1) ))", "remove a.py"),
    Row("env PATH=\"$PATH\" N=\"$NOTHING\" bash -c 'sed -i s/one/two/ a.py'", "write a.py"),
    Row("echo x > $(date +%s).txt", late="the name is the output of a command"),
    Row("rm src/[ab].py", "remove src/?.py"),
    Row("exec 3> new.txt; echo x >&3", "write new.txt"),
    Row("f() { echo x; }; f > new.txt", "write new.txt"),
]  # fmt: skip

FILTERS = [
    Row("awk '{print > \"out-\" \"1.txt\"}' a.py", "write out-1.txt"),
    Row("awk -v o=new.txt '{print >> o}' a.py", "write new.txt"),
    Row("awk '{print > FILENAME \".new\"}' a.py b.py", "write a.py.new, write b.py.new"),
    Row("awk '$1 > 5 { print ($1 > 3) }' a.py"),
    Row("awk 'BEGIN { f = \"new.txt\"; print 1 > f }'", "write new.txt"),
    Row("awk '{print > $1 \".txt\"}' c.txt", late="a name from the file"),
    Row("awk '{print > \"src/part-\" NR \".txt\"}' c.txt", "write src/part-*.txt"),
    Row("awk '{print > \"src/part\" $1 NR}' c.txt", "write src/part*"),
    Row("awk '{print > \"docs/\" $1 NR}' c.txt", late="it may be any file there"),
    Row("sed -n 'w new.txt' a.py", "write new.txt"),
    Row("sed 's/one/two/w new.txt' a.py", "write new.txt"),
    Row("sed -e '1d' -e '/c/w new.txt' a.py", "write new.txt"),
    Row("sed 's/[/]/w x/p' a.py"),
    Row("sed 's/one/w new.txt/' a.py"),
    Row("sed 'a w new.txt' a.py"),
    Row("sed '/d/{s/d/e/;w new.txt\n}' a.py", "write new.txt"),
]  # fmt: skip

ARCHIVES = [
    Row("tar cf out.tar src", "write out.tar"),
    Row("tar czf out.tgz src && rm -r src && tar xzf out.tgz src/a.py",
        "write out.tgz, remove src, write src/a.py", spare="src/a.py is the same again"),
    Row("tar cf x.tar a.py; mkdir -p in; tar xf x.tar -C in", "write x.tar, write in"),
    Row("tar cf x.tar a.py; tar tf x.tar", "write x.tar"),
    Row("tar cf x.tar a.py; echo > a.py; tar -xf x.tar",
        "write x.tar, write a.py", spare="it is the same again"),
    Row("gzip a.py", "write a.py.gz, remove a.py"),
    Row("gzip -k a.py && rm a.py && gunzip a.py.gz",
        "write a.py.gz, remove a.py, write a.py, remove a.py.gz", spare="it is the same again"),
    Row("gzip -c a.py > x.gz", "write x.gz"),
    Row("xz a.py", "write a.py.xz, remove a.py"),
    Row("zstd -q a.py", "write a.py.zst"),
    Row("zip -qr out.zip src", "write out.zip"),
    Row("zip -q x.zip a.py && unzip -qo x.zip -d in", "write x.zip, write in"),
    Row("split -l 2 a.py part_", "write part_*"),
    Row("split -l 2 a.py", "write x??"),
    Row("csplit -s a.py 2", "write xx*"),
    Row("sqlite3 x.db 'create table t(a); insert into t values (1)'", "write x.db"),
    Row("openssl rand -out new.bin 8", "write new.bin"),
]  # fmt: skip

PACKAGES = [
    Row("echo '{\"name\":\"x\",\"version\":\"1.0.0\"}' > package.json; npm pkg set a=b",
        "write package.json"),
    Row("npm init -y", "write package.json"),
    Row("go mod init x", "write go.mod"),
    Row("printf 'package x\\n\\nvar  a = 1\\n' > x.go; gofmt -w .", "write x.go, write **/*.go"),
    Row("gofmt -l ."),
    Row("npm ls; true"),
]  # fmt: skip

RUN = [*PYTHON, *SCRIPTS, *LISTS, *VALUES, *FILTERS, *ARCHIVES, *PACKAGES]


@pytest.mark.parametrize("row", RUN, ids=lambda row: row.command)
def test_what_is_said_of_a_command(row: Row, repository: Path) -> None:
    check_what_is_said(row, repository)


@pytest.mark.short(3)
@pytest.mark.parametrize("row", RUN, ids=lambda row: row.command)
def test_a_real_bash_changes_what_was_said_and_nothing_else(row: Row, repository: Path) -> None:
    compare_with_bash(row, repository)


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("npm install x", "package.json package-lock.json"),
        ("npm i -D x y", "package.json package-lock.json"),
        ("npm version patch", "package.json package-lock.json"),
        ("npm install", ""),
        ("npm ci", ""),
        ("npm install -g x", ""),
        ("npm run build", ""),
        ("npm audit", ""),
        ("pnpm add x", "package.json pnpm-lock.yaml"),
        ("yarn remove x", "package.json yarn.lock"),
        ("bun add x", "package.json bun.lock bun.lockb"),
        ("uv add x", "pyproject.toml uv.lock"),
        ("uv lock", "uv.lock"),
        ("uv sync", ""),
        ("uv pip install x", ""),
        ("uv pip compile a.in -o a.txt", "a.txt"),
        ("pip-compile dev.in", "dev.txt"),
        ("pip install x", ""),
        ("poetry version", ""),
        ("poetry add x", "pyproject.toml poetry.lock"),
        ("cargo add x", "Cargo.toml Cargo.lock"),
        ("cargo build", ""),
        ("go get x", "go.mod go.sum"),
        ("go mod tidy", "go.mod go.sum"),
        ("go mod download", ""),
        ("go test ./...", ""),
        ("bundle update", "Gemfile.lock"),
        ("composer require x/y", "composer.json composer.lock"),
        ("helm dep update chart", "chart/Chart.lock chart/charts"),
        ("mvn versions:set", "**/pom.xml"),
        ("npx jest -u", "**/*.snap"),
        ("go mod edit -json", ""),
        ("go mod tidy -diff", ""),
        ("npm version", ""),
        ("bundle exec rails db:migrate", "db/schema.rb db/structure.sql"),
        ("npx prisma db pull", "prisma/schema.prisma"),
        ("npx prisma db push", ""),
        ("diesel migration run", "src/schema.rs"),
        ("uv run pre-commit autoupdate", ".pre-commit-config.yaml"),
        ("npm install --prefix web x", "web/package.json web/package-lock.json"),
        ("uv export --frozen -o a.txt", "a.txt"),
        ("pdm export --output=a.txt", "a.txt"),
        ("./gradlew spotlessApply", "**/*.java **/*.kt **/*.kts"),
        ("./gradlew build --output-file x", ""),
    ],
)
def test_package_managers_write_what_a_project_keeps_and_not_what_they_install(
    command: str, files: str
) -> None:
    assert writes(command, "/repo") == [Edit(f"/repo/{name}") for name in files.split()]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("npx vitest run --update", "**/*.snap"),
        ("npx playwright test --update-snapshots", "**/*-snapshots/**"),
        ("uv run pytest --snapshot-update", "**/__snapshots__/**"),
        ("pytest --snapshot-update tests/test_a.py::test_b", "tests/**/__snapshots__/**"),
        ("pytest -k update tests", ""),
        ("go test ./store -run TestOpen -update", "store/**/testdata/**"),
        ("go test ./... -update", "**/testdata/**"),
        ("go test ./...", ""),
        ("cargo insta test --accept", "**/*.snap"),
        ("cargo test accept", ""),
    ],
)
def test_a_runner_of_tests_writes_the_snapshots_that_it_is_told_to_update(
    command: str, files: str
) -> None:
    assert writes(command, "/repo") == [Edit(f"/repo/{name}") for name in files.split()]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("docker cp app:/app/docs/api.md docs/api.md", "docs/api.md"),
        ("docker compose cp app:/app/out.json .", "out.json"),
        ("kubectl cp -n x pod-0:/a/b.csv data/b.csv -c app", "data/b.csv"),
        ("docker cp docs/api.md app:/tmp", ""),
        ("docker cp app:/app/docs -", ""),
        ("docker run --rm app tool -o docs/api.md", ""),
        ("pg_dump -Fc -f data/dump.sql ledger", "data/dump.sql"),
        ("mysqldump -u root -r dump.sql ledger", "dump.sql"),
        ("psql -c \"\\copy users to 'u.csv' csv\"", "u.csv"),
        ("psql -c '\\copy users to stdout'", ""),
        ("psql -c \"copy users to '/srv/u.csv'\"", ""),
        ("sqlite3 a.db '.output d.sql' .dump", "d.sql"),
        ("sqlite3 a.db '.backup main b.db'", "b.db"),
        ("sqlite3 a.db <<'E'\n.once d.csv\nselect 1;\nE", "d.csv"),
    ],
)
def test_what_comes_out_of_a_container_or_a_database_is_written(command: str, files: str) -> None:
    assert writes(command, "/repo") == [Edit(f"/repo/{name}") for name in files.split()]


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("npx openapi-typescript api.yaml -o web/schema.ts", "web/schema.ts"),
        ("mockgen -source=store.go -destination=mock/store.go", "mock/store.go"),
        ("python tools/gen.py --output docs/api.md", "docs/api.md"),
        ("node gen.mjs --out=dist/x.js", "dist/x.js"),
        ("gcc -c a.c -o a.o", "a.o"),
        ("go run ./gen -o internal/x.go", "internal/x.go"),
        ("protoc -I proto --python_out=src --go_out=paths=source_relative:gen proto/a.proto",
         "src/**/a_pb2.py gen/**/a.pb.go"),
        ("fastmod --accept-all one two a.py", "a.py"),
        ("kubectl get pods -o yaml", ""),
        ("kubectl get pods -o jsonpath={.items[0].x}", ""),
        ("ssh -o IdentityFile=a.pem host", ""),
        ("pip download --dest wheels-1.2 x", ""),
        ("tool --output a.md --dry-run", ""),
    ],
)  # fmt: skip
def test_a_tool_writes_the_file_that_its_option_for_output_names(command: str, files: str) -> None:
    assert writes(command, "/repo") == [Edit(f"/repo/{name}") for name in files.split()]


@pytest.mark.parametrize(
    ("test", "asks"),
    [
        ("'core' in f", (("only", "named", "core"),)),
        ("'core' not in p.name", (("only", "unnamed", "core"),)),
        ("f.endswith(('.py', '.pyi'))", (("only", "ending", ".py", ".pyi"),)),
        ("f.isascii()", ()),
        ("'x' in p.parts", ()),
    ],
)
def test_a_list_in_python_leaves_out_the_files_that_its_condition_names(
    test: str, asks: tuple[tuple[str, ...], ...]
) -> None:
    code = f"import glob\nfor f in [f for f in glob.glob('src/*') if {test}]: open(f, 'w')"
    [edit] = read(f"python3 - <<'E'\n{code}\nE", "/repo").edits
    assert (edit.path, edit.asks) == ("/repo/src/*", asks)


@pytest.mark.parametrize(
    ("body", "asks"),
    [
        ("if 'x' in text:\n  continue\n open(f, 'w')", (("only", "without", "x"),)),
        ("if 'x' not in text:\n  open(f, 'w')", (("only", "without", "x"),)),
        ("if 'x' in text:\n  open(f, 'w')", (("only", "with", "", "x"),)),
        ("if 'x' not in text:\n  continue\n open(f, 'w')", (("only", "with", "", "x"),)),
        ("if 'tests' in f or 'x' in text:\n  continue\n open(f, 'w')",
         (("only", "unnamed", "tests"), ("only", "without", "x"))),
        ("if 'x' in text:\n  continue\n open(f, 'w').write(text.replace('a', 'b'))",
         (("only", "without", "x"), ("only", "with", "", "a"))),
        ("if 'x' not in text:\n  text += 'x'\n new = text.replace('a', 'b')\n"
         " if new != text: open(f, 'w')", (("only", "with", "", "a"),)),
    ],
)  # fmt: skip
def test_a_loop_in_python_writes_the_files_that_its_conditions_leave(
    body: str, asks: tuple[tuple[str, ...], ...]
) -> None:
    code = f"import glob\nfor f in glob.glob('src/*'):\n text = open(f).read()\n {body}"
    [edit] = read(f"python3 - <<'E'\n{code}\nE", "/repo").edits
    assert (edit.path, edit.asks) == ("/repo/src/*", asks)


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("p.write_text(p.read_text().replace('a', 'b').replace('c\\nlong', 'd'))", "a long"),
        ("s = p.read_text()\ns = s.replace('a', 'b')\np.write_text(s)", "a"),
        ("import re\np.write_text(re.sub(r'v\\d+ old', 'x', p.read_text()))", "_old"),
        ("for a, b in [('x', '1'), ('y', '2')]:\n t = p.read_text()\n t = t.replace(a, b)\n"
         " p.write_text(t)", "x y"),
        ("def fix(q):\n t = q.read_text()\n new = t.replace('a', 'b')\n if new == t: return\n"
         " q.write_text(new)\nfix(p)", "a"),
        ("s = open(p).read()\nopen(p, 'w').write(s.replace('a', 'b'))", "a"),
        ("with open(p) as f: s = f.read()\nnew = s.replace('a', 'b')\n"
         "with open(p, 'w') as f:\n f.write(new)", "a"),
        ("with p.open() as f: s = f.read()\nwith p.open('w') as f:\n"
         " f.write(s.replace('a', 'b'))\n print('x', file=f)", ""),
        ("s = open(p).read()\nopen(p, 'a').write(s.replace('a', 'b'))", ""),
        ("s = p.read_text().replace('a', 'b')\ns += 'c'\np.write_text(s)", ""),
        ("p.write_text(p.read_text().replace('a', 'b') + 'c')", ""),
        ("p.write_text(Path('other').read_text().replace('a', 'b'))", ""),
        ("import re\np.write_text(re.sub('a', 'x', p.read_text(), flags=re.I))", ""),
        ("p.write_text(p.read_text())", ""),
    ],
)  # fmt: skip
def test_a_replacement_in_python_asks_what_is_in_the_file(code: str, texts: str) -> None:
    code = f"from pathlib import Path\np = Path('a.md')\n{code}"
    [edit] = read(f"python3 - <<'E'\n{code}\nE", "/repo").edits
    known = tuple(text.replace("_", " ") for text in texts.split())
    assert edit.asks == ((("only", "with", "", *known),) if texts else ())


def test_a_repository_may_be_in_memory() -> None:
    assert writes("echo x > a.py; ls > /dev/null", "/dev/shm/repo") == [Edit("/dev/shm/repo/a.py")]


def test_the_files_of_a_package_are_those_of_the_nearest_directory_above(repository: Path) -> None:
    (repository / "package.json").write_text("{}")
    found = read("cd src/deep && npm install x", str(repository), Disk(kind_of)).edits
    assert found[0] == Edit(str(repository / "package.json"))


def test_the_top_of_a_checkout_is_found_by_looking(repository: Path) -> None:
    command = "cd src && echo x > $(git rev-parse --show-toplevel)/new.txt"
    assert read(command, str(repository), Disk(kind_of)).edits == [
        Edit(str(repository / "new.txt"))
    ]


@pytest.mark.parametrize(
    "command",
    ["npx prettier --check .", "gofmt -l .", "gofmt -d .", "cargo fmt -- --check", "npm ls",
     "terraform fmt -check -recursive", "node --version", "pnpm exec eslint src", "isort -c .",
     "poetry run black --diff a.py", "dotnet format --verify-no-changes", "docker ps",
     "gh pr view", "npx jscodeshift --dry -t x.js web"],
)  # fmt: skip
def test_a_tool_that_is_told_to_only_look_only_reads(command: str) -> None:
    assert only_reads(command)


@pytest.mark.parametrize(
    "command", ["shfmt -l -w a.sh", "shfmt -i 2 -ci -w a.sh", "shfmt -ln=bash -w a.sh"]
)
def test_the_short_words_of_a_formatter_take_no_other_option_for_their_value(command: str) -> None:
    assert writes(command, "/repo") == [Edit("/repo/a.sh")]


def test_a_formatter_rewrites_the_files_that_it_has_listed() -> None:
    [edit] = read("gofmt -l ./internal | xargs -r gofmt -w", "/repo").edits
    assert edit.path == "/repo/internal/**/*.go"
    [edit] = read("npx prettier -l 'web/*.ts' | xargs npx prettier --write", "/repo").edits
    assert edit.path == "/repo/web/*.ts"


def test_a_formatter_with_an_unknown_option_is_not_said_to_only_read() -> None:
    assert only_reads("golines -m 100 a.go")
    assert not only_reads("golines -m -w a.go")


def kind_of(path: str) -> str:
    return "directory" if os.path.isdir(path) else "file" if os.path.lexists(path) else ""


def test_a_formatter_claims_no_file_that_it_cannot_change(repository: Path) -> None:
    (repository / "script").write_text("print(1)\n")
    said = [edit.path for edit in read("black . script", str(repository), Disk(kind_of)).edits]
    assert said == [f"{repository}/**/*.py", f"{repository}/**/*.pyi", f"{repository}/script"]


# Names of commands that only read, with what may follow them: what is said to only read must.
NAMES = st.sampled_from(
    "ls cat sort uniq sed awk find tree file grep diff cut tr wc jq stat od nl fold column comm"
    " join paste tac rev shuf base64 cmp strings head tar gzip unzip printf echo test git xxd tee"
    " env command nice export set black".split()
)
ARGUMENTS = st.sampled_from(
    r"""
    a.py|b.py|c.txt|new.txt|.|src|-i|-o|-w|-e|-n|-r|-R|-c|-d|-f|-x|-t|-O|-C|-p|-z|-T|--output=n.txt
    --in-place|-delete|-fls|-exec rm {} +|-name '*.py'|'s/one/two/'|'s/one/two/w n.txt'|'1w n.txt'
    '{print}'|'{print > "n.txt"}'|'1e touch n.txt'|x=1|PATH=.|PAGER=./ls|log|show|diff|status|tag
    branch|-v|--check|> n.txt|2> /dev/null|$(rm a.py)|`touch n.txt`|./ls|;|&&|ls|(( PATH=1 ))
    [[ a ]]|cf|tf|x.tar|-l|--ext-diff|config|core.pager|--global|$((1))|${x:=1}|-k
    'a[$(touch n.txt)]'
    """.strip()
    .replace("\n    ", "|")
    .split("|")
)


@settings(max_examples=150, deadline=None)
@given(words=st.lists(st.one_of(NAMES, ARGUMENTS), min_size=1, max_size=7), name=NAMES)
def test_what_is_said_to_only_read_changes_nothing_whatever_its_arguments(
    words: list[str], name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    command = " ".join([name, *words])
    if not only_reads(command):
        return
    top = tmp_path_factory.mktemp("reads")
    for file in ("a.py", "b.py", "c.txt"):
        (top / file).write_text("one\ntwo\n")
    # A program of the directory's own, which must never be taken for the system's.
    for trap in ("ls", "cat", "git"):
        (top / trap).write_text("#!/bin/sh\ntouch trapped\n")
        (top / trap).chmod(0o755)
    before = files_of(top)
    subprocess.run(
        ["timeout", "5", "bash", "-c", command],
        cwd=top,
        env={"HOME": str(top), "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    after = files_of(top)
    shutil.rmtree(top)
    assert after == before, command


@pytest.mark.parametrize("interpreter", ["python3 -", "node -", "perl", "ruby"])
@pytest.mark.parametrize(
    "piece",
    ["(", "[", "{", "f(", "a = a + a\n", "a = [a, a]\n", "def f(): f(); f()\nf()\n", "'x' + ", "-",
     "a.b(", "for a in [1, 2]:\n ", "open(", "x = (", "a=(a=(", "['a'].each { |a| ", "\"$a",
     "`${a}`+", "x.y.z.", "if 1: pass\nel", "lambda: ", "qw(", "s/", "%w[", "not ", "f'{f"],
)  # fmt: skip
@pytest.mark.timeout(30)
def test_any_code_at_all_comes_to_an_end(interpreter: str, piece: str) -> None:
    code = piece * (180_000 // len(piece))
    verdict = read(f"{interpreter} <<'EOF'\n{code}\nEOF", "/repo")
    assert len(verdict.edits) <= 1_000


@settings(max_examples=100, deadline=None)
@given(
    code=st.lists(
        st.sampled_from(
            "open ( ) 'a.py' , 'w' . write x = f { } [ ] \n : for in def if : import os Path / + fs"
            ' writeFileSync File unlink qw ` " $ # // /* | each do % s/a/b/ => of const my'.split(
                " "
            )
        ),
        max_size=40,
    ).map(" ".join)
)
def test_any_words_of_code_give_absolute_paths_and_no_error(code: str) -> None:
    for interpreter in ("python3 -", "node -", "perl", "ruby", "php"):
        for edit in read(f"{interpreter} <<'EOF'\n{code}\nEOF", "/repo").edits:
            assert edit.path.startswith("/")


UNREADABLE = (
    "python3 build.py", "node build.js", "make", "go generate ./...", "./x.sh", "npm run fix",
    "pre-commit run -a", "grep -L x . | xargs sed -i s/x/y/",
)  # fmt: skip


def test_what_cannot_be_known_is_left_to_the_look_afterwards() -> None:
    for command in UNREADABLE:
        assert (read(command, "/repo").says, writes(command, "/repo")) == (UNKNOWN, [])
    assert read("black --check .", "/repo").says == READS
