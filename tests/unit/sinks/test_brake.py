"""The brake as the agent asks for it: no answer holds nobody."""

import pytest

from nodeguard.kube.brake import Brake, collection, fetch, held, path
from nodeguard.kube.fake import FakeApi
from nodeguard.model.errors import ApiError, ApiRefused, ApiUnavailable
from nodeguard.sinks.brake import read

HASH = "0123456789abcdef"


@pytest.mark.parametrize("error", [ApiUnavailable("no answer"), ApiRefused("no right", status=403)])
def test_no_answer_holds_nobody(error: ApiError) -> None:
    """The agent goes on and taints; a person who asks is told that it cannot be known."""
    api = FakeApi()
    api.add(path("nodeguard"), {"data": {"all": "*"}})
    assert held(read(api, "nodeguard"), "gpu-lost", HASH)
    api.fail("GET", collection("nodeguard"), error, times=2)
    assert read(api, "nodeguard") == Brake()
    with pytest.raises(type(error)):
        fetch(api, "nodeguard")
