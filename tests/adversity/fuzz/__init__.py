"""Fuzzing with coverage guidance: whatever the broker and its client read, from the wire or from
disk.

A target (`targets/*.py`) takes any bytes, has the product read them, and raises if it does anything
but answer or refuse with one of its declared errors. `python -m tests.adversity.fuzz TARGET
--minutes M` has atheris (libFuzzer) look for such bytes, under limits of memory and time; what it
finds is made small and kept in `found/TARGET/`. `tests/adversity/test_fuzz.py` gives every target
what is kept there, and a short run of mutations that are the same each time, without atheris.
"""
