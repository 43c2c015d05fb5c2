"""`dibs port`: a port that is free for whoever asks, and stays theirs."""

from __future__ import annotations

import os
import socket
from itertools import count

import pytest

from tests.surfaces.shell import Shell, finish

# Each worker has ports of its own, below those that the system hands out.
LOWS = count(20_000 + os.getpid() % 40 * 300, 3)


@pytest.fixture
def free() -> int:
    """The first of three ports in a row on which nothing listens."""
    return next(low for low in LOWS if all(map(is_free, (low, low + 1, low + 2))))


def is_free(port: int) -> bool:
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def three(low: int) -> tuple[str, str]:
    return "--range", f"{low}-{low + 2}"


def test_it_prints_the_number_and_leases_it(on_each: Shell, free: int) -> None:
    alice = on_each.as_("alice")
    assert alice.ok("port", "web", *three(free)).out == f"{free}\n"
    (lease,) = alice.json("leases")
    assert (lease["resource"], lease["agent"], lease["note"]) == (f"port:{free}", "alice", "web")
    assert 1790_000 < lease["expires_in_ms"] <= 1800_000


def test_the_same_name_is_the_same_port_and_renews_it(shell: Shell, free: int) -> None:
    alice = shell.as_("alice")
    first = alice.json("port", "web", "--ttl", "1m", *three(free))
    again = alice.json("port", "web", "--ttl", "1h", *three(free))
    assert first["port"] == again["port"] == free
    assert first["lease"]["epoch"] == again["lease"]["epoch"]
    assert again["lease"]["expires_in_ms"] > 3_500_000
    assert alice.json("port", "api", *three(free))["port"] == free + 1


def test_without_a_name_each_call_gives_another(shell: Shell, free: int) -> None:
    alice = shell.as_("alice")
    ports = [alice.json("port", *three(free))["port"] for _ in range(3)]
    assert ports == [free, free + 1, free + 2]


def test_others_get_other_ports_for_the_same_name(shell: Shell, free: int) -> None:
    assert shell.as_("alice").json("port", "web", *three(free))["port"] == free
    assert shell.as_("bob").json("port", "web", *three(free))["port"] == free + 1


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_port_on_which_something_listens_is_passed_over(
    shell: Shell, free: int, address: str
) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((address, free))
        server.listen()
        assert shell.as_("alice").json("port", *three(free))["port"] == free + 1


def test_a_port_that_was_given_back_is_free_for_others(shell: Shell, free: int) -> None:
    alice = shell.as_("alice")
    alice.ok("port", *three(free))
    alice.ok("release", f"port:{free}")
    assert shell.as_("bob").json("port", *three(free))["port"] == free


def test_when_all_are_taken_it_says_so(shell: Shell, free: int) -> None:
    alice = shell.as_("alice")
    for _ in range(3):
        alice.ok("port", *three(free))
    answer = shell.as_("bob")("port", *three(free))
    assert answer.code == 1
    assert f"no port from {free} to {free + 2} is free" in answer.err


def test_asked_at_once_nobody_gets_the_same(shell: Shell, free: int) -> None:
    running = [shell.as_(f"agent{n}").start("port", "web", *three(free)) for n in range(3)]
    answers = [finish(process) for process in running]
    assert all(answer.code == 0 for answer in answers), answers
    assert sorted(int(answer.out) for answer in answers) == [free, free + 1, free + 2]


def test_another_range_is_another_port(shell: Shell, free: int) -> None:
    alice = shell.as_("alice")
    assert alice.json("port", "web", "--range", f"{free}-{free}")["port"] == free
    assert alice.json("port", "web", "--range", f"{free + 1}-{free + 1}")["port"] == free + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--range", "3000"), "'3000' is not a range of ports"),
        (("--range", "4000-3000"), "'4000-3000' is not a range of ports"),
        (("--range", "1-70000"), "'1-70000' is not a range of ports"),
        (("--range",), "--range needs a value"),
        (("--ttl", "soon"), "not a time"),
        (("--rage", "1-2"), "did you mean --range?"),
        (("web", "api"), "'api' is an extra word"),
    ],
)
def test_what_makes_no_sense_is_refused(shell: Shell, words: tuple[str, ...], said: str) -> None:
    answer = shell.as_("alice")("port", *words)
    assert answer.code == 2
    assert said in answer.err


def test_it_needs_somebody_to_lease_it(shell: Shell) -> None:
    assert "who are you?" in shell("port").err


@pytest.mark.parametrize("name", ["build:", "db:migrations"])
def test_what_collides_outside_the_tree_has_a_name(shell: Shell, name: str) -> None:
    shell.as_("alice").ok("claim", name)
    answer = shell.as_("bob")("claim", name)
    assert answer.code == 1
    assert f"{name} is held by alice" in answer.err
    assert shell.as_("bob")("claim", f"{name}x").code == 0
