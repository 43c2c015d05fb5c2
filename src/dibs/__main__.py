"""`python -m dibs`: the command line."""

from __future__ import annotations

import sys

from dibs.surfaces.cli.main import main

sys.exit(main())
