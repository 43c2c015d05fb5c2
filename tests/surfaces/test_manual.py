"""The manual page is what the source says, and what the tools of the system can read."""

from __future__ import annotations

import re
import shutil
import subprocess

from dibs.surfaces.cli.help import every_command
from tools.manual import ENVIRONMENT, PAGE, render, text


def test_the_manual_is_what_the_source_says_now() -> None:
    assert render() == PAGE.read_text(encoding="utf-8"), "out of date: run make docs"


def test_the_manual_is_read_without_a_warning() -> None:
    assert shutil.which("mandoc"), "mandoc is not installed: run tests/surfaces/get_shells"
    words = ["mandoc", "-T", "lint", "-W", "warning", str(PAGE)]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    # It is made from the source, which has no date.
    assert [line for line in said.splitlines() if "missing date" not in line] == []


def test_a_reader_sees_every_command_and_every_option() -> None:
    words = ["mandoc", "-T", "utf8", "-O", "width=200", str(PAGE)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    shown = re.sub(".\b", "", shown)  # bold is a character over itself
    for command in every_command():
        assert f"dibs {command.words}" in shown
        for option in command.options:
            assert option.placed or f"--{option.name}" in shown
    assert all(name in shown for name in ENVIRONMENT)


def test_no_character_of_a_line_is_markup() -> None:
    assert text(".dibs/ it's") == r"\&.dibs/ it\(aqs"
    assert text("a\\b -x …") == r"a\eb \-x ..."
    assert text("ü") == r"\[u00FC]"
