"""The APIs and versions that a broker answers and advertises: its own, or those of the broker that
it emulates."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.emulation.profiles import Profile
from odradek_protocol.keys import APIS, PRIVATE_KEYS, Api, ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import Versions
from odradek_protocol.schemas.init_producer_id import TWO_PHASE_COMMIT_SINCE


class ServedApi(NamedTuple):
    """An API with the versions that are answered and the versions that ApiVersions names (None if
    ApiVersions leaves the API out).

    The answered versions are the versions that this broker and the emulated broker have in common.
    If the emulated broker has only older versions of the API, no version is answered.
    """

    api: Api
    versions: Versions
    advertised: Versions | None


def served_apis(profile: Profile | None, *, two_phase_commit: bool) -> Mapping[int, ServedApi]:
    """The served APIs by key, in the order of the keys. `two_phase_commit`: true if the version of
    InitProducerId for prepared transactions is advertised."""
    if profile is None:
        return {
            key: ServedApi(
                api, api.versions, _own_advertised(api, two_phase_commit=two_phase_commit)
            )
            for key, api in APIS.items()
        }
    versions = profile.versions
    if versions is None:
        versions = {
            key: _own_advertised(api, two_phase_commit=False)
            for key, api in APIS.items()
            if key not in PRIVATE_KEYS
        }
    served = {key: _emulated(APIS[key], row) for key, row in versions.items()}
    for key in profile.unadvertised:
        served[key] = ServedApi(APIS[key], APIS[key].versions, None)
    return dict(sorted(served.items()))


def _own_advertised(api: Api, *, two_phase_commit: bool) -> Versions:
    if api.key is ApiKey.INIT_PRODUCER_ID and not two_phase_commit:
        return Versions(api.advertised.first, TWO_PHASE_COMMIT_SINCE - 1)
    return api.advertised


def _emulated(api: Api, row: Versions) -> ServedApi:
    ours = api.versions
    both = Versions(max(ours.first, row.first), min(ours.last, row.last))
    return ServedApi(api, both, row)
