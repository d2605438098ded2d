"""`python -m odradek`: the same as the console script."""

from __future__ import annotations

from odradek.cli import main

if __name__ == "__main__":
    main()
