"""The RDMA source: what it reads, what it leaves alone, and what it remembers."""

import errno
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nodeguard.model.device import NODE, Device, rdma_port
from nodeguard.model.sample import Batch, Missed, Present, Renamed, SourceState, Value
from nodeguard.sim import rdma
from nodeguard.sources.rdma import RdmaPoll
from nodeguard.sources.rdma_files import REST_SECONDS, count, rate_gbps, state_word
from nodeguard.sources.recording.tree import RecordedTree
from nodeguard.sources.tree import DirectoryTree

PORT = rdma_port("mlx5_0", 1)
STATE = "class/infiniband/mlx5_0/ports/1/state"


class Rig:
    """A tree that is patched, and a poll of it each second."""

    def __init__(self, *patches: rdma.Patch, **settings: float) -> None:
        self.tree = RecordedTree()
        self.reads: list[str] = []
        self.poll = RdmaPoll(self, **settings)  # type: ignore[arg-type]
        self.now = 0.0
        self.batch = self.step(*patches)

    def step(self, *patches: rdma.Patch, seconds: float = 1.0) -> Batch:
        for patch in patches:
            self.tree.patch(patch, _no_mistake)
        self.now += seconds
        self.batch = self.poll.poll(self.now)
        return self.batch

    def read(self, path: str) -> str:
        self.reads.append(path)
        return self.tree.read(path)

    def names(self, path: str) -> tuple[str, ...]:
        return self.tree.names(path)

    def link(self, path: str) -> str:
        return self.tree.link(path)

    def exists(self, path: str) -> bool:
        return self.tree.exists(path)

    def values(self, signal: str) -> dict[Device, Value | None]:
        return {one.device: one.value for one in self.batch.samples if one.signal == signal}

    def facts(self, kind: type) -> list[object]:
        return [fact for fact in self.batch.facts if isinstance(fact, kind)]


def _no_mistake(message: str) -> None:
    raise AssertionError(message)


def one(name: str = "mlx5_0", **more: str) -> rdma.Patch:
    return rdma.hca(name, **more) | rdma.up(name)


def test_a_port_is_read_whole_at_first_and_its_state_every_second() -> None:
    """Counters other than link_downed wait for ten seconds."""
    rig = Rig(one())
    assert rig.values("rdma_port_state") == {PORT: "ACTIVE"}
    assert rig.values("rdma_port_phys_state") == {PORT: "LinkUp"}
    assert rig.values("rdma_port_rate_gbps") == {PORT: 400.0}
    assert rig.values("rdma_symbol_error_total") == {PORT: 0}
    assert rig.values("rdma_packet_seq_err_total") == {PORT: 4}
    assert rig.values("rdma_port_role") == {PORT: "fabric"}
    rig.step(rdma.counter("mlx5_0", "link_downed", 3))
    assert rig.values("rdma_link_downed_total") == {PORT: 3}
    assert rig.values("rdma_symbol_error_total") == {}
    rig.step(seconds=10)
    assert rig.values("rdma_symbol_error_total") == {PORT: 0}


def test_no_rdma_at_all_is_a_count_of_none() -> None:
    """A node without the class has been read, and has nothing."""
    rig = Rig()
    assert [(one.signal, one.device, one.value) for one in rig.batch.samples] == [("rdma_port_count", NODE, 0)]


def test_a_class_that_cannot_be_listed_is_blindness() -> None:
    """Nothing is gone because of it."""
    rig = Rig(one())
    rig.tree = RecordedTree()
    rig.tree.patch({"class/infiniband": {"error": "EIO"}}, _no_mistake)
    rig.step()
    assert rig.facts(SourceState) == [SourceState(up=False, reason=f"class/infiniband: [Errno {errno.EIO}] "
                                                                   "Input/output error: 'class/infiniband'")]
    assert rig.facts(Missed) == [Missed()]
    assert rig.facts(Present) == []


def test_a_port_that_is_away_is_missed_and_after_three_polls_not_present() -> None:
    """Poll by poll."""
    rig = Rig(one(), one("mlx5_1"))
    rig.step()
    rig.step()
    assert rig.facts(Present) == [Present("rdma_port", frozenset({PORT, rdma_port("mlx5_1", 1)}))]
    for _ in range(2):
        rig.step(rdma.gone("mlx5_1"))
        assert rig.facts(Missed) == [Missed(frozenset({rdma_port("mlx5_1", 1)}))]
        assert rig.facts(Present) == [Present("rdma_port", frozenset({PORT, rdma_port("mlx5_1", 1)}))]
    rig.step()
    assert rig.facts(Present) == [Present("rdma_port", frozenset({PORT}))]
    rig.step()
    assert rig.facts(Missed) == []


