"""Tests against a real control plane: etcd, API server, scheduler, controller manager."""
