"""The levels of a broker's loggers. The root logger is the only one that Kafka and our broker both
have.

All scenarios share the logger's level: only one of them changes it, and the others do not read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.oracle.script import Ask, scenarios_of

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_LOGGER = 8
_LEVELS = ("DEBUG", "ERROR", "FATAL", "TRACE", "WARN", "INFO")
_NO_LEVELS = ("debug", "OFF", "ALL", "WARNING", "CRITICAL", "", " INFO", "20")
_OTHER_IDS = ("", "0", "2", "x", "-1", " 1", "1_", "01", "+1", "99999999999")


def _described(name: str = "1", keys: Sequence[str] | None = ("root",), **more: Any) -> Ask:
    asked = {"resource_type": _LOGGER, "resource_name": name, "configuration_keys": keys}
    return Ask("DescribeConfigs", {"resources": [asked], **more})


def _unseen(*arguments: Any, **more: Any) -> Ask:
    ask = _described(*arguments, **more)
    return Ask(ask.api, ask.body, ignore=("results.*.configs.*.value",))


def _change(
    *changes: tuple[str, int, str | None], name: str = "1", times: int = 1, **more: Any
) -> Ask:
    resource = {
        "resource_type": _LOGGER,
        "resource_name": name,
        "configs": [{"name": k, "config_operation": o, "value": v} for k, o, v in changes],
    }
    return Ask("IncrementalAlterConfigs", {"resources": [resource] * times, **more})


SCENARIOS = scenarios_of(
    {
        ("describe-loggers", "DescribeConfigs"): [
            _unseen(),
            _unseen(include_synonyms=True, include_documentation=True),
            _unseen(keys=["root", "no.such", "", "root"]),
            _unseen(keys=["no.such"]),
            *(_unseen(name) for name in _OTHER_IDS),
            Ask(
                "DescribeConfigs",
                {"resources": [{"resource_type": _LOGGER, "resource_name": "1"}]},
                ignore=("results.*.configs",),
            ),
        ],
        ("alter-loggers", "IncrementalAlterConfigs", "1"): [
            *(ask for level in _LEVELS for ask in (_change(("root", _SET, level)), _described())),
            _change(("root", _SET, "DEBUG"), validate_only=True),
            _change(("root", _SET, "DEBUG"), ("no.such", _SET, "INFO")),
            _change(("root", _SET, "DEBUG"), times=2),
            _change(),
            _described(),
        ],
        ("alter-loggers-badly", "IncrementalAlterConfigs"): [
            *(_change(("root", _SET, level)) for level in _NO_LEVELS),
            _change(("root", _SET, None)),
            *(_change(("root", _DELETE, level)) for level in (None, "INFO")),
            *(_change((name, _SET, "INFO")) for name in ("no.such", "", "ROOT")),
            _change(("no.such", _DELETE, None)),
            *(_change(("root", kind, "INFO")) for kind in (_APPEND, _SUBTRACT)),
            _change(("root", _SET, "DEBUG"), ("root", _SET, "ERROR")),
            *(
                _change(("root", _SET, "INFO"), name=name)
                for name in ("", "0", "2", "x", "-1", " 1")
            ),
        ],
        ("replace-loggers", "AlterConfigs"): [
            Ask(
                "AlterConfigs",
                {
                    "resources": [
                        {
                            "resource_type": _LOGGER,
                            "resource_name": "1",
                            "configs": [{"name": "root", "value": "INFO"}],
                        }
                    ]
                },
            )
        ],
    }
)
