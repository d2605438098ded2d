"""Build the site, and fail at any warning:

python -m docs.site [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(folder: Path) -> int:
    """Build the site into `folder`; 0 if nothing was wrong. Needs the extra `docs`."""
    from sphinx.cmd.build import main

    options = ["-b", "html", "-q", "-W", "--keep-going", "-n", "-E", "-d", f"{folder}.doctrees"]
    return int(main([*options, "-c", str(ROOT / "docs" / "site"), str(ROOT), str(folder)]))


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "site"))
