"""The NVIDIA kernel log parser, by the field cases it must answer."""

import json

import pytest

from nodeguard.model.device import NODE, Device
from nodeguard.model.sample import Identified, Sample
from nodeguard.vendors.nvidia.kernel_log import NvidiaKernelLog

from .lines import GONE, GONE_END, GONE_MIDDLE, events, names, only, tell

LOST = ("gpu_lost", "gpu/0000:b3:00.0")


@pytest.mark.parametrize("line", [
    f"{GONE}\n{GONE_MIDDLE}\n{GONE_END}",
    f"{GONE}\n               {GONE_MIDDLE}\n               {GONE_END}",
    f"{GONE} (PCI ID: 10de:26b5) installed in this system has fallen off the bus and is not responding.",
    "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
    "NVRM: GPU at 0000:b3:00.0 has fallen off the bus.",
    "NVRM: GPU at PCI:0000:b3:00: fallen off the bus",
    "NVRM: GPU-0000:b3:00: GPU has fallen off the bus.",
    "Feb 14 05:03:41 hostx kernel: [12.5] NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
])
def test_c02_lost_in_words_is_one_lost_gpu(line: str) -> None:
    """Every way of saying it without a number, in one record, is one lost GPU in its slot."""
    assert names(line) == [LOST]
    assert only(line).attributes == {"cause": "kernel_text"}


def test_c02_lost_over_several_records() -> None:
    """The three lines as three records, with foreign and driver records between, are one lost GPU."""
    assert names(GONE, "usb 1-1: reset", "   " + GONE_MIDDLE, "NVRM: something else", GONE_END) == [LOST]


def test_c02_block_survives_a_restart_in_its_middle() -> None:
    """A successor that restores the state reads the last line like its predecessor would have."""
    first, second = NvidiaKernelLog(), NvidiaKernelLog()
    first.feed(GONE, 10.0)
    second.restore(json.loads(json.dumps(first.state())))
    told = second.feed(GONE_END, 10.001)
    assert told is not None
    assert [(event.signal, event.device) for event in told.events] == [LOST]
    assert second.state() == {}


@pytest.mark.parametrize("state", [
    {"pending": 3}, {"pending": [1, 2]}, {"pending": ["x"]}, {"pending": ["a", "b"]}, {}])
def test_restore_ignores_states_of_another_form(state: dict[str, object]) -> None:
    """A state that no parser wrote leaves the parser as it was."""
    parser = NvidiaKernelLog()
    parser.restore(state)
    assert parser.state() == {}


def test_c02_last_line_alone_names_no_gpu() -> None:
    """Without its first line (or long after it), the message is told of the node: no GPU is guessed."""
    assert names(GONE_END) == [("gpu_lost", NODE)]
    parser = NvidiaKernelLog()
    parser.feed(GONE, 10.0)
    told = parser.feed(GONE_END, 100.0)
    assert told is not None
    assert told.events[0].device == NODE


def test_c02_block_that_says_something_else_is_no_loss() -> None:
    """The same first line also begins a message about an unsupported GPU."""
    unsupported = "NVRM: (PCI ID: 10de:1234) installed in this system is not supported by the driver."
    assert names(GONE, unsupported) == []
    assert names(GONE, unsupported, GONE_END) == [("gpu_lost", NODE)]


def test_c02_probe_line_alone() -> None:
    """The probe routine's failure is a message of its own, on the node."""
    event = only("NVRM: The NVIDIA probe routine failed for 1 device(s).")
    assert (event.signal, event.device, event.attributes) == (
        "gpu_driver_message", NODE, {"kind": "probe_failed"})


def test_c02_words_and_number_name_the_same_device() -> None:
    """The loss in words and the Xid 79 that follows give the same signal on the same device."""
    line = "NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert names("NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.", line) == [
        LOST, ("gpu_xid", LOST[1]), LOST]
    assert events(line)[1].attributes == {"cause": "xid", "code": 79}


