"""Forty orders, four workers: first without dibs, then with it, where one worker is killed.

The workers are real processes, and the collisions are forced, so that they show every time. All
files are in a temporary folder.

    python examples/orders.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(script: str) -> None:
    with tempfile.TemporaryDirectory(prefix="dibs-example-") as folder:
        here = {**os.environ, "HOME": folder}  # dibs notes there which stores are yours
        subprocess.run([sys.executable, HERE / script, folder], cwd=folder, env=here, check=True)


def main() -> None:
    print("Four workers ship 40 orders.", flush=True)
    print("\nWITHOUT DIBS: look for an open order, ship it, cross it off.\n", flush=True)
    run("orders_without.py")
    print("\nWITH DIBS: the store gives each order to one worker.\n", flush=True)
    run("orders_with.py")


if __name__ == "__main__":
    main()
