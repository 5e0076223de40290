"""The marks that the loop and people leave on objects: annotations, labels and the loop's taint."""

TAINT_KEY = "nodeguard.io/remediation"
"""With the state as its value and the effect NoSchedule, from ``quarantined`` until the node is given back."""

TAINT_EFFECT = "NoSchedule"

RECORD = "nodeguard.io/remediation"
"""Annotation of a Node: what the loop does with it, see :mod:`.record`."""

HOLD = "nodeguard.io/hold"
"""Annotation of a Node by a person, an RFC 3339 time: nothing more is begun here until then."""

RELEASE = "nodeguard.io/release"
"""Annotation of a Node by a person, ``true``: give the node back now. The loop takes it away again."""

SILENCE = "nodeguard.io/silence"
"""Annotation of a Node by a person, ``<rule>:<RFC 3339 time>[, …]``: do not act on this rule's faults until then."""

RESTART_LABEL = "nodeguard.io/restart"
"""Label of an owner that the loop has suspended; its value is the restart's identity."""

RESTART = "nodeguard.io/restart"
"""Annotation of the same owner: which nodes it is for, which step is next and until when."""
