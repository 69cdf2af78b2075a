"""Trains the reference agent: ``python -m akv_rsi.tasks.reference.train --out FOLDER``.

One GPU, minutes. Expert episodes under random cache operations (`lessons`) become rows (`units`) of
ordinary supervised training; a repositioned history is attended to phase by phase, with its keys
rotated by the difference to where they were born. Everything is derived from ``--seed``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from bisect import bisect
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, LlamaForCausalLM

from akv_rsi.tasks.agent import WordFormat
from akv_rsi.tasks.reference.architecture import reference_config
from akv_rsi.tasks.reference.lessons import Lesson, Plan, Style, write_lesson, write_recap
from akv_rsi.tasks.reference.model import (
    TRAINED_SPAN,
    reference_vocabulary,
    save_tokenizer,
    scripted_suites,
)
from akv_rsi.tasks.reference.units import units_of
from akv_rsi.tasks.suites import TRAINED_FROM
from akv_rsi.tasks.suites.world import ScriptedEnvironment, ScriptedSuite, write_drill

Kind = Literal["first", "drill", "short", "short+repos", "long", "long+repos", "recap"]
WIDTH_OF: dict[Kind, int] = {
    "first": 144,
    "drill": 256,
    "short": 512,
    "short+repos": 512,
    "long": 576,
    "long+repos": 1408,
    "recap": 576,
}
# The curriculum: relative frequency of each kind of batch, stage by stage.
STAGES = (
    (90, 5, 5, 0, 0, 0, 0),
    (10, 75, 15, 0, 0, 0, 0),
    (0, 30, 70, 0, 0, 0, 0),
    (0, 5, 25, 20, 15, 27, 8),
)
STYLES: tuple[Style, ...] = ("keep", "hindsight", "rolling", "tools", "scattered")
ENDLESS = 1 << 30


@dataclass(frozen=True, slots=True)
class Settings:
    """``steps`` of AdamW, of which ``stages`` go to the curriculum's first stages, in order."""

    seed: int = 0
    steps: int = 8000
    stages: tuple[int, ...] = (1000, 900, 1600)
    rope_theta: float = 1e4
    peak_rate: float = 2e-3
    warmup: int = 200
    weight_decay: float = 0.05
    rows: int = 24_576
    workers: int = 14


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded lessons, ``B`` of them with ``T`` rows: arrays ``[B, T]``, positions ``[P, B, T]``."""

    tokens: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]  # [B, T, 5]: logical, time, born, gone, phase
    positions: np.ndarray[Any, Any]
    targets: np.ndarray[Any, Any]


def collate(lessons: list[Lesson], multiple: int = 64) -> Batch:
    """Lessons side by side. A padding row sees itself only, and nobody sees it."""
    units = [units_of(len(lesson.tokens), lesson.history) for lesson in lessons]
    width = -(-max(len(u.logical) for u in units) // multiple) * multiple
    phases = max(len(u.positions) for u in units)
    tokens = np.zeros((len(lessons), width), np.int64)
    rows = np.zeros((len(lessons), width, 5), np.int64)
    rows[:, :, 0] = rows[:, :, 2] = ENDLESS + np.arange(width)
    positions = np.zeros((phases, len(lessons), width), np.int64)
    targets = np.zeros((len(lessons), width), bool)
    for b, (lesson, u) in enumerate(zip(lessons, units, strict=True)):
        n = len(u.logical)
        tokens[b, :n] = np.array(lesson.tokens)[u.logical]
        rows[b, :n] = np.stack([u.logical, u.time, u.born, u.gone, u.phase], axis=1)
        positions[: len(u.positions), b, :n] = u.positions
        targets[b, : len(lesson.tokens)] = lesson.targets
    return Batch(tokens, rows, positions, targets)


def write_batch(kind: Kind, seed: str, rows: int, chat: WordFormat) -> Batch:
    """A batch of one kind and about ``rows`` rows; the same seed gives the same batch."""
    rng = random.Random(seed)
    suites = scripted_suites()
    lessons = []
    for _ in range(max(1, rows // WIDTH_OF[kind])):
        suite = rng.choice(suites)
        if kind in ("first", "drill"):
            turns = rng.randint(3, 8) if kind == "first" else rng.randint(6, 18)
            script = write_drill(suite.skin, rng, turns)
        else:
            task = TRAINED_FROM + 2 * rng.randrange(10**8) + kind.startswith("long")
            script = suite.script(task)
        env = ScriptedEnvironment(script)
        if kind == "recap":
            lessons.append(write_recap(env, chat, rng.randint(2, 11)))
            continue
        plan = Plan(
            rng.choice(STYLES if kind != "long+repos" else STYLES[1:]),
            span=TRAINED_SPAN if rng.random() < 0.5 else rng.randint(256, TRAINED_SPAN),
            max_repos={"short+repos": 2, "long+repos": 5}.get(kind, 0),
            early_repos=0.3 if kind == "short+repos" else 0.05,
            refresh=rng.choice((0.0, 0.0, 0.5, 1.0)),
        )
        lessons.append(write_lesson(env, chat, plan, rng))
    return collate([lesson for lesson in lessons if any(lesson.targets)])


def kind_at(step: int, settings: Settings) -> Kind:
    """The kind of batch a step trains on: drills first, then short episodes, then everything."""
    rng = random.Random(f"{settings.seed}/kind/{step}")
    stage = bisect(list(itertools.accumulate(settings.stages)), step)
    weights = STAGES[min(stage, len(STAGES) - 1)]
    return rng.choices(tuple(WIDTH_OF), weights)[0]


_worker_chat: WordFormat


def _start_worker(words: dict[str, int]) -> None:
    global _worker_chat
    _worker_chat = WordFormat(words, TRAINED_SPAN)


def _work(job: tuple[Kind, str, int]) -> Batch:
    return write_batch(*job, _worker_chat)


def batches(settings: Settings, words: dict[str, int]) -> Iterator[Batch]:
    """The batches of a whole training, written by worker processes, in order."""
    jobs = [
        (kind_at(i, settings), f"{settings.seed}/{i}", settings.rows) for i in range(settings.steps)
    ]
    with get_context("spawn").Pool(settings.workers, _start_worker, (words,)) as pool:
        yield from pool.imap(_work, jobs, chunksize=4)


class Rows:
    """A batch on the device: the mask, and each phase's rotation of the keys.

    ``mask [B, 1, T, T]``; ``birth [B, T]`` the rows' own positions; ``turns[p] = (cos, sin)`` of
    shape ``[B, 1, T, D]`` rotate keys to phase ``p``; ``phase [B, 1, T, 1]``.
    """

    def __init__(self, batch: Batch, inverse_frequencies: Tensor) -> None:
        device = inverse_frequencies.device
        rows = torch.from_numpy(batch.rows).to(device, non_blocking=True)
        logical, when, born, gone, phase = rows.unbind(-1)
        sees = (born[:, None] <= when[..., None]) & (when[..., None] < gone[:, None])
        same = torch.eye(rows.shape[1], dtype=torch.bool, device=device)
        self.mask = ((sees & (logical[:, None] < logical[..., None])) | same)[:, None]
        positions = torch.from_numpy(batch.positions).to(device)
        self.birth = positions.gather(0, phase[None])[0]
        self.phase = phase[:, None, :, None]
        self.turns = []
        for table in positions if len(positions) > 1 else ():
            angle = (table - self.birth)[..., None].double() * inverse_frequencies.double()
            angle = torch.cat([angle, angle], dim=-1)[:, None]
            self.turns.append((angle.cos().float(), angle.sin().float()))


_rows: Rows


def _attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any
) -> tuple[Tensor, None]:
    """Attention over rows: ``query [B, H, T, D]`` and ``key``, ``value [B, 1, T, D]``."""
    heads = query.shape[1]
    value = value.expand(-1, heads, -1, -1)
    if not _rows.turns:
        key = key.expand(-1, heads, -1, -1)
        out = F.scaled_dot_product_attention(query, key, value, _rows.mask)
        return out.transpose(1, 2), None
    half = key.shape[-1] // 2
    swapped = torch.cat([-key[..., half:], key[..., :half]], dim=-1)
    out = torch.zeros_like(query)
    for phase, (cos, sin) in enumerate(_rows.turns):
        turned = (key * cos + swapped * sin).to(key.dtype).expand(-1, heads, -1, -1)
        seen = F.scaled_dot_product_attention(query, turned, value, _rows.mask)
        out = torch.where(_rows.phase == phase, seen, out)
    return out.transpose(1, 2), None


def predict(model: LlamaForCausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits ``[N, V]`` and right answers ``[N]`` of all targets of a batch, row by row."""
    global _rows
    device = model.lm_head.weight.device
    _rows = Rows(batch, model.model.rotary_emb.inv_freq)
    tokens = torch.from_numpy(batch.tokens).to(device)
    hidden = model.model(input_ids=tokens, position_ids=_rows.birth, use_cache=False)[0]
    targets = torch.from_numpy(batch.targets).to(device)
    before = targets.roll(-1, dims=1)
    return model.lm_head(hidden[before]), tokens[targets]


