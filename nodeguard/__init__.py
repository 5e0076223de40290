"""nodeguard keeps long training jobs alive on clusters whose hardware fails every few hours."""

__version__ = "0.1.0"
