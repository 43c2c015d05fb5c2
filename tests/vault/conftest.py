"""A user in a fresh repository, as for the surfaces."""

from __future__ import annotations

from tests.surfaces.conftest import daemon_url, on_each, pytest_generate_tests, shell

__all__ = ["daemon_url", "on_each", "pytest_generate_tests", "shell"]
