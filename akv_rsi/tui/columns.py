"""The columns of the archive."""

from __future__ import annotations

from collections.abc import Callable

from akv_rsi.insight.listing import verbs_of
from akv_rsi.insight.seen import Seen, Standing
from akv_rsi.search.candidate import Score
from akv_rsi.tui.look import short, spread
from akv_rsi.tui.table import Column

Stand = Callable[[Seen], Standing | None]
Known = Callable[[Seen], Score | None]


def columns(
    label: Callable[[Seen], str], stand: Stand, known: Known, budget: float
) -> list[Column[Seen]]:
    """All of them; ``stand`` tells how a policy did on the split that is shown.

    ``known`` tells its intervals, as far as they are known.
    """

    def order(name: str) -> Callable[[Seen], tuple[bool, float]]:
        return lambda seen: (stand(seen) is not None, _value(stand(seen), name))

    def figure(name: str) -> Callable[[Seen], str]:
        return lambda seen: short(_value(s, name)) if (s := stand(seen)) else "-"

    def limits(name: str) -> Callable[[Seen], str]:
        return lambda seen: spread(getattr(s, name)) if (s := known(seen)) else ""

    def count(seen: Seen) -> int:
        return len(s.ours) if (s := stand(seen)) else 0

    def dear(seen: Seen) -> str:
        return "red" if _value(stand(seen), "ratio") > budget else ""

    accuracy, ratio = order("accuracy"), order("ratio")
    return [
        Column("policy", 22, label, lambda seen: seen.label, left=True),
        Column("acc", 5, figure("accuracy"), accuracy),
        Column("95%", 8, limits("accuracy"), accuracy, rank=5),
        Column("cost", 5, figure("ratio"), ratio, style=dear),
        Column("95% ", 9, limits("cost_ratio"), ratio, rank=5),
        Column("n", 4, lambda seen: str(count(seen) or ""), count, rank=1),
        _text("arm", 9, lambda seen: seen.origin, 2),
        _text("by", 8, lambda seen: seen.candidate.operator, 3),
        Column("rnd", 4, lambda s: str(s.candidate.born), lambda s: s.candidate.born, rank=4),
        _text("verbs", 18, _verbs, 7),
        _text("from", 17, _parents, 6),
        _text("fate", 11, lambda seen: seen.fate, 8),
    ]


def _text(name: str, width: int, text: Callable[[Seen], str], rank: int) -> Column[Seen]:
    return Column(name, width, text, text, rank, left=True)


def _value(standing: Standing | None, name: str) -> float:
    return 0.0 if standing is None else float(getattr(standing, name))


def _verbs(seen: Seen) -> str:
    return " ".join(verbs_of(seen)) if seen.spec.kind == "program" else seen.spec.kind


def _parents(seen: Seen) -> str:
    return " ".join(parent[:8] for parent in seen.candidate.parents)
