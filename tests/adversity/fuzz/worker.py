"""The process in which atheris runs a target: `python -m tests.adversity.fuzz.worker NAME SECONDS
CORPUS`.

The worker adds coverage counters to the product's code, including generated decoders, and continues
after a finding. A crash of the interpreter, a hang or too much memory ends the worker.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import structlog
from tests.adversity.fuzz.findings import Findings
from tests.adversity.fuzz.limits import check_cheaply, limit_address_space
from tests.adversity.fuzz.target import FOLDER, Target, load

_PRODUCT = ["odradek_protocol", "odradek_broker", "odradek_client"]
#: The wall-clock limit for one input: after it libFuzzer ends the process and keeps the input.
_HANG_S = 300
_RSS_MB = 2048


def _count_in_generated_code(atheris: Any) -> None:
    """Add coverage counters to decoders and encoders. The import hook does not see these, because
    they are generated at run time."""
    from odradek_protocol.codec.source import FunctionSource

    plain = FunctionSource.function

    def counted(self: FunctionSource, signature: str) -> Any:
        return atheris.instrument_func(plain(self, signature))

    FunctionSource.function = counted  # type: ignore[method-assign]


def _import(atheris: Any, name: str) -> Target:
    with atheris.instrument_imports(include=_PRODUCT, enable_loader_override=False):
        import odradek_protocol.codec

        assert odradek_protocol.codec
        _count_in_generated_code(atheris)
        return load(name)


def run(name: str, seconds: int, corpus: Path) -> None:
    """Fuzz for that many seconds; does not return."""
    import atheris

    limit_address_space()
    # Inputs cause thousands of warnings a second.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    target = _import(atheris, name)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:05d}").write_bytes(seed[: target.input_bytes_max])
    findings = Findings(name, target)

    def try_one(data: bytes) -> None:
        try:
            check_cheaply(target, data)
        except Exception as problem:  # noqa: BLE001 - every exception is a finding
            findings.add(data, problem)

    artifacts = FOLDER / "found" / name
    artifacts.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={target.input_bytes_max}",
        f"-timeout={_HANG_S}",
        f"-report_slow_units={_HANG_S}",
        f"-rss_limit_mb={_RSS_MB}",
        f"-artifact_prefix={artifacts}/",
        "-print_final_stats=1",
        "-use_value_profile=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[1] / "support"))
    run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
