"""`pytest --portable`: the tests and their children run without what only Linux has.

The calls fail in the C library, so nothing that dibs does can get round that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
PRELOAD = "LD_PRELOAD"
BUILT = "not_linux.so"


def denied() -> dict[str, str]:
    """What a process needs in its environment to be denied the same as this one."""
    return {PRELOAD: os.environ[PRELOAD]} if is_denied() else {}


def all_of_linux() -> dict[str, str]:
    """The environment of a process that is not of dibs."""
    return {name: value for name, value in os.environ.items() if not (name == PRELOAD and denied())}


def is_denied() -> bool:
    return BUILT in os.environ.get(PRELOAD, "")


def deny_linux(config: pytest.Config) -> None:
    if is_denied() or sys.platform != "linux":
        return
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise pytest.UsageError("--portable needs a C compiler, to deny system calls with")
    folder = Path(tempfile.mkdtemp(prefix="dibs-portable-"))
    library = folder / BUILT
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True
    )
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    os.environ[PRELOAD] = str(library)
    try:
        words = [sys.executable, "-m", "pytest", *config.invocation_params.args]
        code = subprocess.run(words, check=False).returncode
    finally:
        shutil.rmtree(folder)
    os._exit(code)
