from typing import Self

ABI: int
SOURCE_CRC: int

def parse(
    data: bytes, count: int, /
) -> (
    tuple[
        list[int],
        list[int] | None,
        list[bytes | None],
        list[bytes | None],
        dict[int, tuple[tuple[str, bytes | None], ...]],
    ]
    | None
): ...
def encode(
    rows: list[tuple[int, bytes | None, bytes | None, object]],
    header_blocks: dict[int, bytes],
    base_timestamp: int,
    /,
) -> bytes | None: ...
def scan(
    data: bytes | bytearray | memoryview, count: int, /
) -> tuple[int, int, int, int, int, int] | None: ...

class Rows:
    count: int
    size_bytes: int
    def __new__(cls, wanted: int, /) -> Self: ...
    def add(
        self,
        data: bytes,
        count: int,
        base_offset: int,
        last_offset_delta: int,
        base_timestamp: int,
        append_time: int | None,
        first: int,
        end: int,
        limit: int,
        /,
    ) -> int | None: ...
    def take(self) -> tuple[int, int, tuple[bytes | bytearray, ...]]: ...