C06 = {
    "a": ("NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7)",
          "0000:cb:00.0", 13),
    "b": ("NVRM: Xid (PCI:0000:c6:00): 79, pid=41002, name=nvc:[driver], GPU has fallen off the bus.",
          "0000:c6:00.0", 79),
    "c": ("NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus.", "0000:44:00.0", 79),
    "d": ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00.0", 14),
    "e": ("NVRM: Xid (PCI:0000:1a:00): 79", "0000:1a:00.0", 79),
    "f1": ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s",
           "0000:9b:00.0", 119),
    "f2": ("Feb 14 05:03:41 hostx kernel: NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s",
           "0000:9b:00.0", 119),
    "f3": ("[171167.62] NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s",
           "0000:9b:00.0", 119),
    "f4": ("2025-02-14T05:03:41.123456+00:00 hostx kernel: [ 171167.62] NVRM: Xid (PCI:0000:9b:00): 119, x",
           "0000:9b:00.0", 119),
    "g": ("NVRM: Xid (PCI:0000:00:05): 43, pid=41001, name=pt_main_thread, Ch 00000008", "0000:00:05.0", 43),
    "h": ("nvrm:  xid ( pci:0000:00:1e.0 ) : 43, channel 0x1", "0000:00:1e.0", 43),
    "i": ("NVRM: Xid (PCI:0000:3b:00): 31, pid=777, name=x): 79, GPU, Ch 00000008, intr 00000000. MMU Fault",
          "0000:3b:00.0", 31),
    "j": ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1818, name=python3, Ch 00000001 caused by previous Xid 149",
          "0000:dc:00.0", 45),
}


@pytest.mark.parametrize("case", C06)
def test_c06_header_variants(case: str) -> None:
    """The code is the first number behind the device's parenthesis, in every spelling of the header."""
    line, pci, code = C06[case]
    event = events(line)[0]
    assert (event.signal, event.device, event.attributes["code"]) == ("gpu_xid", f"gpu/{pci}", code)


def test_c06_process_and_cause_are_attributes() -> None:
    """pid, name and the cause are told; a quoted unknown is no process."""
    attributes = only(C06["j"][0]).attributes
    assert attributes == {"code": 45, "class": "application", "pid": 1818, "process": "python3", "caused_by": 149}
    assert only(C06["a"][0]).attributes == {"code": 13, "class": "application"}


def test_c06_154_without_device_sets_no_state() -> None:
    """A 154 that names no GPU is said of the node and gives no sample."""
    line = "NVRM: Xid: 154, GPU recovery action changed to 0x2 (Node Reboot Required)"
    (told,) = tell(line)
    assert told.samples == ()
    assert [(event.device, event.attributes["resolution"]) for event in told.events] == [(NODE, "no_device")]


@pytest.mark.parametrize(("line", "device", "instances"), [
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=1, name=a, x", "gpu/0000:3b:00.0/gi5", {"gpu_instance": 5}),
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:02): 31, x", "gpu/0000:3b:00.0/gi5/ci2",
     {"gpu_instance": 5, "compute_instance": 2}),
])
def test_mig_instances(line: str, device: str, instances: dict[str, int]) -> None:
    """A MIG header names the instance below its GPU."""
    event = only(line)
    assert event.device == device
    assert {name: event.attributes.get(name) for name in instances} == instances


def test_mig_loss_and_recovery_action_are_the_gpus() -> None:
    """An instance does not leave the bus, and has no recovery action of its own: both are told of the GPU."""
    assert names("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 79, x")[1] == ("gpu_lost", "gpu/0000:3b:00.0")
    (told,) = tell("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 154, GPU recovery action changed from 0x0 (None) to 0x1 (x)")
    assert told.samples == (Sample("gpu_recovery_action", Device("gpu/0000:3b:00.0"), 1),)


