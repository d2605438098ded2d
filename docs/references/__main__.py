"""Write every file that is made from a table of settings, or from docstrings:

python -m docs.references
"""

from __future__ import annotations

from pathlib import Path

from docs.references import admin, client_keywords, client_settings, configuration, errors

ROOT = Path(__file__).resolve().parents[2]


def files() -> dict[Path, str]:
    """Each file that is made, with its text."""
    return {
        ROOT / "docs" / "operate" / "configuration.md": configuration.page(),
        ROOT / "docs" / "use" / "client-settings.md": client_settings.page(),
        ROOT / "docs" / "use" / "admin-reference.md": admin.page(),
        ROOT / "docs" / "use" / "errors.md": errors.page(),
        ROOT / "client" / "odradek_client" / "config" / "keywords.py": client_keywords.module(),
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, "utf-8")
