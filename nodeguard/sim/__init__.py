"""A simulated node and API server: what the demo and the tests run against instead of hardware and a cluster."""