@pytest.mark.parametrize("spelling", ["000b:00:00", "0000000B:00:00.0", "b:0:0", "000B:00:00"])
def test_c07_one_address_in_every_spelling(spelling: str) -> None:
    """Domain width, case and function do not make another GPU."""
    line = f"NVRM: Xid (PCI:{spelling}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert names(line) == [("gpu_xid", "gpu/000b:00:00.0"), ("gpu_lost", "gpu/000b:00:00.0")]


@pytest.mark.parametrize("where", ["PCI:what", "0000:3b:40", ""])
def test_unreadable_address_is_the_node(where: str) -> None:
    """An Xid whose device cannot be read is never dropped."""
    assert names(f"NVRM: Xid ({where}): 48, x") == [("gpu_xid", NODE)]


@pytest.mark.parametrize(("words", "value"), [
    ("from 0x0 (None) to 0x2 (Node Reboot Required)", 2),
    ("from 0x0 (None) to 0x4 (Drain and Reset)", 4),
    ("from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)", 1),
    ("from 0x1 (GPU Reset Required) to 0x0 (None)", 0),
    ("from 0x0 (None) to 0x9 (Something New)", 9),
    ("to 0x2 (Node Reboot Required)", 2),
])
def test_c08_recovery_action_is_a_state(words: str, value: int) -> None:
    """The value that the action changes to is a sample; the event only shows that it was said."""
    (told,) = tell(f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed {words}")
    assert told.samples == (Sample("gpu_recovery_action", Device("gpu/0000:3b:00.0"), value),)
    assert told.events[0].attributes == {"code": 154, "class": "informational"}


@pytest.mark.parametrize("words", [
    "GPU recovery action changed ) to ( 0x2", "", "something else", "GPU recovery action changed from 0x0 (None) to 0x",
    "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required), or not",
])
def test_c08_unreadable_recovery_action(words: str) -> None:
    """A 154 that cannot be read sets no state and says so."""
    (told,) = tell(f"NVRM: Xid (PCI:0000:3b:00): 154, {words}")
    assert told.samples == ()
    assert told.events[0].attributes["resolution"] == "unparsed"


def test_c11_one_memory_error_in_three_lines() -> None:
    """48, 63 and 94 of one error: the remap is pending, and 94 says what it contained."""
    head, nobody = "NVRM: Xid (PCI:0000:52:00): ", "pid='<unknown>', name=<unknown>, "
    found = events(
        f"[430954.509105] {head}48, {nobody}An uncorrectable double bit error (DBE) has been detected on GPU in the "
        "framebuffer at physAddr 0x18f00000 partition 16, subpartition 3.",
        f"[430954.532443] {head}63, {nobody}Row Remapper: New row (0x0000000018f00000) marked for remapping, reset "
        "gpu to activate.",
        f"[430954.533994] {head}94, {nobody}Contained: SM (0x1). RST: No, D-RST: No",
    )
    assert [event.attributes for event in found] == [
        {"code": 48, "class": "memory"},
        {"code": 63, "class": "memory", "resolution": "remap_pending"},
        {"code": 94, "class": "application", "unit": "SM", "reset_required": False},
    ]
    assert {event.device for event in found} == {"gpu/0000:52:00.0"}


def test_c13_cleanup_names_its_cause_and_149_its_link() -> None:
    """A 45 stays a 45; the 149 before it carries unit, word, sub-code and link."""
    line = ("NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 18 (0x021425c6 0x00000000 0x00000000 "
            "0x00000000 0x00000000 0x00000000)")
    assert only(line).attributes == {
        "code": 149, "class": "nvlink", "unit": "NETIR_LINK_EVT", "word": "fatal", "injected": False, "subcode": 33,
        "link": 18, "resolution": "reset"}
    burst = events(*(f"NVRM: Xid (PCI:0000:{slot:02x}:00): 45, pid=149001, name=trainer, Ch {channel:08x}"
                     for slot in range(8) for channel in range(15)))
    assert {event.attributes["code"] for event in burst} == {45}
    assert len(burst) == 120


def test_c15_uncontained_says_that_a_reset_is_required() -> None:
    """95 names the unit and whether a reset is required."""
    line = ("NVRM: Xid (PCI:0000:3b:00): 95, pid=7062, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, "
            "D-RST: No")
    assert only(line).attributes == {
        "code": 95, "class": "memory", "pid": 7062, "process": "python3", "unit": "LTC TAG", "reset_required": True}


def test_c16_gsp_timeouts_with_their_tables() -> None:
    """Three timeouts are three 119; the UUID line is inventory; history and traces add nothing."""
    timeout = ("NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=nvidia-smi, Timeout after 6s of waiting for RPC response "
               "from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).")
    noise = ["NVRM: GPU4 GSP RPC buffer contains function 76 (GSP_RM_CONTROL) and data 0x0000000020800a4c",
             "NVRM: entry function                   data0              data1              ts_start",
             "NVRM:  0    103 GSP_RM_ALLOC           0x0000000000002081 0x0000000000000004 0x00062e",
             "CPU: 3 PID: 20 Comm: nvidia-smi Tainted: P OE", " _nv012345rm+0x1e/0x50 [nvidia]"]
    told = tell("NVRM: GPU at PCI:0000:9b:00: GPU-12345678-aaaa-bbbb-cccc-1234567890ab", timeout, *noise, timeout,
                *noise, timeout)
    assert told[0].facts == (Identified("0000:9b:00.0", Device("gpu/GPU-12345678-aaaa-bbbb-cccc-1234567890ab")),)
    found = [(event.device, event.attributes["code"]) for one in told for event in one.events]
    assert found == [("gpu/0000:9b:00.0", 119)] * 3


def test_c16_heartbeat_guesses_no_gpu() -> None:
    """The driver's own index is told, but the device is the node."""
    event = only("NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 12 diff 6070 timeout 5200")
    assert (event.signal, event.device, event.attributes) == (
        "gpu_driver_message", NODE, {"kind": "gsp_heartbeat", "index": 6})


@pytest.mark.parametrize(("line", "device"), [
    ("NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x62:0x40:2192)", "gpu/0000:c1:00.0"),
    ("NVRM: RmInitAdapter failed! (0x62:0x65:2028)", NODE),
])
def test_c25_initialisation_failed(line: str, device: str) -> None:
    """A GPU that could not be initialised is told with its address where the line has one."""
    event = only(line)
    assert (event.device, event.attributes) == (device, {"kind": "init_failed"})


def test_sxid_word_and_link() -> None:
    """An SXid names the switch, its zero-padded number, the word and the link; its data lines add nothing."""
    found = events(
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Data {0x00140001, 0x00000000}",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 00042, odd",
    )
    assert [(event.device, event.attributes) for event in found] == [
        ("nvswitch/0000:c1:00.0", {"code": 12028, "switch": 3, "word": "nonfatal", "link": 32}),
        ("nvswitch/0000:06:00.0", {"code": 20034, "switch": 1, "word": "fatal", "link": 48}),
        ("nvswitch/0000:06:00.0", {"code": 42, "switch": 1, "word": "unread"}),
    ]


def test_numbers_outside_the_table_surface() -> None:
    """A number that nobody knows is an Xid all the same."""
    assert only("NVRM: Xid (PCI:0000:3b:00): 999, x").attributes == {"code": 999, "class": "unknown"}


def test_text_and_stamp_travel_with_the_event() -> None:
    """The line is kept for people, cut to 300 characters, with the record's own time."""
    line = "NVRM: Xid (PCI:0000:3b:00): 31, " + "x" * 1000
    event = only(line)
    assert (event.text, event.stamp) == (line[:300], 10.0)


@pytest.mark.parametrize("line", ["usb 1-1: new device", "mlx5_core 0000:ab:00.0: Link DOWN", "", "SXid", "nvrm"])
def test_foreign_lines_are_not_ours(line: str) -> None:
    """What the driver did not print is None, not an empty answer."""
    assert NvidiaKernelLog().feed(line, None) is None
