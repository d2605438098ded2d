"""Threads that write into buffers while the compiled record codec reads them.

The codec must refuse or read the data, but never access memory beyond a buffer. A thread that reads
from a file into a buffer does so without the GIL, in the middle of any compiled call. The test runs
its program in a separate process, because an access out of bounds may end the process.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import budget
import record_codecs

PROGRAM = r"""
import os, random, struct, sys, tempfile, threading
import record_codecs

CODEC = record_codecs.compiled()
ROWS, DATA_BYTES, IMAGES, CALLS = 2000, 64_000, 8, int(sys.argv[2])
chance = random.Random(7)
stop = threading.Event()
sys.setswitchinterval(1e-6)

def numbers(values):
    return struct.pack(f"<{len(values)}i", *values)

def ends(last):
    return numbers([0, *sorted(chance.randrange(last + 1) for _ in range(ROWS - 1)), last])

def rows():
    return numbers(chance.sample(range(ROWS), ROWS))

def rewritten(image):
    '''A buffer into which a thread reads one image after the other, all of one size.'''
    images = [image() for _ in range(IMAGES)]
    target, file = bytearray(images[0]), tempfile.TemporaryFile()
    file.write(b"".join(images))
    file.flush()

    def read():
        index = 0
        while not stop.is_set():
            os.preadv(file.fileno(), [target], index % IMAGES * len(target))
            index += 1

    threading.Thread(target=read, daemon=True).start()
    return target

data = os.urandom(DATA_BYTES)
cells = lambda: (False, 0, None, rewritten(lambda: ends(DATA_BYTES)), data)
lists = (False, 0, None, rewritten(lambda: ends(ROWS)), None)
headers = (ROWS, lists, (False, 0, None, None, None), cells(), cells())
columns = CODEC.Columns(ROWS, cells(), cells(), headers, None, None)
order = rewritten(rows)
def body():
    '''Records whose values have any length, so that no record of another image begins where one of
    this image does; all images have a size above which a scan runs without the GIL.'''
    parts, left = [], SCANNED_BYTES
    while left > 200:
        size = chance.randrange(50)
        parts.append(bytes([2 * (size + 6), 0, 0, 0, 1, 2 * size]) + bytes(size) + b"\0")
        left -= len(parts[-1])
    return b"".join(parts) + bytes(left)

SCANNED_BYTES = 3 << 20
bodies = rewritten(body) if sys.argv[1] == "scan" else None
line_ends = rewritten(lambda: ends(chance.choice((DATA_BYTES, 8 * DATA_BYTES))))
call = {
    "encode": lambda: columns.encode(order, 0, ROWS, 1 << 30, 5),
    "check": lambda: columns.check(1 << 20, 3),
    "place": lambda: columns.place(7),
    "scan": lambda: CODEC.scan(bodies, chance.randrange(1, SCANNED_BYTES // 7)),
    "join_lines": lambda: CODEC.join_lines(8 * data, line_ends, b"\n"),
}[sys.argv[1]]
kinds = {type(call()) for _ in range(CALLS)}
stop.set()
assert kinds <= {tuple, bytes, type(None)}, kinds
"""


@pytest.mark.full
@pytest.mark.skipif(
    not hasattr(os, "preadv"), reason="this system cannot read a file into a buffer at a place"
)
@pytest.mark.parametrize(
    ("call", "times"),
    budget.of_which(
        [("encode", 600), ("check", 2000), ("place", 2000), ("scan", 600), ("join_lines", 4000)],
        [("check", 2000)],
    ),
)
def test_buffers_changed_by_another_thread_are_not_overrun(call: str, times: int) -> None:
    record_codecs.twin("compiled")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, call, str(times)],
        env={**os.environ, "PYTHONPATH": os.path.dirname(record_codecs.__file__)},
        timeout=120,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