def test_a_port_without_its_directory_is_away_too() -> None:
    """The device is there and lost a port."""
    rig = Rig(one())
    rig.step({"class/infiniband/mlx5_0/ports/1": None})
    assert rig.facts(Missed) == [Missed(frozenset({PORT}))]


def test_an_unreadable_state_is_unknown_and_read_again() -> None:
    """However long it lasts."""
    rig = Rig(one())
    for _ in range(10):
        rig.step({STATE: {"error": "EIO"}})
        assert rig.values("rdma_port_state") == {PORT: None}
        assert rig.facts(Missed) == []
    rig.step({STATE: "4: ACTIVE"})
    assert rig.values("rdma_port_state") == {PORT: "ACTIVE"}


def test_a_counter_that_fails_three_times_rests() -> None:
    """It is asked again five minutes later."""
    path = "class/infiniband/mlx5_0/ports/1/counters/link_downed"
    rig = Rig(one())
    for _ in range(10):
        rig.step({path: {"error": "EIO"}})
    assert rig.reads.count(path) == 1 + 3
    assert rig.values("rdma_link_downed_total") == {PORT: None}
    rig.step({path: "4"}, seconds=REST_SECONDS)
    assert rig.values("rdma_link_downed_total") == {PORT: 4}
    rig.step()
    assert rig.values("rdma_link_downed_total") == {PORT: 4}


def test_a_port_that_works_keeps_its_state_when_its_counters_refuse() -> None:
    """Only the directory that refused is left alone: asked once, and never again."""
    broken = {path: {"error": "EINVAL"} for path in rdma.hca("mlx5_0") if "/counters/" in path}
    rig = Rig(one() | broken)
    for _ in range(30):
        rig.step()
    assert sum("/counters/" in path for path in rig.reads) == 1
    assert rig.values("rdma_port_state") == {PORT: "ACTIVE"}
    rig.step(seconds=10)
    assert rig.values("rdma_packet_seq_err_total") == {PORT: 4}


def test_a_rate_that_is_refused_says_nothing_of_the_device() -> None:
    """A port without a width has no rate (kernel drivers/infiniband/core/sysfs.c, rate_show)."""
    rig = Rig(rdma.hca("mlx5_0") | rdma.down("mlx5_0") | {"class/infiniband/mlx5_0/ports/1/rate": {"error": "EINVAL"}})
    assert rig.values("rdma_port_role") == {PORT: "fabric"}
    assert rig.values("rdma_port_rate_gbps") == {PORT: None}


def test_an_hca_that_comes_back_is_learnt_anew() -> None:
    """What the firmware kept to itself may be free after the driver was loaded again."""
    rig = Rig(rdma.refusing("mlx5_0", "1: DOWN"))
    assert rig.values("rdma_port_role") == {PORT: "managed"}
    for _ in range(3):
        rig.step(rdma.gone("mlx5_0"))
    rig.step(one())
    assert rig.values("rdma_port_role") == {PORT: "fabric"}


def test_an_hca_under_another_name_is_renamed() -> None:
    """Its PCI address tells, also when it was away for long."""
    rig = Rig(one(slot="0000:18:00.0"))
    rig.step(rdma.gone("mlx5_0"), one("mlx5_7", slot="0000:18:00.0"))
    assert rig.facts(Renamed) == [Renamed(PORT, rdma_port("mlx5_7", 1))]
    assert rig.facts(Missed) == []
    for _ in range(5):
        rig.step(rdma.gone("mlx5_7"))
    rig.step(one("mlx5_2", slot="0000:18:00.0"))
    assert rig.facts(Renamed) == [Renamed(rdma_port("mlx5_7", 1), rdma_port("mlx5_2", 1))]


def test_two_functions_of_a_card_are_two_devices() -> None:
    """One that comes is not the other renamed."""
    rig = Rig(one(slot="0000:18:00.0"))
    rig.step(one("mlx5_1", slot="0000:18:00.1"))
    assert rig.facts(Renamed) == []


def test_names_that_change_places_are_renamed_both() -> None:
    """Nothing that was read under a name counts for the card that has it now."""
    rig = Rig(one("mlx5_0", slot="0000:18:00.0"), one("mlx5_1", slot="0000:29:00.0"), slow_every=0.0)
    rig.step(one("mlx5_0", slot="0000:29:00.0"), one("mlx5_1", slot="0000:18:00.0"))
    other = rdma_port("mlx5_1", 1)
    assert rig.facts(Renamed) == [Renamed(PORT, other), Renamed(other, PORT)]


def test_another_card_under_the_same_name_inherits_nothing() -> None:
    """What was seen of the old one ends."""
    rig = Rig(one(slot="0000:18:00.0"), slow_every=0.0)
    rig.step(rdma.hca("mlx5_0", slot="0000:29:00.0") | rdma.down("mlx5_0"))
    assert rig.facts(Renamed) == [Renamed(PORT, PORT)]
    assert rig.values("rdma_port_seen_active") == {PORT: 0}