@dataclass(frozen=True, slots=True)
class Exam:
    """Unseen episodes: ``counts[k]`` targets of batch ``k``'s lessons, in order."""

    batches: tuple[Batch, ...]
    counts: tuple[tuple[int, ...], ...]


def write_exam(chat: WordFormat, style: Style, long: bool, span: int, episodes: int = 240) -> Exam:
    """Episodes the training never uses; a span above the trained one is never repositioned."""
    suites, size = scripted_suites(), 24
    plan = Plan(style, span, max_repos=0 if span == ENDLESS else 99)
    groups = [
        [
            write_lesson(_unseen(suites[i % 3], 2 * i + long), chat, plan, random.Random(i))
            for i in range(start, start + size)
        ]
        for start in range(0, episodes, size)
    ]
    counts = tuple(tuple(sum(lesson.targets) for lesson in group) for group in groups)
    return Exam(tuple(collate(group) for group in groups), counts)


def _unseen(suite: ScriptedSuite, index: int) -> ScriptedEnvironment:
    return ScriptedEnvironment(suite.script(TRAINED_FROM - 2_000 + index))


def write_drill_exam(chat: WordFormat, episodes: int = 48) -> Exam:
    """Drills, to watch retrieval appear."""
    rng = random.Random("drill exam")
    skins = [suite.skin for suite in scripted_suites()]
    scripts = [write_drill(skins[i % 3], rng, 12) for i in range(episodes)]
    plan = Plan("keep", ENDLESS)
    lessons = [write_lesson(ScriptedEnvironment(script), chat, plan, rng) for script in scripts]
    return Exam((collate(lessons),), (tuple(sum(lesson.targets) for lesson in lessons),))


