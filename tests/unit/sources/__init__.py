"""Tests of nodeguard.sources."""
