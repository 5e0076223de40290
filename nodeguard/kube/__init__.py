"""The Kubernetes API: one client with plain dictionaries, its fake, and the pure builders of what is written."""
