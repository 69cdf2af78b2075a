"""Recorded conversations as the tasks of a search: which can serve, and who goes to which split."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from akv_rsi.errors import ConfigError
from akv_rsi.tasks.episode import Split, TaskRef
from akv_rsi.tasks.suites import FIRST_SEED
from akv_rsi.tasks.traces.audit import NOT_FOR_POLICIES
from akv_rsi.tasks.traces.calibrate import calibrate
from akv_rsi.tasks.traces.draft import Options
from akv_rsi.tasks.traces.model import Modelled, model
from akv_rsi.tasks.traces.policy_costs import affordable, bill_context, work_of
from akv_rsi.tasks.traces.provider import Tariff, asked_of
from akv_rsi.tasks.traces.read import Reading, find_files, troubles
from akv_rsi.tasks.traces.trace import Trace

WHOLE = 1 << 20  # characters of a text: what is cut would be other tokens
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FEWEST_CALLS = 5  # fewer leave a policy nothing to decide
ENOUGH = 1_000_000  # work of all conversations together: a policy is replayed on it in some 10 s
LEAST = 12_000  # work that every conversation may take, however many there are
FEWEST = 2 * len(SPLITS)  # an interval needs two conversations in each split


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation: its contexts, the tariff it ran under, what keeping everything costs."""

    contexts: tuple[Modelled, ...]
    tariff: Tariff
    cost: float

    @property
    def longest(self) -> int:
        """Its longest prompt, in tokens."""
        return max(call.prompt for one in self.contexts for call in one.trajectory.calls)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Conversations by split, the dearest first; ``about`` says in a line what they are.

    ``name`` is that of their tasks' suite, and tells other content and another deal apart.
    ``notes`` say in lines what of the files does not serve, and why.
    """

    name: str
    splits: Mapping[Split, tuple[Item, ...]]
    about: str
    notes: tuple[str, ...] = ()

    def item(self, task: TaskRef) -> Item:
        """The conversation of a task."""
        return self.splits[task.split][task.seed - FIRST_SEED[task.split]]


def load_corpus(
    paths: Sequence[str],
    tariff: Tariff,
    work: int,
    seed: int,
    prepare: Callable[[Modelled], Modelled | None] | None = None,
) -> Corpus:
    """The conversations in ``paths`` that a search can use, dealt into splits.

    Split by conversation, never by call, and every conversation once, in however many formats it is
    there. Each split gets its share of the dear ones; ``seed`` says who goes where. Long ones are
    cut at ``work``, and earlier if there are many of them: see `affordable`. ``prepare`` makes of a
    context what is to be searched on, given its whole text; None leaves it out. `ConfigError` when
    there are too few.
    """
    reading = Reading(find_files(paths), Options(clip=WHOLE) if prepare else Options())
    items, formats, unfit = list[Item](), Counter[str](), Counter[str]()
    seen: set[int] = set()
    whole = 0
    for trace in reading:
        contexts = model(trace, calibrate(trace))
        if prepare:
            contexts = [one for context in contexts if (one := prepare(context)) is not None]
        if why := _unfit(trace, contexts, seen, " that fit the model" if prepare else ""):
            unfit[why] += 1
            continue
        formats[trace.format] += 1
        whole += sum(len(one.times) for one in contexts)
        items.append(_cut(contexts, work, asked_of(tariff, trace)))
    where = ", ".join(paths)
    if len(items) < FEWEST:
        why = "; ".join(f"{count} {reason}" for reason, count in unfit.most_common())
        raise ConfigError(
            f"{len(items)} usable conversations in {where}: a search needs {FEWEST}, two for each "
            f"split{f' (not used: {why})' if why else ''}"
        )
    works = [work_of(item.contexts) for item in items]
    while work > LEAST and sum(min(own, work) for own in works) > ENOUGH:
        work = max(LEAST, work // 2)
    pairs = zip(items, works, strict=True)
    items = [i if own <= work else _cut(i.contexts, work, i.tariff) for i, own in pairs]
    items.sort(key=lambda item: (-item.cost, item.contexts[0].trajectory.id))
    kinds = ", ".join(f"{count} {name}" for name, count in formats.most_common())
    calls = sum(len(one.times) for item in items for one in item.contexts)
    part = f"{calls:,} calls" if calls == whole else f"the first {calls:,} of {whole:,} calls"
    about = f"{len(items)} recorded conversations in {where} ({part}; {kinds})"
    left = [f"not used: {count} {reason}" for reason, count in unfit.most_common()]
    notes = (*left, *troubles(reading.files))
    return Corpus(f"traces@{_digest(items, seed)}", _deal(items, seed), about, notes)


def _unfit(trace: Trace, contexts: Sequence[Modelled], seen: set[int], which: str) -> str:
    """Why a conversation cannot serve; empty if it can. ``seen`` holds what is there already."""
    if sum(len(one.times) for one in contexts) < FEWEST_CALLS:
        return f"with fewer than {FEWEST_CALLS} calls{which}"
    if any(flag in trace.flags for flag in NOT_FOR_POLICIES):
        return "in which a harness speaks for the agent"
    content = _checksum(
        segment.text
        for one in contexts
        for segment in one.trajectory.segments
        if segment.kind in ("user", "tool_result")
    )
    if content in seen:
        return "that are there twice"
    seen.add(content)
    return ""


def _cut(contexts: Sequence[Modelled], work: int, tariff: Tariff) -> Item:
    """As much of a conversation as ``work`` suffices for."""
    chosen = tuple(affordable(contexts, work))
    return Item(chosen, tariff, sum(_cost(context, tariff) for context in chosen))


def _checksum(texts: Iterator[str]) -> int:
    total = 0
    for text in texts:
        total = zlib.crc32(text.strip().encode("utf-8", "replace"), total)
    return total


def _cost(context: Modelled, tariff: Tariff) -> float:
    return bill_context(context, context.trajectory.calls, tariff).cost(tariff)


def _deal(items: Sequence[Item], seed: int) -> dict[Split, tuple[Item, ...]]:
    """Of every three that cost about the same, one for each split."""
    rng = Random(seed)
    hands: dict[Split, list[Item]] = {split: [] for split in SPLITS}
    for at in range(0, len(items), len(SPLITS)):
        alike = items[at : at + len(SPLITS)]
        for split, item in zip(rng.sample(SPLITS, len(alike)), alike, strict=True):
            hands[split].append(item)
    return {split: tuple(hand) for split, hand in hands.items()}


def _digest(items: Sequence[Item], seed: int) -> str:
    """Names the content and the deal: a run is only continued on the same."""
    digest = hashlib.sha256(str(seed).encode())
    for item in items:
        for one in item.contexts:
            calls = [(call.prompt, call.output) for call in one.trajectory.calls]
            text = _checksum(segment.text for segment in one.trajectory.segments)
            digest.update(repr((calls, text, item.tariff)).encode())
    return digest.hexdigest()[:12]
