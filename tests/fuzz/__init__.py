"""Fuzzing of every parser: ``python -m tests.fuzz`` (see :mod:`.__main__`); what it found stands in the unit tests."""
