"""Nothing is lost: torn writes, kill -9, a full disk, a read-only place, a second process."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from akv_rsi.errors import RunCorrupt, RunLocked, SealBroken, StoreError
from akv_rsi.search.codec import decode, dumps, encode, loads, pack, unpack
from akv_rsi.search.journal import Journal, Outcome
from akv_rsi.search.store import Store, is_locked
from akv_rsi.tasks.episode import Episode, TaskRef
from akv_rsi.types import Call, Drop, Refresh, Repos, Segment, Trajectory, Usage

CONFIG = {"budget": 0.8}


def evaluation(split, *policies):
    return {"split": split, "policies": list(policies)}


def bodies(path):
    with Store.read(path) as store:
        return [(e.seq, e.kind, e.key, e.body, e.attachment) for e in store.events()]


def test_an_episode_survives_the_store():
    segment = Segment(0, "tool_result", 1, 0, 9, "hi", tool="poll", call="x", is_error=True)
    ops = (Drop(9, ((0, 4), (5, 6))), Repos(9), Refresh(9, ((7, 8),)))
    call = Call(9, 9, 2, ops, recorded=Usage(calls=1))
    trajectory = Trajectory("t", (segment,), (call,), "repo")
    task = TaskRef("repo", 3, "train")
    episode = Episode(task, "abc", True, "done", 1.25, Usage(1, 2, 3), True, "", trajectory)
    assert loads(dumps([episode])) == (episode,)
    assert unpack(pack(episode)) == episode
    assert decode(encode({"a": (1, None)})) == {"a": (1, None)}


def test_unknown_content_is_refused():
    with pytest.raises(RunCorrupt, match="Widget"):
        loads('{"is":"Widget"}')
    with pytest.raises(RunCorrupt, match="Repos"):
        loads('{"is":"Repos","place":3}')


def test_events_come_back_in_order(tmp_path):
    with Store.create(tmp_path / "r", CONFIG) as store:
        for i in range(5):
            store.append("note", f"k{i}", {"i": i}, b"\0" * i, seconds=i)
        assert [e.key for e in store.events()] == ["k0", "k1", "k2", "k3", "k4"]
        assert len(store) == 5
    with Store.open(tmp_path / "r") as store:
        assert store.config == CONFIG
        store.append("note", "k5", {})
        assert [e.seq for e in store.events("note")] == [0, 1, 2, 3, 4, 5]
        with pytest.raises(StoreError, match="already holds a run"):
            Store.create(tmp_path / "r", CONFIG)


def test_a_reader_sees_what_a_writer_appended(tmp_path):
    with Store.create(tmp_path / "r", CONFIG) as writer, Store.read(tmp_path / "r") as reader:
        writer.append("note", "a", 1)
        assert [e.body for e in reader.events()] == [1]
        with pytest.raises(StoreError, match="reading only"):
            reader.append("note", "b", 2)


def test_a_place_without_a_run_is_named(tmp_path):
    for method in (Store.open, Store.read):
        with pytest.raises(StoreError, match="holds no run"):
            method(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(StoreError, match=r"config\.json cannot be read"):
        Store.open(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 99}')
    with pytest.raises(StoreError, match="another version"):
        Store.open(tmp_path)


def test_damage_is_told_from_loss(tmp_path):
    with Store.create(tmp_path / "r", CONFIG) as store:
        for i in range(3):
            store.append("note", f"k{i}", {"i": i})
    for change in (
        "UPDATE events SET body = '7' WHERE seq = 1",
        "DELETE FROM events WHERE seq = 1",
    ):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "r", copy)
        database = sqlite3.connect(copy / "run.sqlite")
        database.execute(change)
        database.commit()
        database.close()
        with pytest.raises(RunCorrupt, match="damaged"):
            Store.open(copy)
        assert not is_locked(copy)
        shutil.rmtree(copy)
    (tmp_path / "r" / "run.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(RunCorrupt, match="damaged"):
        Store.open(tmp_path / "r")


def test_a_torn_write_loses_the_last_events_at_most(tmp_path):
    """The write-ahead log cut at any byte: what is left is a prefix of what was appended."""
    source = tmp_path / "r"
    store = Store.create(source, CONFIG)
    for i in range(6):
        store.append("note", f"k{i}", {"text": "x" * 300 * i})
    log = (source / "run.sqlite-wal").read_bytes()
    assert len(log) > 10_000
    rng = random.Random(0)
    kept = set()
    for cut in [0, len(log), *rng.sample(range(len(log)), 25)]:
        copy = tmp_path / f"cut{cut}"
        copy.mkdir()
        for name in ("config.json", "run.sqlite"):
            shutil.copy(source / name, copy / name)
        (copy / "run.sqlite-wal").write_bytes(log[:cut])
        with Store.open(copy) as torn:
            keys = [e.key for e in torn.events()]
            assert keys == [f"k{i}" for i in range(len(keys))]
            torn.append("note", "next", 1)
        assert len(bodies(copy)) == len(keys) + 1
        kept.add(len(keys))
    assert {0, 6} <= kept
    assert len(kept) > 3
    store.close()


def fill(store):
    for i in range(100):
        store.append("note", f"k{i}", {"text": "x" * 3000})


def test_a_full_disk_is_one_clear_line_and_nothing_is_lost(tmp_path):
    store = Store.create(tmp_path / "r", CONFIG)
    store.append("note", "before", {"i": 0})
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="full") as caught:
        fill(store)
    assert "\n" not in str(caught.value)
    saved = [e.key for e in store.events()]
    store._database.execute(f"PRAGMA max_page_count = {pages + 1000}")
    store.append("note", "after", {})
    store.close()
    assert [row[2] for row in bodies(tmp_path / "r")] == [*saved, "after"]


FILL = """
import resource, sys
from pathlib import Path
from akv_rsi.errors import StoreError
from akv_rsi.search.store import Store
store = Store.create(Path(sys.argv[1]), {})
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    for i in range(1000):
        store.append("note", f"k{i}", {"text": "x" * 500})
        print(i + 1, flush=True)
