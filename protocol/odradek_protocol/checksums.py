"""CRC-32C (Castagnoli), the checksum of record batches, in one place.

Any buffer is read where it lies, without a copy; hardware instructions are used where they exist.
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c

Buffer = bytes | bytearray | memoryview


def crc32c(buffer: Buffer, crc: int = 0) -> int:
    """The CRC-32C of `buffer` as an unsigned 32-bit integer.

    `crc` is the value of what came before, so that pieces can be summed one after another:
    `crc32c(b, crc32c(a)) == crc32c(a + b)`.
    """
    checksum: int = _crc32c(buffer, crc)
    return checksum
