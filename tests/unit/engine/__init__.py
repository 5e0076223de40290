"""Tests of the engine, through batches and transitions only."""
