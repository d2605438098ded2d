"""The features of the cluster: ApiVersions and UpdateFeatures.

All scenarios are played at the same time, so none may change a level; `test_kafka_features.py`
changes levels.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.script import Ask, Receive, Scenario, Send, scenarios_of

_SOFTWARE = {"client_software_name": "oracle", "client_software_version": "1.0"}

_UPGRADE, _SAFE, _UNSAFE = 1, 2, 3
_TRANSACTIONS, _METADATA = "transaction.version", "metadata.version"
_LEFT_OUT = (
    "eligible.leader.replicas.version",
    "kraft.version",
    "share.version",
    "streams.version",
)
#: The feature levels of release 4.3.
_RELEASE = (
    *((_METADATA, 30, _UPGRADE), (_TRANSACTIONS, 2, _UPGRADE), ("group.version", 1, _UPGRADE)),
    *((name, 1, _UPGRADE) for name in _LEFT_OUT),
)


def _update(*updates: tuple[str, int, int], **more: Any) -> Ask:
    wanted = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind}
        for name, level, kind in updates
    ]
    return Ask("UpdateFeatures", {"timeout_ms": 10_000, "feature_updates": wanted, **more})


def _check(*updates: tuple[str, int, int]) -> Ask:
    return _update(*updates, validate_only=True)


_UPDATES = scenarios_of(
    {
        ("update-features-to-the-same", "UpdateFeatures"): [
            _update(),
            _update((_TRANSACTIONS, 2, _UPGRADE)),
            _update((_TRANSACTIONS, 2, _UPGRADE), ("group.version", 1, _UPGRADE)),
            _update((_METADATA, 30, _UPGRADE)),
            _update((_TRANSACTIONS, 2, _UPGRADE), timeout_ms=0),
            _update((_TRANSACTIONS, 2, _UPGRADE), timeout_ms=-1),
            _update(*[(_TRANSACTIONS, 2, _UPGRADE)] * 20),
        ],
        ("update-features-to-levels-that-are-not-there", "UpdateFeatures"): [
            _update(("no.such", 1, _UPGRADE)),
            _update(("no.such", 0, _UPGRADE)),
            _update(("", 1, _UPGRADE)),
            _update((_TRANSACTIONS, 3, _UPGRADE)),
            _update((_TRANSACTIONS, -1, _UPGRADE)),
            _update((_METADATA, 31, _UPGRADE)),
            _update((_METADATA, 6, _UPGRADE)),
            _update((_METADATA, 0, _UPGRADE)),
            _update((_TRANSACTIONS, 2, _UPGRADE), ("no.such", 1, _UPGRADE)),
            _update(("no.such", 1, _UPGRADE), (_TRANSACTIONS, 2, _UPGRADE)),
        ],
        ("update-features-down-without-saying-so", "UpdateFeatures"): [
            *(_update((_TRANSACTIONS, level, _UPGRADE)) for level in (1, 0)),
            _update((_METADATA, 29, _UPGRADE)),
            _update((_TRANSACTIONS, 2, _UPGRADE), (_TRANSACTIONS, 0, _UPGRADE)),
            _update((_TRANSACTIONS, 0, _UPGRADE), (_TRANSACTIONS, 2, _UPGRADE)),
        ],
        ("update-features-allow-downgrade", "UpdateFeatures", "0"): [
            Ask(
                "UpdateFeatures",
                {
                    "feature_updates": [
                        {"feature": name, "max_version_level": level, "allow_downgrade": True}
                    ]
                },
            )
            for name, level in ((_TRANSACTIONS, 1), (_TRANSACTIONS, 0), (_METADATA, 29))
        ],
        ("update-features-checked-only", "UpdateFeatures", "1-2"): [
            *(
                _check((name, level, kind))
                for name, level in (
                    *((_TRANSACTIONS, 2), (_TRANSACTIONS, 1), (_TRANSACTIONS, 0)),
                    *((_METADATA, 30), (_METADATA, 29), (_METADATA, 7)),
                    *(("group.version", 0), ("no.such", 0), ("no.such", 1)),
                )
                for kind in (_UPGRADE, _SAFE, _UNSAFE, 0, 4, -1)
            ),
            _check((_TRANSACTIONS, 0, _UPGRADE), (_TRANSACTIONS, 1, _SAFE)),
            _check((_TRANSACTIONS, 1, _SAFE), (_TRANSACTIONS, 0, _UPGRADE)),
            _check((_TRANSACTIONS, 1, _SAFE), ("group.version", 0, _UNSAFE)),
            _check((_TRANSACTIONS, 1, _SAFE), ("no.such", 0, _UNSAFE)),
        ],
        # The requests of `kafka-features upgrade --release-version` for this release and for
        # others, and requests with wrong levels.
        ("update-features-of-a-release-checked-only", "UpdateFeatures", "1-2"): [
            _check(*_RELEASE),
            _check(*reversed(_RELEASE)),
            *(_check(*_RELEASE, (_METADATA, level, _UPGRADE)) for level in (29, 31)),
            *(
                _check(*_RELEASE, (name, level, kind))
                for name in _LEFT_OUT
                for level, kind in ((2, _UPGRADE), (-1, _UPGRADE), (1, 0), (1, 4))
            ),
            _check(*_RELEASE, ("no.such", 1, _UPGRADE)),
            _check(*((name, level, _SAFE) for name, level, _ in _RELEASE), (_METADATA, 29, _SAFE)),
        ],
        ("update-features-pipelined", "UpdateFeatures"): [
            Send(_update((_TRANSACTIONS, 2, _UPGRADE))),
            Send(_update(("no.such", 1, _UPGRADE))),
            Send(_update()),
            *[Receive()] * 3,
        ],
    }
)

SCENARIOS = [
    *_UPDATES,
    Scenario(
        "features",
        "ApiVersions",
        [Ask("ApiVersions", _SOFTWARE, ignore=("api_keys", "finalized_features_epoch"))],
    ),
]
