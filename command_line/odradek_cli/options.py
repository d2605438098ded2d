"""Options and arguments of commands. A group of options that several commands share is a dataclass,
which a command has as one parameter.

    @dataclass(frozen=True)
    class HistoryOptions:
        bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
        limit: Limit = 10

    app = Commands(help="Explain what happened, in words.")

    @app.command()
    def group(group_id: GroupId, *, options: HistoryOptions) -> None: ...

Typer shows an option for each field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer
from typer.core import TyperGroup

_SUMMARY_MAX = 500


def option(words: str, text: str | None = None, complete: Any = None, **more: Any) -> Any:
    """An option, from its names and the placeholder of its value, as help shows them:
    `option("--topic -t TOPIC", "A topic; repeatable.", topic_names)`. `complete`: finds the values
    that a shell offers."""
    names = [word for word in words.split() if word.startswith("-")]
    placeholder = " ".join(words.split()[len(names) :]) or None
    return typer.Option(*names, metavar=placeholder, help=text, autocompletion=complete, **more)


def argument(placeholder: str, text: str | None = None, complete: Any = None, **more: Any) -> Any:
    """An argument; see `option`."""
    return typer.Argument(metavar=placeholder, help=text, autocompletion=complete, **more)


class _Summaries(TyperGroup):
    """A group of commands; its help has their whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands into the help text."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl(
                (name, command.get_short_help_str(_SUMMARY_MAX))
                for name, command in found.items()
                if command is not None and not command.hidden
            )


class Commands(typer.Typer):
    """A group of commands, whose functions may have groups of options as parameters."""

    def __init__(self, **more: Any) -> None:
        options: dict[str, Any] = {"no_args_is_help": True, "cls": _Summaries}
        super().__init__(**options | more)

    def command(self, *words: Any, **more: Any) -> Callable[[Callable[..., None]], Any]:
        """The decorator of a command."""
        register = super().command(*words, **more)
        return lambda command: register(_ungrouped(command))


def _ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclasses as parameters for typer. The settings of the
    client come last in help."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    if not groups:
        return command
    parameters = []
    for parameter in signature(command).parameters.values():
        group = groups.get(parameter.name)
        if group is None:
            hint = hints[parameter.name]
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hint))
        else:
            parameters += _parameters_of(group)
    parameters.sort(key=lambda each: each.name == "setting")

    @wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _parameters_of(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
        )
        for each in fields(group)
    ]
