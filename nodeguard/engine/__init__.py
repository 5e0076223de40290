"""The judge. Pure: no I/O, no clock, no threads; ``Engine.step(now, batch)`` returns the transitions."""
