"""Tests of replay and rule tests."""
