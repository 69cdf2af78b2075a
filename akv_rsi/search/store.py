"""A run's directory: its configuration and its events. All else about a run is derived from them.

    <run>/config.json   what was asked for, and facts of its model; written once, first
    <run>/run.sqlite    table ``events``, append-only; one row is one durable step
    <run>/run.lock      held by the process that writes, whose id it holds
    <run>/policies/     the candidates' sources, for people; derived

An append is one SQLite transaction (WAL, synchronous), so a process killed at any byte leaves the
events it had appended and nothing else. The store also keeps the seal on the test split:

    S1  a test evaluation follows an ``unseal`` event that names its policies
    S2  a run is unsealed once
    S3  after that nothing is proposed, and nothing is evaluated on other splits
    S4  a policy is evaluated on the test split once
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from akv_rsi.errors import RunCorrupt, RunLocked, SealBroken, StoreError
from akv_rsi.search.codec import dumps, loads

FORMAT = 1
_FACTS = "facts"
_SCHEMA = """CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,
    attachment BLOB NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL, checksum TEXT NOT NULL)"""
_COLUMNS = "seq, kind, key, body, attachment, at, seconds, checksum"


@dataclass(frozen=True, slots=True)
class Event:
    """One durable step of a run.

    ``kind`` and ``key`` say what was done, ``body`` what came of it; ``attachment`` holds bulk that
    few readers want. ``at`` (Unix time) and ``seconds`` (how long it took) are the only parts that
    differ between two runs of one seed.
    """

    seq: int
    kind: str
    key: str
    body: Any
    attachment: bytes
    at: float
    seconds: float


class Store:
    """The events of one run. One process may write, any number may read meanwhile."""

    def __init__(self, path: Path, database: sqlite3.Connection, lock: IO[str] | None) -> None:
        self.path = path
        self._database = database
        self._lock = lock
        self._next = 0
        self._unsealed: frozenset[str] | None = None
        self._tested: set[str] = set()

    @classmethod
    def create(
        cls, path: Path, config: Mapping[str, Any], facts: Mapping[str, Any] | None = None
    ) -> Store:
        """A new run in the directory ``path``, which must not hold one yet.

        ``facts`` are what whoever reads it later cannot find out without the model.
        """
        with _clear_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            if (path / "config.json").exists():
                raise StoreError(f"{path} already holds a run; continue it with --resume {path}")
            lock = _acquire(path)
            content = {"format": FORMAT, **config, _FACTS: dict(facts or {})}
            _write_whole(path / "config.json", json.dumps(content, indent=2))
            return cls._writer(path, lock)

    @classmethod
    def open(cls, path: Path) -> Store:
        """An existing run, to continue it. `RunLocked` while another process does."""
        read_config(path)
        with _clear_errors(path):
            return cls._writer(path, _acquire(path))

    @classmethod
    def read(cls, path: Path) -> Store:
        """An existing run, read only: it may be written by another process at the same time."""
        read_config(path)
        with _clear_errors(path):
            if not (path / "run.sqlite").exists():
                return cls(path, _empty(), None)
            # Nothing writes to a directory that cannot be written to, and SQLite could not make
            # its shared-memory file there.
            mode = "mode=ro" if os.access(path, os.W_OK) else "mode=ro&immutable=1"
            return cls(path, _connect(path, mode), None)

    @classmethod
    def _writer(cls, path: Path, lock: IO[str]) -> Store:
        try:
            database = _connect(path, "mode=rwc")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(_SCHEMA)
            store = cls(path, database, lock)
            for event in store.events():
                store._advance(event)
        except BaseException:
            lock.close()
            raise
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the run to other processes."""
        self._database.close()
        if self._lock is not None:
            self._lock.close()

    @property
    def config(self) -> dict[str, Any]:
        """What was asked for."""
        return read_config(self.path)

    def __len__(self) -> int:
        with _clear_errors(self.path):
            row = self._database.execute("SELECT count(*) FROM events").fetchone()
        return int(row[0])

    def events(self, kind: str | None = None, start: int = 0) -> Iterator[Event]:
        """The events from number ``start`` on in order, all or those of one kind.

        `RunCorrupt` when one is damaged or gone.
        """
        where, values = ("", ()) if kind is None else (" AND kind = ?", (kind,))
        with _clear_errors(self.path):
            rows = self._database.execute(
                f"SELECT {_COLUMNS} FROM events WHERE seq >= ?{where} ORDER BY seq",
                (start, *values),
            )
            for expected, row in enumerate(rows, start):
                if row[-1] != _checksum(row[:-1]) or (kind is None and row[0] != expected):
                    raise RunCorrupt(
                        f"{self.path}: event {row[0]} is damaged; the run cannot be used"
                    )
                seq, kind_, key, body, attachment, at, seconds, _ = row
                yield Event(seq, kind_, key, loads(body), attachment, at, seconds)

    def append(
        self, kind: str, key: str, body: Any, attachment: bytes = b"", seconds: float = 0.0
    ) -> Event:
        """Makes one more event durable. `StoreError` when it cannot be; `SealBroken` by S1-S4."""
        if self._lock is None:
            raise StoreError(f"{self.path} is open for reading only")
        text = dumps(body)
        event = Event(self._next, kind, key, loads(text), attachment, time.time(), float(seconds))
        self._check_seal(event)
        row = (event.seq, kind, key, text, attachment, event.at, event.seconds)
        with _clear_errors(self.path):
            self._database.execute(
                f"INSERT INTO events ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?)", (*row, _checksum(row))
            )
        self._advance(event)
        return event

    def write_policy(self, identity: str, source: str) -> Path:
        """Puts a candidate's source where people look for it; it can be derived again."""
        with _clear_errors(self.path):
            (self.path / "policies").mkdir(exist_ok=True)
            _write_whole(self.policy_path(identity), source)
        return self.policy_path(identity)

    def policy_path(self, identity: str) -> Path:
        """Where the source of a candidate is."""
        return self.path / "policies" / f"{identity}.py"

    def _advance(self, event: Event) -> None:
        self._next = event.seq + 1
        if event.kind == "unseal":
            self._unsealed = frozenset(event.body["policies"])
        elif event.kind == "evaluation" and event.body["split"] == "test":
            self._tested |= set(event.body["policies"])

    def _check_seal(self, event: Event) -> None:
        if event.kind == "evaluation" and event.body["split"] == "test":
            asked = set(event.body["policies"])
            if self._unsealed is None or not asked <= self._unsealed:
                raise SealBroken(
                    f"{self.path}: the test split is sealed for {', '.join(sorted(asked))}"
                )
            if again := asked & self._tested:
                raise SealBroken(
                    f"{self.path}: {', '.join(sorted(again))} had its one test already"
                )
        elif self._unsealed is not None and event.kind in ("unseal", "proposals", "evaluation"):
            raise SealBroken(f"{self.path}: the test split is open, the search is over")


