"""How far a search is: its curve, its ledger and its log, from the steps it has recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from akv_rsi.insight.run import Run, Step
from akv_rsi.insight.seen import Seen
from akv_rsi.tasks.episode import Episode, TaskRef


@dataclass(frozen=True, slots=True)
class Point:
    """The best policy of an arm after a round: on how many tasks, how accurate, how dear."""

    round: int
    tasks: int
    accuracy: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Account:
    """What an arm has spent of its episodes; ``waiting`` candidates are still to be run."""

    arm: str
    candidates: int
    spent: int
    limit: int
    waiting: int


def curve(run: Run, arm: str) -> list[Point]:
    """Round by round an arm's best policy: the most accurate within the budget, or nearest to it.

    Of those run on the most tasks, so a lucky start is corrected later.
    """
    done: dict[str, dict[TaskRef, Episode]] = {}
    mine: set[str] = set()
    full = run.full.episodes.get("train", {})
    points: list[Point] = []
    number = 0
    for step in run.steps:
        if step.kind == "proposals" and step.key.partition("/")[0] == arm:
            points += _best(done, full, run.budget, number)
            number = int(step.key.rpartition("/")[2])
            mine |= {row["candidate"].id for row in step.body if not row["fate"]}
        elif step.kind == "evaluation" and step.body["split"] == "train":
            for identity, row in zip(step.body["policies"], step.body["episodes"], strict=True):
                if identity in mine:
                    done.setdefault(identity, {}).update({e.task: e for e in row})
    return points + _best(done, full, run.budget, number)


def _best(
    done: dict[str, dict[TaskRef, Episode]],
    full: dict[TaskRef, Episode],
    budget: float,
    number: int,
) -> list[Point]:
    points = []
    for own in done.values():
        tasks = [task for task in own if task in full]
        ratio = sum(own[t].cost for t in tasks) / sum(full[t].cost for t in tasks)
        accuracy = sum(own[t].success for t in tasks) / len(tasks)
        points.append(Point(number, len(tasks), accuracy, ratio))
    within = [p for p in points if p.ratio <= budget]
    if not within:
        return [min(points, key=lambda p: p.ratio)] if points else []
    most = max(point.tasks for point in within)
    return [max((p for p in within if p.tasks == most), key=lambda p: (p.accuracy, -p.ratio))]


def arms(run: Run) -> list[str]:
    """The arms of the run, in the order in which they spoke."""
    return list(dict.fromkeys(s.key.partition("/")[0] for s in run.steps if s.kind == "proposals"))


def accounts(run: Run) -> list[Account]:
    """What each arm has spent on train and validation tasks."""
    out = []
    for arm in arms(run):
        mine = [seen for seen in run.policies.values() if arm in seen.arms]
        spent = sum(len(seen.episodes.get("train", {})) for seen in mine)
        waiting = sum(not seen.episodes for seen in mine)
        limit = run.config.episodes
        if run.report is not None:
            spent = run.report.episodes.get(arm, spent)
        out.append(Account(arm, len(mine), spent, limit, waiting))
    return out


def waiting(run: Run) -> list[Seen]:
    """What was proposed for running and has no result yet: what is evaluated now."""
    return [seen for seen in run.policies.values() if seen.arms and not seen.episodes]


def seconds(run: Run) -> float:
    """How long the recorded steps took."""
    if run.report is not None:
        return run.report.wall_s
    return sum(step.seconds for step in run.steps)


def is_held(process: int) -> bool:
    """Whether a process of this machine is paused (by SIGSTOP), as far as /proc tells."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state in "Tt"


def line(step: Step) -> str:
    """A step in one line, for the log."""
    body, kind = step.body, step.kind
    if kind == "proposals":
        entered = sum(not row["fate"] for row in body)
        arm, _, number = step.key.rpartition("/")
        return f"{arm}, round {number}: {len(body)} proposals, {entered} to run"
    if kind == "evaluation":
        tasks = len(body["episodes"][0]) if body["episodes"] else 0
        solved = sum(e.success for row in body["episodes"] for e in row)
        count = len(body["policies"])
        who = f"{count} policies" if count > 1 else "1 policy"
        return f"{who} on {tasks} {body['split']} tasks: {solved:g} of {count * tasks} solved"
    if kind == "parity":
        return f"{step.key[:8]}: {'decides alike in plain Python' if body else 'no parity'}"
    if kind == "unseal":
        return f"the sealed test is opened for {len(body['policies'])} policies"
    if kind == "report":
        best = body["best"]
        return f"done: {best['id'][:8]} is the best"
    return f"{kind} {step.key}".rstrip()
