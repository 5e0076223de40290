"""Measurements: latency per hop, speed of replay, cost of the agent. They print figures and judge nothing."""
