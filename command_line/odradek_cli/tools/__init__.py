"""Commands beside the broker: faults, generated files, a benchmark, tools of language models."""
