"""Composition: sources, engine and sinks put together, as the agent, as a replay and as rule tests."""
