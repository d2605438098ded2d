"""The public package: its names, and the cost of its import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import odradek

HEAVY = {"asyncio", "odradek_client", "odradek_protocol", "odradek_broker", "construct", "typer"}


def test_importing_odradek_imports_no_heavy_module() -> None:
    code = "import sys, odradek; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    bare = subprocess.run(
        [sys.executable, "-c", code.replace(", odradek", "")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not (set(done.stdout.split()) - set(bare.stdout.split())) & HEAVY


def test_a_client_without_sasl_does_not_import_http() -> None:
    code = "import sys, odradek.sync; print(*sorted({'http.client', 'email', 'odradek_client.sasl.login'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", [n for n in odradek.__all__ if n not in {"testing"}])
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(odradek, name) is getattr(odradek, name)
    assert name in dir(odradek)


def test_the_version_is_a_number() -> None:
    assert odradek.__version__[0].isdigit()


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Porducer"):
        odradek.Porducer  # noqa: B018


def test_dir_lists_only_public_names() -> None:
    assert dir(odradek) == sorted(odradek.__all__)
