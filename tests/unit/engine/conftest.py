"""Every test that makes its engine through ``rig`` runs twice: as it is, and with a restart after every step."""

from functools import partial

import pytest

from .rig import MakeRig, Rig


@pytest.fixture(params=[False, True], ids=["running", "restarted"])
def rig(request: pytest.FixtureRequest) -> MakeRig:
    """Makes a rig."""
    return partial(Rig, restarts=request.param)
