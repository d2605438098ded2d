"""The settings of a client on the command line, from -X, from files and from the terminal."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from odradek_cli.commands import fail

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: The environment variable with the path of a file with settings of the client.
CONFIG_VARIABLE = "ODRADEK_COMMAND_CONFIG"
_FILE_BYTES_MAX = 1_048_576


def assignments(texts: list[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping. Ends the program if a text lacks the `=` or the key."""
    settings = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            fail(f"{option} {text!r} must be KEY=VALUE".lstrip(), 2)
        settings[key.strip()] = value.strip()
    return settings


def client_settings(
    bootstrap: str, given: list[str] | None, kind: str = "admin", *, ask: bool = True
) -> dict[str, Any]:
    """Keyword arguments for a client. Settings from -X override those from files. `kind`: "admin",
    "consumer" or "producer".

    Ends the program for a file that cannot be read, and for a text that is no assignment.

    If a user is named without a password, the terminal prompts for it, unless `ask` is false.
    """
    files = [os.environ[CONFIG_VARIABLE]] if os.environ.get(CONFIG_VARIABLE) else []
    files += [text for text in given or [] if _is_file(text)]
    settings: dict[str, Any] = {}
    for path in files:
        settings.update(_without_other_kinds(_named(_read(path)), kind))
    by_hand = [text for text in given or [] if not _is_file(text)]
    settings.update(_named(assignments(by_hand, "-X")))
    if bootstrap != DEFAULT_BOOTSTRAP or "bootstrap_servers" not in settings:
        settings["bootstrap_servers"] = bootstrap
    if ask and lacks_password(settings) and sys.stdin.isatty():
        asked = f"Password of {settings['sasl_username']}"
        settings["sasl_password"] = typer.prompt(asked, hide_input=True, err=True)
    return settings


def _is_file(text: str) -> bool:
    return "=" not in text


def _named(settings: dict[str, str]) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in settings.items()}


def _read(path: str) -> dict[str, str]:
    """Read a properties file in the form of Kafka's tools."""
    import javaproperties

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_FILE_BYTES_MAX)
        return dict(javaproperties.loads(text))
    except FileNotFoundError:
        fail(f"{path!r} must be KEY=VALUE, or the name of a file of such lines: there is none", 2)
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no file of settings"
        fail(f"cannot read the settings of the client in {path}: {why}", 2)


def _without_other_kinds(settings: dict[str, str], kind: str) -> dict[str, str]:
    """The settings without those that only other kinds of clients have, because the same file often
    has settings of several kinds."""
    from odradek_client.config.admin import AdminConfig
    from odradek_client.config.common import ClientConfig
    from odradek_client.config.consumer import ConsumerConfig
    from odradek_client.config.producer import ProducerConfig

    kinds: dict[str, type[ClientConfig]] = {
        "admin": AdminConfig,
        "consumer": ConsumerConfig,
        "producer": ProducerConfig,
    }
    others = {name for each in kinds.values() for name in each.rows()} - {*kinds[kind].rows()}
    return {name: value for name, value in settings.items() if name not in others}


def lacks_password(settings: dict[str, Any]) -> bool:
    """True if a user is named without a password."""
    return bool(settings.get("sasl_username")) and not (
        {"sasl_password", "sasl_jaas_config"} & settings.keys()
    )
