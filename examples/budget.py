"""Two agents, one budget of 10,000: first without dibs, then with it.

Each wants to pay 7,500, and both look before either pays. They are real processes, and the
collision is forced, so that it shows every time. All files are in a temporary folder.

    make example
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
    print("Two agents share a budget of 10,000. Each wants to pay 7,500.", flush=True)
    print("\nWITHOUT DIBS: each reads a file, decides, and writes it back.\n", flush=True)
    run("budget_without.py")
    print("\nWITH DIBS: each says which version it read; the store lets one win.\n", flush=True)
    run("budget_with.py")
    print("\nRead on in README.md; the two scripts are in examples/.")


if __name__ == "__main__":
    main()
