"""Fuzzing with coverage guidance for everything that the broker and its client read from the
network or from disk.

A target (`targets/*.py`) takes any bytes, lets the product read them, and fails unless the product
answers or raises one of its declared errors. `python -m tests.adversity.fuzz TARGET --minutes M`
lets atheris (libFuzzer) search for bytes that make a target fail, with limits on memory and time;
findings are minimised and kept in `found/TARGET/`. `tests/adversity/test_fuzz.py` needs no atheris:
it runs every target with the kept findings, and with some mutations that are the same on every run.
"""
