"""Frozen values that the parts of nodeguard hand to each other. Standard library only; imports nothing of ours."""
