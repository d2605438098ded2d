"""Record batches, format version 2: headers, records, building, checking."""

from __future__ import annotations

from odradek_protocol.stored.control_marker import ControlType as ControlType

from .batch import MAX_SEQUENCE as MAX_SEQUENCE
from .batch import BatchError as BatchError
from .batch import BatchHeader as BatchHeader
from .batch import BodyNotDecompressed as BodyNotDecompressed
from .batch import CorruptBatch as CorruptBatch
from .batch import TruncatedBatch as TruncatedBatch
from .batch import UnsupportedMagic as UnsupportedMagic
from .batch import iter_batches as iter_batches
from .batch import next_sequence as next_sequence
from .batch import peek as peek
from .batch import previous_sequence as previous_sequence
from .batch import read_header as read_header
from .batch import read_header_alone as read_header_alone
from .batch import set_create_time as set_create_time
from .batch import set_log_append_time as set_log_append_time
from .batch import stamp as stamp
from .batch import update_crc as update_crc
from .batch import verify_crc as verify_crc
from .builder import BatchBuilder as BatchBuilder
from .builder import BuilderSealed as BuilderSealed
from .builder import EncodedRecords as EncodedRecords
from .builder import control_batch as control_batch
from .builder import recompress as recompress
from .builder import record_upper_bound as record_upper_bound
from .builder import rewrite_batch as rewrite_batch
from .builder import rewrite_columns as rewrite_columns
from .builder import simple_batch as simple_batch
from .layout import BATCH_HEADER as BATCH_HEADER
from .layout import HEADER_BYTES as HEADER_BYTES
from .layout import LOG_OVERHEAD_BYTES as LOG_OVERHEAD_BYTES
from .record import Headers as Headers
from .record import Record as Record
from .record import RecordColumns as RecordColumns
from .record import TimestampType as TimestampType
from .record import iter_records as iter_records
from .record import read_columns as read_columns
from .record import read_records as read_records
from .validation import RecordRules as RecordRules
from .validation import RecordsChecked as RecordsChecked
from .validation import validate_records as validate_records
