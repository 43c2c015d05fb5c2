"""The word list of `make lint`: each rule catches its words and leaves correct English alone."""

from __future__ import annotations

import pytest

from tools.words import RULES, TOP, found, main

# For each rule, in order: sentences that it catches, and sentences that no rule catches.
EXAMPLES = [
    (["begin anew"], ["the renewed lease", "a new one"]),
    (["Mend it first.", "it was mended"], ["git commit --amend", "we recommend it", "amended"]),
    (["whatever name that bears", "cannot bear it"], ["a bearer token", "bear in mind that"]),
    (["how long silence is borne"], ["the Borneo office"]),
    (["waited in vain"], ["vanilla", "invain"]),
    (["kept for ever", "kept for\n    # ever"], ["for every task", "kept forever"]),
    (
        ["would close a circle", "a circle is refused", "circles of waits"],
        ["for circle in circles(nodes):", '<circle cx="26"/>', 'why="circle"'],
    ),
    (
        ["by any agent, lest it fail", "Hereby", "Thus it ends"],
        ["the nearest", "there it is", "here by design"],
    ),
    (
        ["this link is over, or was used", "those that are over too", "your session was over."],
        ["the file is over the limit", "it was over 3 s", "sent over HTTP", "handed over, and"],
    ),
    (["Those who wait are told"], ["agents that wait", "those that wait"]),
    (["`fast` gives the power cut away"], ["gives the lease away", "gives the task back"]),
    (["every claim is by whom it says"], ["what is held and by whom"]),
    (
        ["a caller whom this is not for", "those\nwhom it concerns"],
        ["who waits for whom", "by whom", "those to whom it was sent"],
    ),
    (
        ["those files are free of which git has every change", "agents of whom one was in the way"],
        [
            "some agents, one of whom is here",
            "few words, each of which earns its place",
            "20 messages, of which 3 are unread",
            "which commit of which branch goes there",
        ],
    ),
]


@pytest.mark.parametrize(
    ("rule", "examples"),
    list(zip(RULES, EXAMPLES, strict=True)),
    ids=[rule.instead for rule in RULES],
)
def test_a_rule_catches_its_words_and_leaves_correct_uses_alone(rule, examples):
    caught, left_alone = examples
    for text in caught:
        assert [instead for _, _, instead in found(text)] == [rule.instead], text
    for text in left_alone:
        assert found(text) == []


def test_a_phrase_is_found_across_lines_of_comments_and_literals():
    text = 'first\n# It is kept for\n# ever.\nraise Error("the link is "\n    f"over, {name}")\n'
    assert [(line, words) for line, words, _ in found(text)] == [(2, "for ever"), (4, "is over")]


def test_a_find_is_printed_with_its_place_and_fails_the_run(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tools.words.TOP", tmp_path)
    page = tmp_path / "guide" / "page.md"
    page.parent.mkdir()
    page.write_text("# Page\n\nIt begins anew.\n")
    assert main([]) == 1
    assert capsys.readouterr().out == "guide/page.md:3: 'anew' → 'again'\n"


def test_only_what_is_named_is_checked(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tools.words.TOP", tmp_path)
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text("It begins anew.\n")
    other.write_text("It begins again.\n")
    assert main([str(other)]) == 0
    assert main([str(page)]) == 1
    assert "page.md:1:" in capsys.readouterr().out


def test_the_tree_has_none_of_these_words(capsys):
    assert (TOP / "src").is_dir()
    assert main([]) == 0, capsys.readouterr().out
