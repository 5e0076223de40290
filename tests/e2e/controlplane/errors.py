"""What can go wrong with the control plane itself."""


class ControlPlaneUnavailable(Exception):  # noqa: N818  # no error: something to skip on
    """This machine cannot have a control plane: one plain line that says how to get one."""


class ControlPlaneError(Exception):
    """The control plane was there and broke; carries the tail of the component's log."""
