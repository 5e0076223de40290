"""Recordings: what sources read, kept as JSON Lines or a YAML list, turned back into Batches."""
