"""Tests of the remediation loop."""