except StoreError as error:
    print(error)
"""


def test_a_refused_write_of_the_system_is_a_store_error(tmp_path):
    """The same through the file system: no file may grow past 60 kB."""
    out = run_child(FILL, tmp_path / "r")
    *counts, line = out.splitlines()
    assert "cannot be written" in line
    assert len(bodies(tmp_path / "r")) >= int(counts[-1])


def run_child(code, *args):
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX users")
def test_a_read_only_place(tmp_path):
    """As root nothing is read only, so the child first becomes nobody."""
    with Store.create(tmp_path / "r", CONFIG) as store:
        store.append("note", "a", 1)
    code = """
import os, sys
from pathlib import Path
import akv_rsi.search.store as module
from akv_rsi.errors import StoreError
if os.geteuid() == 0:
    os.setuid(65534)
path = Path(sys.argv[1])
for attempt in (lambda: module.Store.open(path), lambda: module.Store.create(path / "new", {})):
    try:
        attempt()
    except StoreError as error:
        print(error)
with module.Store.read(path) as store:
    print(len(list(store.events())))
"""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory != directory.parent:
            directory.chmod(directory.stat().st_mode | 0o555)
    os.chmod(tmp_path / "r", 0o555)
    try:
        lines = run_child(code, tmp_path / "r").splitlines()
    finally:
        os.chmod(tmp_path / "r", 0o755)
    assert len(lines) == 3
    assert all("cannot be written" in line for line in lines[:2])
    assert lines[2] == "1"


HOLD = """
import sys, time
from pathlib import Path
from akv_rsi.search.store import Store
with Store.open(Path(sys.argv[1])) as store:
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused(tmp_path):
    path = tmp_path / "r"
    Store.create(path, CONFIG).close()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        assert is_locked(path)
        with pytest.raises(RunLocked, match="another process"):
            Store.open(path)
        with Store.read(path) as reader:
            assert len(reader) == 0
    finally:
        holder.kill()
        holder.communicate()
    assert not is_locked(path)
    Store.open(path).close()


WRITE = """
import sys
from pathlib import Path
from akv_rsi.search.store import Store
path = Path(sys.argv[1])
with Store.open(path) as store:
    for i in range(len(store), 100000):
        store.append("note", f"k{i}", {"text": "y" * (i % 977)})
        print(i, flush=True)
"""


def test_killed_while_writing_nothing_acknowledged_is_lost(tmp_path):
    path = tmp_path / "r"
    Store.create(path, CONFIG).close()
    rng = random.Random(1)
    for _ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE, path], stdout=subprocess.PIPE, text=True
        )
        child.stdout.readline()
        time.sleep(rng.random() * 0.1)
        child.send_signal(signal.SIGKILL)
        printed = child.communicate()[0].splitlines()
        rows = bodies(path)
        assert [row[2] for row in rows] == [f"k{i}" for i in range(len(rows))]
        if printed:
            assert len(rows) > int(printed[-1])


def test_the_seal(tmp_path):
    """S1-S4, also across a resume."""
    path = tmp_path / "r"
    with Store.create(path, CONFIG) as store:
        store.append("evaluation", "e", evaluation("train", "a"))
        with pytest.raises(SealBroken, match="sealed for a"):
            store.append("evaluation", "e", evaluation("test", "a"))
        store.append("unseal", "u", {"policies": ["a", "b"]})
        for kind, body in (
            ("unseal", {"policies": ["c"]}),
            ("proposals", {}),
            ("evaluation", evaluation("train", "a")),
            ("evaluation", evaluation("validation", "a")),
        ):
            with pytest.raises(SealBroken, match="over"):
                store.append(kind, "k", body)
        with pytest.raises(SealBroken, match="sealed for a, c"):
            store.append("evaluation", "e", evaluation("test", "a", "c"))
        store.append("evaluation", "e", evaluation("test", "a"))
    with Store.open(path) as store:
        with pytest.raises(SealBroken, match="a had its one test"):
            store.append("evaluation", "e", evaluation("test", "a", "b"))
        store.append("evaluation", "e", evaluation("test", "b"))
        store.append("report", "", {})


def test_the_journal_performs_each_effect_once(tmp_path):
    path, calls = tmp_path / "r", []

    def program(store, steps):
        journal = Journal(store)
        return [
            journal.perform("step", str(i), lambda i=i: calls.append(i) or Outcome(i * i)).body
            for i in range(steps)
        ]

    with Store.create(path, CONFIG) as store:
        assert program(store, 3) == [0, 1, 4]
    with Store.open(path) as store:
        assert program(store, 5) == [0, 1, 4, 9, 16]
    assert calls == [0, 1, 2, 3, 4]
    with Store.open(path) as store, pytest.raises(RunCorrupt, match="start a new run"):
        Journal(store).perform("other", "0", lambda: Outcome(0))
