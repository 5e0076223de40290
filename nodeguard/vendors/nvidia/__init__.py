"""NVIDIA: what its kernel driver prints, and what its numbers mean."""
