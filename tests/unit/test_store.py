"""The state directory: whole snapshots, of this node and this boot, or none."""

import json
import os
import zlib
from pathlib import Path

import pytest

from nodeguard.model.errors import StoreError, UserError
from nodeguard.store import Loaded, Store

NODE: dict[str, object] = {"faults": [["gpu-row-remap-failed", "gpu/GPU-1"]]}
BOOT: dict[str, object] = {"kmsg": {"cursor": 900}, "at": 12.5}


def saved(directory: Path, uid: str = "u1", boot: str = "b1") -> Path:
    Store(directory).save(uid, boot, NODE, BOOT)
    return directory / "state.json"


def test_a_snapshot_comes_back(tmp_path: Path) -> None:
    """Same node, same boot: both parts."""
    saved(tmp_path / "new")
    assert Store(tmp_path / "new").load("u1", "b1") == Loaded(NODE, BOOT, node_uid="u1")


def test_an_empty_directory_is_an_empty_snapshot(tmp_path: Path) -> None:
    """First start, even before the directory exists."""
    assert Store(tmp_path / "none").load("u1", "b1") == Loaded()


def test_an_old_boot_keeps_the_node_part(tmp_path: Path) -> None:
    """A reboot is normal: nothing to note, nothing set aside."""
    saved(tmp_path)
    assert Store(tmp_path).load("u1", "b2") == Loaded(NODE, None, node_uid="u1")


def test_another_node_is_set_aside_and_said(tmp_path: Path) -> None:
    """A disk or directory that came from elsewhere."""
    file = saved(tmp_path)
    before = file.read_bytes()
    loaded = Store(tmp_path).load("u2", "b1")
    assert (loaded.node, loaded.boot, loaded.torn) == ({}, None, False)
    (note,) = loaded.notes
    assert note == (f"the state file {file} is not used, for it belongs to the node with UID u1; "
                    "it was set aside as state.json.foreign-1")
    assert (tmp_path / "state.json.foreign-1").read_bytes() == before
    assert not file.exists()


def test_an_unknown_uid_is_ours(tmp_path: Path) -> None:
    """While the API server has not answered: the stored UID is kept, and one stored as unknown is adopted."""
    saved(tmp_path)
    store = Store(tmp_path)
    assert store.load("", "b1").node == NODE
    store.save("", "b1", {}, {})
    assert Store(tmp_path).load("u1", "b1").node_uid == "u1"
    saved(tmp_path / "unknown", uid="")
    assert Store(tmp_path / "unknown").load("u7", "b1") == Loaded(NODE, BOOT)


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    """Whatever bit of the file changes, it is torn and set aside, and nothing is raised."""
    file = saved(tmp_path)
    whole = file.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        loaded = Store(tmp_path).load("u1", "b1")
        assert (loaded.torn, loaded.node, loaded.boot, len(loaded.notes)) == (True, {}, None, 1), at


def test_a_file_cut_short_is_torn(tmp_path: Path) -> None:
    """At any length, the empty file included."""
    file = saved(tmp_path)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert Store(tmp_path).load("u1", "b1").torn, length


@pytest.mark.parametrize("content", [
    b"[]", b"\xff\xfe", b"{}", b'{"v": 1}', b'{"crc32":"00000000",', b"[" * 100_000,
])
def test_a_file_of_another_form_is_torn(tmp_path: Path, content: bytes) -> None:
    """What nodeguard did not write is not taken for its memory."""
    (tmp_path / "state.json").write_bytes(content)
    assert Store(tmp_path).load("u1", "b1").torn


def test_another_version_is_set_aside(tmp_path: Path) -> None:
    """A newer nodeguard's whole file is not understood: it is kept for it, and said."""
    file = saved(tmp_path)
    rest = file.read_bytes().partition(b",")[2].replace(b'"v":1', b'"v":2')
    file.write_bytes(b'{"crc32":"%08x",%s' % (zlib.crc32(rest), rest))
    loaded = Store(tmp_path).load("u1", "b1")
    assert loaded.torn
    assert "another version" in loaded.notes[0]


def test_only_three_of_a_kind_are_kept_aside(tmp_path: Path) -> None:
    """The newest ones; a directory does not fill up."""
    for number in range(7):
        (tmp_path / "state.json").write_text(str(number), encoding="ascii")
        Store(tmp_path).load("u1", "b1")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"state.json.torn-{number}" for number in (5, 6, 7)]
    assert (tmp_path / "state.json.torn-7").read_text(encoding="ascii") == "6"


def test_an_equal_snapshot_is_not_written_again(tmp_path: Path) -> None:
    """The disk is left alone while nothing changes."""
    store = Store(tmp_path)
    store.save("u1", "b1", NODE, BOOT)
    first = (tmp_path / "state.json").stat().st_ino
    store.save("u1", "b1", dict(NODE), dict(BOOT))
    assert (tmp_path / "state.json").stat().st_ino == first
    store.save("u1", "b1", NODE, {})
    assert Store(tmp_path).load("u1", "b1").boot == {}


def test_the_file_is_json_and_private(tmp_path: Path) -> None:
    """A person can read it with any tool; other users cannot."""
    file = saved(tmp_path)
    content = json.loads(file.read_bytes())
    assert {key: content[key] for key in ("v", "node_uid", "boot_id", "node", "boot")} == {
        "v": 1, "node_uid": "u1", "boot_id": "b1", "node": NODE, "boot": BOOT}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_directory_that_cannot_be_used_is_said_plainly(tmp_path: Path) -> None:
    """Reading, writing and locking: one sentence with what, where and what to do."""
    blocker = tmp_path / "file"
    blocker.write_text("", encoding="ascii")
    store = Store(blocker)
    for deed, word in ((lambda: store.load("u1", "b1"), "read"), (store.lock, "locked"),
                       (lambda: store.save("u1", "b1", {}, {}), "written")):
        with pytest.raises(StoreError, match=rf"the state directory {blocker} cannot be {word}: .*; make it a dir"):
            deed()


def test_a_failed_save_is_tried_again(tmp_path: Path) -> None:
    """Content that never reached the disk is not taken for saved, and the old file stays whole."""
    store = Store(tmp_path)
    store.save("u1", "b1", NODE, BOOT)
    obstacle = tmp_path / "state.json.new"
    obstacle.mkdir()
    with pytest.raises(StoreError):
        store.save("u1", "b1", {}, BOOT)
    assert Store(tmp_path).load("u1", "b1").node == NODE
    obstacle.rmdir()
    store.save("u1", "b1", {}, BOOT)
    assert Store(tmp_path).load("u1", "b1").node == {}


def test_two_agents_do_not_share_a_directory(tmp_path: Path) -> None:
    """The second is told who has it; after the first has gone it may."""
    first, second = Store(tmp_path), Store(tmp_path)
    first.lock()
    with pytest.raises(UserError, match=rf"in use by another agent, pid {os.getpid()}: stop that one"):
        second.lock()
    first.close()
    second.lock()
    second.close()
