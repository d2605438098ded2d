from typing import Self, TypeAlias

from .batch import Buffer

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
def scan(
    data: bytes | bytearray | memoryview, count: int, /
) -> tuple[int, int, int, int, int, int] | None: ...
def check_batch(
    batch: bytes | bytearray | memoryview,
    bytes_max: int,
    earliest_ms: int,
    latest_ms: int,
    keys: bool,
    /,
) -> tuple[int, ...] | None: ...
def read_one_batch(
    frame: memoryview, /
) -> (
    tuple[
        int,
        int,
        str | None,
        str | None,
        int,
        int,
        str | bytes,
        bytes,
        int,
        int,
        memoryview,
    ]
    | None
): ...
def split_lines(data: bytes, delimiter: bytes, /) -> tuple[bytes, bytes, int] | None: ...
def join_lines(values: Buffer, ends: Buffer, delimiter: bytes, /) -> bytes | None: ...

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

Cells: TypeAlias = tuple[bool, int, Buffer | None, Buffer | None, Buffer | None]

class Columns:
    def __new__(
        cls,
        count: int,
        key: Cells | None,
        value: Cells | None,
        headers: tuple[int, Cells, Cells, Cells, Cells] | None,
        timestamps: Cells | None,
        partitions: Cells | None,
        /,
    ) -> Self: ...
    def check(self, max_bytes: int, partitions: int, /) -> tuple[int, int, int] | None: ...
    def place(self, partitions: int, /) -> tuple[bytes, bytes | None] | None: ...
    def encode(
        self, order: Buffer | None, start: int, end: int, limit_bytes: int, now_ms: int, /
    ) -> tuple[bytes, int, int, int] | None: ...

class BatchWriter:
    count: int
    estimated_bytes: int
    base_timestamp: int
    max_timestamp: int
    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        header_block: bytes | None,
        limit_bytes: int,
        /,
    ) -> int: ...
    def body(self) -> bytes: ...
    def seal(self) -> bytes: ...
    def timestamps(self) -> bytes: ...

class Place:
    owner: object
    index: int
    def __new__(cls, owner: object, index: int) -> Self: ...
    @classmethod
    def at(cls, owner: object, index: int, /) -> Self: ...
    def track(self) -> None: ...
