"""`dibs config`: what holds, where it comes from, and how it is changed without losing anything."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from dibs.errors import InvalidError
from dibs.names.paths import find_place
from dibs.surroundings.assigning import assign
from dibs.surroundings.settings import PERSONAL, SETTINGS, Config, load
from tests.surfaces.shell import Shell


def rows(shell: Shell) -> dict[str, tuple[object, str]]:
    return {row["setting"]: (row["value"], row["from"]) for row in shell.json("config", "list")}


def test_every_setting_is_listed_with_its_default(shell: Shell) -> None:
    found = rows(shell)
    assert {name: value for name, (value, _) in found.items()} == {
        name: default for name, (_, default) in SETTINGS.items()
    }
    assert {origin for _, origin in found.values()} == {"default"}


def test_the_defaults_that_are_listed_are_those_that_hold(tmp_path: Path) -> None:
    place = find_place(str(tmp_path), str(tmp_path))
    given: dict[str, object] = {}
    for name, (_, default) in SETTINGS.items():
        table, _, last = name.rpartition(".")
        if default != "":
            inside = given.setdefault(table, {}) if table else given
            assert isinstance(inside, dict)
            inside[last] = default
    said, plain = Config(place, given), Config(place, {})
    assert not said.problems
    for name in vars(plain):
        assert getattr(said, name) == getattr(plain, name), name


def test_a_setting_is_changed_where_it_belongs_and_says_where_it_comes_from(shell: Shell) -> None:
    own = f"{shell.user_dir}/config.toml"
    shell.ok("config", "set", "ttl", "45m")
    shell.ok("config", "set", "worktrees", "block", "--user")
    shell.ok("config", "set", "protected", "migrations/**", ".github/")
    shell.ok("config", "set", "retention.journal", "60d")
    found = rows(shell)
    assert found["ttl"] == ("45m", ".dibs/config.toml")
    assert found["worktrees"] == ("block", own)
    assert found["protected"] == (["migrations/**", ".github/"], ".dibs/config.toml")
    assert found["retention.journal"] == ("60d", ".dibs/config.toml")
    assert shell.ok("config", "get", "ttl").out == "45m\n"
    # The repository comes before its user.
    shell.ok("config", "set", "worktrees", "off")
    assert shell.json("config", "get", "worktrees")["from"] == ".dibs/config.toml"
    shell.ok("config", "set", "worktrees", "--unset")
    assert shell.json("config", "get", "worktrees")["value"] == "block"
    answer = shell.ok("doctor").out
    assert "worktrees block" in answer
    assert shell.with_(DIBS_EXPORT="/x").json("config", "get", "retention.export") == {
        "setting": "retention.export",
        "value": "/x",
        "from": "DIBS_EXPORT",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("set tll 3m", "did you mean ttl?"),
        ("get polici", "did you mean policy?"),
        ("set ttl soon", "ttl is not a time: 'soon'\nnext: write 90, 90s, 5 min, 1h30m, 2d or 1w"),
        ("get nosuch", "next: see: dibs config list\n"),
        ("set policy ajar", "it can be open or closed"),
        ("set keep 1m", "keep must be between"),
        ("set ttl", "VALUE is missing"),
        ("set ttl 3m --unset", "--unset takes no value"),
        ("set ttl 5 min", "put it in quotation marks"),
        ("set keep 60d --user", "can only be set in a repository"),
        ("set retention.export perhaps", "must be true or false"),
        ("set land.verify x", "edit .dibs/config.toml and commit it"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    shell: Shell, line: str, said: str
) -> None:
    answer = shell("config", *line.split())
    assert (answer.code, said in answer.err) == (2, True), answer
    assert not (shell.folder / ".dibs/config.toml").exists()


def test_only_people_change_settings(shell: Shell) -> None:
    agent = shell.with_(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="s")
    answer = agent("config", "set", "policy", "open")
    assert (answer.code, "only people may do this" in answer.err) == (1, True)
    assert agent("config", "get", "policy").out == "open\n"


def test_a_file_that_cannot_be_read_is_not_overwritten(shell: Shell) -> None:
    shell.ok("config", "set", "ttl", "45m")
    file = shell.folder / ".dibs/config.toml"
    file.write_text("ttl = \n")
    answer = shell("config", "set", "ttl", "1h")
    assert (answer.code, "correct it by hand" in answer.err) == (75, True), answer
    assert file.read_text() == "ttl = \n"
    assert "ignored:" in shell.ok("config", "list").err


def test_a_mistake_in_ones_own_settings_is_told_and_harmless(shell: Shell) -> None:
    shell.ok("status")
    Path(shell.user_dir, "config.toml").write_text('ttl = "soon"\nkeep = "99d"\nwake = "off"\n')
    answer = shell("doctor")
    assert answer.code == 1
    assert "in your own settings: ttl is not a time" in answer.out
    assert "in your own settings: 'keep' can only be set in a repository" in answer.out
    found = rows(shell)
    assert (found["ttl"], found["keep"]) == (("30m", "default"), ("30d", "default"))
    assert found["wake"][0] == "off"
    assert set(PERSONAL) <= set(SETTINGS)


def test_ones_own_settings_hold_in_each_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    user = tmp_path / ".local/share/dibs"
    user.mkdir(parents=True, mode=0o700)
    (user / "config.toml").write_text('ttl = "2m"\npolicy = "closed"\nkeep = "2h"\n')
    (tmp_path / "repository/.git").mkdir(parents=True)
    (tmp_path / "repository/.git/HEAD").write_text("ref: refs/heads/main\n")
    place = find_place(str(tmp_path / "repository"), str(user))
    found = load(place)
    assert (found.ttl_s, found.policy, found.keep_s) == (120, "closed", 30 * 86_400)


TEXT = """\
# Settings.

# How long.
# ttl = "30m"
policy = "open"  # for now
ignored = [
  "dist/",  # built
]

[retention]
journal = "60d"

[land]
verify = ["make test"]
"""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ttl", "45m"),
        ("policy", "closed"),
        ("ignored", ["a", 'b "c" \\ ü']),
        ("ignored", None),
        ("keep", "90d"),
        ("retention.journal", "10d"),
        ("retention.tasks", "10d"),
        ("retention.journal", None),
        ("swarm.include", [".env"]),
        ("retention.export", True),
    ],
)
@pytest.mark.parametrize("text", [TEXT, "", "\n", '[land]\nverify = ["x"]'])
def test_one_setting_is_changed_and_all_else_stays(text: str, setting: str, value: object) -> None:
    before, after = tomllib.loads(text), tomllib.loads(assign(text, setting, value))
    table, _, name = setting.rpartition(".")
    for given in (before, after):
        inside = given.get(table, {}) if table else given
        found = inside.pop(name, None)
        if table and not inside:
            given.pop(table, None)
    assert found == value
    assert before == after
    # Comments stay, other than in what is replaced.
    kept = [line for line in text.splitlines() if line.startswith("#")]
    assert [line for line in assign(text, setting, value).splitlines() if line in kept] == kept


def test_a_new_value_stands_below_the_default_that_is_shown() -> None:
    lines = assign(TEXT, "ttl", "45m").splitlines()
    assert lines[lines.index('# ttl = "30m"') + 1] == 'ttl = "45m"'


@pytest.mark.parametrize("text", ['retention.journal = "60d"\n', 'retention = {journal = "60d"}\n'])
def test_what_is_written_in_another_way_is_left_to_people(text: str) -> None:
    with pytest.raises(InvalidError, match="cannot change"):
        assign(text, "retention.journal", "10d")
