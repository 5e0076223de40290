"""What writes to the world outside: the Node, Events, metrics, probes and the log."""
