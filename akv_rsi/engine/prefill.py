"""What a sequence adds to a pass when some of its known tokens have no KV.

First what was lost and is read again, then ops and new tokens, in the order of the contract. All
of it goes into one pass, if the budget allows, as segments that end at boundaries; what the budget
cuts off is `GONE` in the tree until a later pass computes it.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from akv_rsi.engine.batch import Batch
from akv_rsi.engine.node import GONE, Bools, Moved, Node, indices, way_to
from akv_rsi.engine.pool import Ints
from akv_rsi.engine.sequence import Sequence
from akv_rsi.engine.view import View
from akv_rsi.types import Repos


def plan(sequence: Sequence, batch: Batch, budget: int) -> list[slice]:
    """Adds rows until all known tokens have KV or ``budget`` rows are spent.

    Returns the rows of new tokens; when none is left to compute, the last known token is computed
    once more, for its logits. None are added when others' lost KV came in its way and its lease
    does not cover that.
    """
    assert sequence.lease is not None
    sequence.follow()
    if sequence.demand > sequence.lease.left:
        return []
    end, rows = batch.size + budget, list[slice]()
    if not sequence.ready:
        _recover(sequence, batch, budget)
    _copy_displaced(sequence, batch)
    while sequence.ready and sequence.view.length < sequence.known and batch.size < end:
        if sequence.boundary == sequence.view.length:
            _apply(sequence, batch, end - batch.size)
            _copy_displaced(sequence, batch)
        else:
            rows.append(_append(sequence, batch, end - batch.size))
    if not rows and sequence.complete:
        rows.append(_repeat_last(sequence, batch))
    return rows


def _recover(sequence: Sequence, batch: Batch, budget: int) -> None:
    """Computes what was lost and is read again: rows of the past, the oldest epoch first.

    Replaying the way there shows what each epoch saw.
    """
    way = way_to(sequence.node)
    lost = sequence.lost(way)
    sequence.ready = sum(map(len, lost)) <= budget
    view = sequence.new_view()
    for epoch, steps in groupby(way, key=lambda step: step.epoch):
        tokens = lost[epoch][:budget]
        budget -= len(tokens)
        for step in steps:
            count = _fill(sequence, step.node, np.isin(step.tokens, tokens))
            if step.node.applied is None:
                view.append(step.node.slots)
                sequence.tally.recovered += count
            else:
                view.apply(step.node.applied, step.node.slots, step.node.moved)
                sequence.tally.renewed(count, epoch)
        if tokens.size:
            _add_past(sequence, batch, view, tokens)
    sequence.view = view


def _fill(sequence: Sequence, node: Node, where: Bools) -> int:
    """Gives the units of ``node`` marked in ``where`` new slots; how many they are."""
    assert sequence.lease is not None
    count = int(where.sum())
    if count:
        sequence.cache.tree.fill(node, where, sequence.lease.take(count))
    return count


def _apply(sequence: Sequence, batch: Batch, budget: int) -> None:
    """The ops at the present boundary; refreshed tokens become rows in the past."""
    assert sequence.lease is not None
    timeline, group = sequence.timeline, sequence.group
    (_, ops), applied = timeline.groups[group], timeline.applied[group]
    tokens = indices(applied.refreshed)
    slots = np.full(len(tokens), GONE)
    now = tokens[:budget]
    slots[: len(now)] = sequence.lease.take(len(now))
    copies = sequence.cache.copies and any(isinstance(op, Repos) for op in ops)
    moved = Moved() if copies else None
    sequence.view.apply(applied, slots, moved)
    sequence.node = sequence.cache.tree.branch(sequence.node, ops, applied, slots, moved)
    sequence.group += 1
    sequence.ready = len(now) == len(tokens)
    sequence.tally.applied(ops, len(now), sequence.group)
    if len(now):
        _add_past(sequence, batch, sequence.view, now)


def _copy_displaced(sequence: Sequence, batch: Batch) -> None:
    """In copy mode: a turned copy of every key that it sees elsewhere than it was born.

    Copies are always made from birth, for the last Repos on the way: nobody needs those of others.
    """
    last = sequence.timeline.last_repos(sequence.known) if sequence.cache.copies else -1
    if not sequence.ready or not 0 <= last < sequence.group:
        return
    assert sequence.lease is not None
    view, (tokens, deltas) = sequence.view, sequence.view.displaced()
    if tokens.size:
        slots = sequence.lease.take(len(tokens))
        batch.add_copies(view.slots(tokens), slots, deltas)
        view.copied(tokens, slots)
        repos = [step.node for step in way_to(sequence.node) if step.node.moved is not None]
        sequence.cache.tree.move(repos[-1], tokens, slots)


def _add_past(sequence: Sequence, batch: Batch, view: View, tokens: Ints) -> None:
    """Rows for ``tokens`` of the past, which see what ``view`` shows before them."""
    keys = view.keys()
    limits = np.searchsorted(keys.tokens, tokens) + 1
    positions, slots = view.births(tokens), view.slots(tokens)
    keys = keys.head(int(limits[-1]))
    batch.add_segment(sequence.tokens[tokens], positions, slots, keys, limits)


def _append(sequence: Sequence, batch: Batch, budget: int) -> slice:
    """The next tokens, up to the next boundary."""
    assert sequence.lease is not None
    view, start = sequence.view, sequence.view.length
    stop = min(sequence.known, sequence.boundary, start + budget)
    slots = sequence.lease.take(stop - start)
    birth = view.next_position
    view.append(slots)
    tokens = sequence.tokens[start:stop].copy()
    sequence.node = sequence.cache.tree.append(sequence.node, tokens, slots, birth)
    sequence.committed = stop
    sequence.tally.appended(start, stop, sequence.prompt)
    keys = view.keys()
    limits = np.arange(len(keys.slots) - len(slots), len(keys.slots)) + 1
    return batch.add_segment(tokens, birth + np.arange(len(slots)), slots, keys, limits)


def _repeat_last(sequence: Sequence, batch: Batch) -> slice:
    """Everything is cached: one row for the last token's logits, whose KV nobody needs."""
    keys = sequence.view.keys()
    token = sequence.tokens[sequence.known - 1 : sequence.known]
    scratch = np.array([batch.pool.scratch_slot])
    sequence.tally.fresh += sequence.known == sequence.prompt
    limits = np.array([len(keys.slots)])
    return batch.add_segment(token, keys.positions[-1:], scratch, keys, limits)
