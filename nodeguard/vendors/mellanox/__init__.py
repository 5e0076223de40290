"""Mellanox, now NVIDIA, network adapters: the mlx5 driver."""
