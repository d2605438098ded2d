"""Write every drawn file of the documents:

python -m docs.drawings
"""

from __future__ import annotations

from pathlib import Path

from docs.drawings import parts, states

DOCS = Path(__file__).resolve().parents[1]


def files() -> dict[Path, str]:
    """Each file that is drawn, with its text."""
    return {
        DOCS / "drawings" / "parts.svg": parts.drawing(),
        DOCS / "understand" / "states.md": states.page(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