def read_config(path: Path) -> dict[str, Any]:
    """The configuration of the run in ``path``; `StoreError` when there is none."""
    config = _read_config(path)
    config.pop(_FACTS, None)
    return config


def read_facts(path: Path) -> dict[str, Any]:
    """What the run recorded of its model; empty where it recorded nothing. Errors as before."""
    facts: dict[str, Any] = _read_config(path).get(_FACTS, {})
    return facts


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((path / "config.json").read_text())
    except FileNotFoundError as error:
        raise StoreError(f"{path} holds no run (no config.json)") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}/config.json cannot be read: {error}") from error
    if config.pop("format", None) != FORMAT:
        raise StoreError(
            f"{path} was written by another version of akv-rsi (format is not {FORMAT})"
        )
    return config


def is_locked(path: Path) -> bool:
    """Whether some process is writing the run in ``path``."""
    try:
        with (path / "run.lock").open() as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    return False


def owner(path: Path) -> int | None:
    """The id of the process that writes the run in ``path``, while one does."""
    try:
        text = (path / "run.lock").read_text()
    except OSError:
        return None
    return int(text) if text.isdigit() and is_locked(path) else None


def _acquire(path: Path) -> IO[str]:
    """The run's lock: POSIX, so that it dies with this process and no worker inherits it."""
    lock = (path / "run.lock").open("a")
    for attempt in range(
        3
    ):  # a reader that looks whether the run is locked holds it for an instant
        with suppress(BlockingIOError, PermissionError):
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            return lock
        time.sleep(0.05 * attempt)
    lock.close()
    raise RunLocked(f"another process is working on {path}; wait for it, or stop it first")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{(path / 'run.sqlite').resolve().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10.0)


def _empty() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute(_SCHEMA)
    return database


def _write_whole(path: Path, text: str) -> None:
    """Writes the file so that it is there whole or not at all."""
    draft = path.with_suffix(".tmp")
    with draft.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _checksum(row: tuple[Any, ...]) -> str:
    digest = hashlib.sha256()
    for value in row:
        data = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """What the file system and SQLite raise, as one clear line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"{path} cannot be written or read: {error}; nothing recorded is lost"
        ) from error
    except sqlite3.DatabaseError as error:
        raise RunCorrupt(f"{path}/run.sqlite is damaged: {error}") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be written or read: {error.strerror}") from error