def test_an_expected_port_is_judged_whatever_it_seems_to_be_for() -> None:
    """The operator knows better than a bond's file."""
    bonded = one("mlx5_0", layer="Ethernet", netdev="eth0") | {
        "class/infiniband/mlx5_0/device/net/eth0/master": {"link": "../bond0"}}
    rig = Rig(bonded)
    assert rig.values("rdma_port_role") == {PORT: "bond"}
    rig.poll = RdmaPoll(rig, expected=[PORT])
    rig.step()
    assert rig.values("rdma_port_role") == {PORT: "fabric"}


def test_a_default_route_through_a_bond_leads_to_its_members() -> None:
    """Bridge over bond over NIC: the NIC serves the host."""
    proc = RecordedTree()
    proc.patch({"1/net/route": rdma.ROUTES.replace("eth9", "br0")}, _no_mistake)
    rig = Rig(one("mlx5_0", layer="Ethernet", netdev="eth0"))
    rig.poll = RdmaPoll(rig, proc=proc)
    rig.step()
    assert rig.values("rdma_port_role") == {PORT: "fabric"}
    rig.step({"class/net/br0/lower_bond1": {"link": "../bond1"}, "class/net/bond1/lower_eth0": {"link": "../eth0"}},
             seconds=10)
    assert rig.values("rdma_port_role") == {PORT: "host"}


def test_peers_say_which_share_of_them_is_up_and_their_rate() -> None:
    """Of three others at least; the highest own rate counts too."""
    four = [one(f"mlx5_{number}") for number in range(3)]
    rig = Rig(*four, rdma.hca("mlx5_3") | rdma.down("mlx5_3"))
    late = rdma_port("mlx5_3", 1)
    assert rig.values("rdma_port_peers_active_ratio")[late] == 1.0
    assert rig.values("rdma_port_rate_usual_gbps")[late] == 400.0
    assert rig.values("rdma_port_seen_active") == {**dict.fromkeys(rig.values("rdma_port_state"), 1), late: 0}
    rig.step(rdma.gone("mlx5_2"))
    assert rig.values("rdma_port_peers_active_ratio")[late] is None
    rig.step(rdma.slow("mlx5_0", 200))
    assert rig.values("rdma_port_rate_usual_gbps")[PORT] == 400.0


def test_a_port_that_was_away_was_up_all_the_same() -> None:
    """It does not come back as one that never was."""
    rig = Rig(one())
    for _ in range(4):
        rig.step(rdma.gone("mlx5_0"))
    rig.step(rdma.hca("mlx5_0") | rdma.down("mlx5_0"))
    assert rig.values("rdma_port_seen_active") == {PORT: 1}


def test_a_link_that_goes_down_between_two_reads_is_down() -> None:
    """ACTIVE and Polling of one poll would be a fault of their own."""
    rig = Rig(one())
    flaky = {"class/infiniband/mlx5_0/ports/1/phys_state": "2: Polling"}
    rig.tree.patch(flaky, _no_mistake)
    states = iter(("4: ACTIVE", "1: DOWN"))
    real = rig.read

    def read(path: str) -> str:
        return next(states) if path == STATE else real(path)

    rig.read = read  # type: ignore[method-assign]
    rig.step()
    assert rig.values("rdma_port_state") == {PORT: "DOWN"}


def test_the_simulated_tree_is_the_same_on_disk(tmp_path: Path) -> None:
    """A patch written to a directory reads as it does in a recording."""
    rdma.apply(tmp_path, rdma.healthy_node())
    rig = Rig(rdma.healthy_node())
    assert RdmaPoll(DirectoryTree(tmp_path)).poll(1.0) == rig.batch


@given(st.text())
def test_any_text_of_a_file_is_a_value_or_unknown(text: str) -> None:
    """Nothing raises; a number is what it says."""
    number = count(text)
    assert number is None or int(text) == number
    rate = rate_gbps(text)
    assert rate is None or rate >= 0
    assert state_word(text, frozenset({"DOWN"})) in (None, "DOWN")


@given(st.dictionaries(
    st.sampled_from(["state", "phys_state", "rate", "link_layer", "counters/link_downed", "hw_counters/out_of_buffer"]),
    st.one_of(st.text(), st.sampled_from([{"error": name} for name in ("EIO", "EINVAL", "ENOENT", "EPERM")]))))
def test_any_files_of_a_port_raise_nothing(files: dict[str, str | dict[str, str]]) -> None:
    """Whatever they hold costs that value only."""
    rig = Rig(one())
    for _ in range(5):
        rig.step({f"class/infiniband/mlx5_0/ports/1/{path}": value for path, value in files.items()}, seconds=10)
    assert all(sample.device in (PORT, NODE) for sample in rig.batch.samples)
