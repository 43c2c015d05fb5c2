"""`dibs work plan` in words and as a graph; what it computes is in the contract."""

from __future__ import annotations

import re

from tests.surfaces.shell import Shell


def test_the_plan_in_words_says_what_is_in_the_way_and_what_would_help(shell: Shell) -> None:
    lead = shell.as_("lead")
    assert "no task is open" in lead.ok("work", "plan").err
    lead.ok("work", "add", "design")
    lead.ok("work", "add", "build", "--after", "design", "--lease", "src/a.py")
    lead.ok("work", "add", "types", "--lease", "src/")
    lead.ok("work", "add", "names", "--lease", "src/a.py")
    lead.ok("work", "add", "train", "--tag", "gpu")
    lead.ok("work", "add", "ship", "--after", "licence")
    said = lead.ok("work", "plan", "--agents", "6").out
    assert "6 open tasks (4 available, 2 blocked)\n" in said
    assert "2 agents can be busy now, 2 at most" in said
    assert "6 agents: 4 would be idle now. To keep them busy:" in said
    assert "finish design first: 1 task waits for it" in said
    assert "split or narrow what changes src: 1 ready task waits for it" in said
    lead.ok("work", "cancel", "train")
    rest = lead.ok("work", "plan").out
    assert "5 open tasks (3 available, 2 blocked), besides 1 cancelled\n" in rest
    assert "Longest chain: 2 tasks, 2 steps\n  design → build\n" in said
    assert "ship waits for licence, which nobody has added" in said
    assert "train needs an agent that can do gpu; nobody here has said so" in said


def test_words_of_others_are_only_labels_in_the_graph(shell: Shell) -> None:
    lead = shell.as_("lead")
    hostile = 'a"] --> b; click b "javascript:alert(1)" <script>'
    lead.ok("work", "add", hostile, "--title", 'x"]:::stuck')
    lead.ok("work", "add", "after", "--after", hostile)
    lines = lead.ok("work", "plan", "--format", "mermaid").out.splitlines()
    assert lines[0] == "graph LR"
    node = r'  t\d+\["[^"<>\[\]]*(<br>[^"<>\[\]]*)?"\]:::\w+'
    assert re.fullmatch(node, lines[1])
    assert re.fullmatch(node, lines[2])
    assert lines[3] == "  t0 --> t1"
    assert all(line.startswith("  classDef ") for line in lines[4:])


def test_a_graph_of_many_is_cut_and_says_so(shell: Shell) -> None:
    for id in ("a", "b", "c"):
        shell.as_("lead").ok("work", "add", id)
    answer = shell.ok("work", "plan", "--format", "mermaid", "--limit", "2")
    assert answer.out.count(":::available") == 2
    assert "the first 2 of 3 open tasks" in answer.err
