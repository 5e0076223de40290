"""The commands, one file each: parse, wire, print."""

from nodeguard.cli import agent, demo, explain, replay, rules

COMMANDS = (agent, demo, rules, replay, explain)
"""Every command, in the order of ``--help``."""
