"""Tests of the simulated parts."""
