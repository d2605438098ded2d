"""`python -m odradek`: runs the console script `odradek`."""

from __future__ import annotations

from odradek_cli import main

if __name__ == "__main__":
    main()
