"""A small project as agents meet it: four languages, a history, branches, stashes and a remote.

It is built once, and copied for every command. What its history changed is what the corpus counts
on, so it stands here in one place:

- `main`, from the last commit back: web/util.js; src/app/core.py; docs/api.md;
  internal/store/store.go; CHANGELOG.md and src/app/__init__.py (tag v1.1.0);
  config/settings.yaml; everything (tag v1.0.0)
- `origin/main` is ahead by web/app.ts, which is fetched, and CHANGELOG.md, which is not
- `origin/dev` is ahead of `dev` by data/users.csv, not fetched
- `feature/parser`: src/app/parser.py (new) and src/app/core.py, on top of main
- `feature/docs`: docs/guide.md and README.md, from two commits before main
- `fix/cli`: src/app/cli.py, from three commits before main
- `fix/rounding`: the line of src/app/core.py that main changed too
- `chore/deps`: package.json and requirements.txt, on top of main
- `same`: main
- stash 0: src/app/util.py; stash 1: docs/api.md
- untracked: notes.txt, scratch.py, out/result.json, fix.patch (of src/app/util.py); there are
  ignored files too
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
IDENTITY = {
    "GIT_AUTHOR_NAME": "Alice",
    "GIT_AUTHOR_EMAIL": "alice@example.org",
    "GIT_COMMITTER_NAME": "Alice",
    "GIT_COMMITTER_EMAIL": "alice@example.org",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
}
HISTORY = r"""
git init -q -b main
git config pull.rebase false
git add -A
git commit -qm 'Start'
git tag v1.0.0
sed -i 's/port: 3000/port: 8080/' config/settings.yaml
git commit -qam 'Listen on another port'
sed -i 's/1.0.0/1.1.0/' src/app/__init__.py
sed -i 's/^## 1.0.0/## 1.1.0 - 2026-03-01\n\n- A server.\n\n&/' CHANGELOG.md
git commit -qam 'Release 1.1.0'
git tag -a v1.1.0 -m v1.1.0
sed -i 's/return nil/return check(path)/' internal/store/store.go
git commit -qam 'Check the path of the store'
git branch fix/cli
printf '\n## total\n\nReturns a sum.\n' >> docs/api.md
git commit -qam 'Describe total'
git branch feature/docs
git branch fix/rounding
sed -i 's/return int(value)/return round(value)/' src/app/core.py
git commit -qam 'Round prices'
sed -i "s/<b>/<strong>/; s/<.b>/<\/strong>/" web/util.js
git commit -qam 'Use strong'
git branch same
git branch dev

git switch -q -c feature/parser
printf 'def parse(text):\n    return text.split(",")\n' > src/app/parser.py
git add src/app/parser.py
git commit -qm 'Add a parser'
sed -i 's/^TAX_RATE = .*/TAX_RATE = 0.07/' src/app/core.py
git commit -qam 'Lower the rate'

git switch -q feature/docs
sed -i 's/Run `ledger report`./Run `ledger report --year 2026`./' docs/guide.md
git commit -qam 'Show the year'
sed -i 's/^Prices, orders and reports./Prices, orders, reports and parsers./' README.md
git commit -qam 'Mention parsers'

git switch -q fix/cli
sed -i 's/return 2/return 64/' src/app/cli.py
git commit -qam 'Exit as others do'

git switch -q fix/rounding
sed -i 's/return int(value)/return int(value + 0.5)/' src/app/core.py
git commit -qam 'Round half up'

git switch -q -c chore/deps main
sed -i 's/1.3.0/1.3.1/' package.json
sed -i 's/8.1.0/8.1.7/' requirements.txt
git commit -qam 'Bump dependencies'

git switch -q main
git clone -q --bare . ../origin.git
git remote add origin ../origin.git
git fetch -q origin
git branch -q -u origin/main main
git branch -q -u origin/dev dev
git branch -q -u origin/feature/docs feature/docs

git clone -q ../origin.git ../mate
cd ../mate
git config pull.rebase false
sed -i "s/'1.1.0'/'1.2.0'/" web/app.ts
git commit -qam 'Say the next version'
git push -q origin main
cd - >/dev/null
git fetch -q origin
cd ../mate
sed -i 's/^- Reports can/- Orders have dates.\n&/' CHANGELOG.md
git commit -qam 'Note the dates'
git push -q origin main
git switch -q dev
echo '3,eve' >> data/users.csv
git commit -qam 'Add eve'
git push -q origin dev
cd - >/dev/null
rm -rf ../mate

echo '- More to come.' >> docs/api.md
git stash push -q -m 'wip api'
sed -i 's/^def cents/def to_cents/' src/app/util.py
git diff > fix.patch
git stash push -q -m 'wip util'
mv fix.patch ..
git status -s

mkdir -p build dist node_modules/left-pad target/debug out src/app/__pycache__
echo built > build/out.js
echo wheel > dist/ledger.whl
echo pad > node_modules/left-pad/index.js
echo elf > target/debug/ledger
echo SECRET=1 > .env
echo started > app.log
echo pyc > src/app/__pycache__/core.pyc
echo 'remember the milk' > notes.txt
echo 'print(1)' > scratch.py
echo '{"ok": true}' > out/result.json
mv ../fix.patch .
git gc -q
rm -rf .git/hooks ../origin.git/hooks
"""


def build(folder: Path) -> None:
    """Put the project into folder/repository, and its remote into folder/origin.git."""
    repository = folder / "repository"
    for part in (HERE / "project.txt").read_text().split("=== ")[1:]:
        name, _, text = part.partition("\n")
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for script in (repository / "scripts").glob("*.sh"):
        script.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **IDENTITY}
    environment["GIT_CONFIG_GLOBAL"] = str(folder / "gitconfig")
    done = subprocess.run(
        ["bash", "-e", "-c", HISTORY], cwd=repository, env=environment,
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", done.stdout


DRAFTS = {
    "py": "\n\n\n\n# a  draft   \nimport sys, os\n\n\nclass  Draft(object):\n    size = [ 1,2 ]\n",
    "js": "\n\n\n// a  draft   \nlet  drafted=[1,2]\n",
    "go": "\n\n\n// a  draft   \n",
    "rs": "\n\n\n// a  draft   \nuse std::collections::HashMap;\n",
    "css": "\n\n\np{color:red   }\n",
    "csv": "9,draft\n",
    "md": "\n\n\n*  a draft   \n",
    "": "\n\n\n# a  draft   \n",
}
DRAFTS |= {"ts": DRAFTS["js"], "tsx": DRAFTS["js"], "mod": DRAFTS["go"], "txt": DRAFTS["md"]}


def messy(path: str, text: str) -> str:
    """What a file looks like while somebody is at work in it: no formatter would leave it so."""
    ending = path.rpartition(".")[2]
    if ending == "json":
        return text.replace("\n  ", "\n      ")
    return text + DRAFTS.get(ending, DRAFTS[""])
