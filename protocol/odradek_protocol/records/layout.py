"""The layout of a record batch's header, format version 2: fields, offsets, bits (rule R-01).

Code that reads or writes single fields of a header uses the offsets and packers of this module. In
Kafka: `DefaultRecordBatch`.
"""

from __future__ import annotations

from itertools import accumulate
from struct import Struct as PackedStruct
from typing import Any

from construct import Int8sb, Int16sb, Int32sb, Int32ub, Int64sb, Struct

BATCH_HEADER: Any = Struct(
    "base_offset" / Int64sb,
    "batch_length" / Int32sb,
    "leader_epoch" / Int32sb,
    "magic" / Int8sb,
    "crc" / Int32ub,
    "attributes" / Int16sb,
    "last_offset_delta" / Int32sb,
    "base_timestamp" / Int64sb,
    "max_timestamp" / Int64sb,
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "base_sequence" / Int32sb,
    "record_count" / Int32sb,
)
"""The header's declaration; everything is big-endian.

::

     0        8       12       16  17      21    23       27
    +--------+--------+--------+---+-------+-----+--------+-- ...
    | base   | batch  | leader |mag| CRC-  |attr-| last   |
    | offset | length | epoch  |ic | 32C   |ibut.| offset |
    |        |        |        | 2 |       |     | delta  |
    +--------+--------+--------+---+-------+-----+--------+-- ...
             |<- batch_length counts from here   |
                                           |<- the CRC covers from here
         27       35       43       51     53       57      61
    ... --+--------+--------+--------+------+--------+-------+---------
          | base   | max    |producer|produc| base   |record | records,
          | time-  | time-  | id     |er    |sequence| count | perhaps
          | stamp  | stamp  |        |epoch |        |       | compressed
    ... --+--------+--------+--------+------+--------+-------+---------

    attributes:  15 ........ 7   6    5    4    3   2 1 0
                +-------------+----+----+----+----+-------+
                | unused, 0   |hori|ctrl|txn |time| codec |
                |             |zon |    |    |type|       |
                +-------------+----+----+----+----+-------+
      codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
      time type: 0 CreateTime, 1 LogAppendTime (R-03)
      txn: transactional   ctrl: control batch (R-30)
      horizon: base timestamp is the delete horizon (KIP-534)
"""

(
    BASE_OFFSET_AT,
    LENGTH_AT,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    CRC_AT,
    ATTRIBUTES_AT,
    LAST_OFFSET_DELTA_AT,
    BASE_TIMESTAMP_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    PRODUCER_EPOCH_AT,
    BASE_SEQUENCE_AT,
    RECORD_COUNT_AT,
    HEADER_BYTES,
) = accumulate((int(field.sizeof()) for field in BATCH_HEADER.subcons), initial=0)

LOG_OVERHEAD_BYTES = LEADER_EPOCH_AT
"""Base offset and length: what precedes the bytes that the length counts."""
CRC_START = ATTRIBUTES_AT
"""The checksum covers everything from the attributes on; offset and leader epoch stay free
(R-01)."""

# The same header for frequently called code; tests compare it with the declaration. Code that calls
# a packer's method for each batch binds the method to a name first: a call of an imported object's
# method takes 25 ns more.
PACKED_HEADER = PackedStruct(">qiibIhiqqqhii")
PACKED_FRONT = PackedStruct(">qiibI")
"""The fields outside of the checksum, and the checksum."""
PACKED_COVERED = PackedStruct(">hiqqqhii")
"""The fields under the checksum, before the records."""
PACKED_EXTENT = PackedStruct(">qi11xi8xq")
"""Base offset, batch length, last offset delta, max timestamp: where a batch lies in its log."""
PACKED_PRODUCER = PackedStruct(">16xb4xh20xqh")
"""Magic, attributes, producer id, producer epoch: whose batch it is."""
PACKED_LENGTH_TO_MAGIC = PackedStruct(">iib")

MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