def write_exams(chat: WordFormat) -> dict[str, Exam]:
    """Within and beyond the trained span, with everything kept and with drops."""
    return {
        "drill": write_drill_exam(chat),
        "short_keep": write_exam(chat, "keep", False, ENDLESS),
        "short_hindsight": write_exam(chat, "hindsight", False, TRAINED_SPAN),
        "long_keep": write_exam(chat, "keep", True, ENDLESS),
        "long_hindsight": write_exam(chat, "hindsight", True, TRAINED_SPAN),
        "long_tools": write_exam(chat, "tools", True, TRAINED_SPAN),
    }


@torch.no_grad()
def success(model: LlamaForCausalLM, exam: Exam) -> tuple[float, float]:
    """Shares of episodes, and of tokens, that are right when all before them were."""
    right, total, tokens = 0, 0, 0.0
    for batch, counts in zip(exam.batches, exam.counts, strict=True):
        with torch.autocast(model.device.type, torch.bfloat16):
            logits, wanted = predict(model, batch)
        hits = (logits.argmax(-1) == wanted).tolist()
        tokens += sum(hits) / len(hits)
        for count in counts:
            right, hits = right + all(hits[:count]), hits[count:]
            total += 1
    return round(right / total, 4), round(tokens / len(exam.batches), 4)


def train(settings: Settings, out: Path, device: str) -> None:
    """Trains, reports and saves the agent into ``out``."""
    AttentionInterface.register("akv_rows", _attend)
    torch.backends.cuda.enable_cudnn_sdp(False)  # a masked training through it ended in NaN
    torch.manual_seed(settings.seed)
    words = reference_vocabulary()
    chat = WordFormat(words, TRAINED_SPAN)
    model = LlamaForCausalLM(reference_config(len(words), settings.rope_theta)).to(device)
    model.set_attn_implementation("akv_rows")
    size = sum(p.numel() for p in model.parameters())
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.peak_rate, betas=(0.9, 0.98))
    exams, skipped = write_exams(chat), 0
    started = time.perf_counter()
    for step, batch in enumerate(batches(settings, words)):
        rate = settings.peak_rate * _schedule(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(device, torch.bfloat16):
            logits, wanted = predict(model, batch)
            loss = F.cross_entropy(logits.float(), wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()
        else:
            skipped += 1  # one bad gradient must not end a training
        if step % 500 == 499 or step + 1 == settings.steps:
            progress = {name: success(model, exam) for name, exam in exams.items()}
            seconds = time.perf_counter() - started
            print(
                f"step {step + 1} loss {loss.item():.4f} {seconds:.0f} s "
                f"skipped {skipped} {progress}",
                flush=True,
            )
            record = {"parameters": size, "seconds": round(seconds), "steps": step + 1, **progress}
            save(model, words, out, settings, record)


def _schedule(step: int, settings: Settings) -> float:
    if step < settings.warmup:
        return (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))


def save(
    model: LlamaForCausalLM,
    words: dict[str, int],
    out: Path,
    settings: Settings,
    figures: dict[str, Any],
) -> None:
    """Writes weights in half precision, tokenizer, and ``training.json``: settings and figures."""
    out.mkdir(parents=True, exist_ok=True)
    shipped = LlamaForCausalLM(reference_config(len(words), settings.rope_theta))
    shipped.load_state_dict(model.state_dict())
    shipped.half().save_pretrained(out)
    save_tokenizer(out, words)
    record = {"settings": asdict(settings), "torch": torch.__version__, "figures": figures}
    (out / "training.json").write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, default in asdict(Settings()).items():
        if name != "stages":
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args())
    out, device = given.pop("out"), given.pop("device")
    train(Settings(**given), out, device)


if __name__ == "__main__":
    main()
