"""Names for people and for Kubernetes."""


def camel_case(rule: str) -> str:
    """A rule's name as Kubernetes writes reasons: ``gpu-lost`` is ``GpuLost``."""
    return "".join(word[:1].upper() + word[1:] for word in rule.split("-"))
