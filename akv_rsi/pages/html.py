"""The pieces of a page: one file, no scripts, nothing to load, for eye, keyboard and ear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 640
# Each at least 3:1 against white and against the dark page.
COLOURS = ("#4361ee", "#c2540a", "#2a8a6b", "#9a7b00", "#9b5de5", "#577590", "#d62839", "#7a8288")
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1e; --paper: #fff; --soft: #495057; --line: #ced4da;
  --bad: #b02a37; --shade: #f1f3f5 }
@media (prefers-color-scheme: dark) { :root { --ink: #e9ecef; --paper: #16181c; --soft: #adb5bd;
  --line: #495057; --bad: #ff8787; --shade: #24272d } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
  color: var(--ink); background: var(--paper) }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere }
h2 { font-size: 1.25rem; margin-top: 2.2rem } h3 { font-size: 1.05rem; overflow-wrap: anywhere }
.scroll { overflow-x: auto } .scroll:focus-visible { outline: 2px solid #4361ee }
table { border-collapse: collapse; margin: .5rem 0; width: 100% }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums }
th:first-child { text-align: left; min-width: 7rem } td { white-space: nowrap }
.words { text-align: left; min-width: 15rem } td.words { white-space: normal }
svg { width: 100%; height: auto; display: block } svg text { font-size: 12px; fill: var(--soft) }
svg .axis { stroke: var(--line) } svg .mark { fill: var(--ink) }
.wide svg { min-width: 30rem }
pre { background: var(--shade); padding: .8rem; font-size: .85rem; overflow-x: auto }
code { overflow-wrap: anywhere }
.note { color: var(--soft) } .bad { color: var(--bad) }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; list-style: none;
  color: var(--soft) }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """The whole page."""
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    body = f"<body><main>{''.join(parts)}</main></body>"
    return f'<!doctype html><html lang="en"><head>{head}</head>{body}</html>\n'


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; ``kind`` is note or bad."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def table(names: Sequence[str], rows: Iterable[Sequence[str]], label: str, words: int = 0) -> str:
    """A table that scrolls by itself; the last ``words`` columns hold text."""
    first_words = len(names) - words

    def cell(number: int, text: str) -> str:
        if number == 0:
            return f'<th scope="row">{escape(text)}</th>'
        kind = ' class="words"' if number >= first_words else ""
        return f"<td{kind}>{escape(text)}</td>"

    head = "".join(
        f'<th scope="col"{" class=words" if i >= first_words else ""}>{escape(name)}</th>'
        for i, name in enumerate(names)
    )
    body = "".join(
        f"<tr>{''.join(cell(i, text) for i, text in enumerate(row))}</tr>" for row in rows
    )
    return scrolling(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>", label)


def scrolling(inside: str, label: str) -> str:
    """What may be wider than the screen; it can be scrolled by keyboard."""
    about = f'tabindex="0" role="region" aria-label="{escape(label)}"'
    return f'<div class="scroll wide" {about}>{inside}</div>'


def bullets(lines: Sequence[str]) -> str:
    """A list."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def ordered(lines: Sequence[str]) -> str:
    """A numbered list."""
    return f"<ol>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ol>"


def key(entries: Iterable[tuple[str, str]]) -> str:
    """The key of a plot: ``(colour, name)``."""
    items = (
        f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for colour, name in entries
    )
    return f'<ul class="key">{"".join(items)}</ul>'


def svg(height: float, inside: str, label: str) -> str:
    """A drawing `WIDTH` wide with a text alternative."""
    box = f'viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}"'
    return f"<svg {box}>{inside}</svg>"


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Words in a drawing."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    """A box in a drawing, with a hint."""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
    return f'<rect {box} fill="{colour}"><title>{escape(title)}</title></rect>'


def dot(x: float, y: float, radius: float, colour: str, title: str) -> str:
    """A dot in a drawing, with a hint."""
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"'
    return f'<circle {place} fill="{colour}"><title>{escape(title)}</title></circle>'


def mark(x: float, y: float, width: float, height: float, title: str) -> str:
    """A box in the colour of text."""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="mark" {box}><title>{escape(title)}</title></rect>'


def line(x1: float, x2: float, y1: float, y2: float, colour: str = "") -> str:
    """A line; without a colour that of axes."""
    stroke = f'stroke="{colour}"' if colour else 'class="axis"'
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" {stroke}/>'


def polyline(points: Iterable[tuple[float, float]], colour: str) -> str:
    """A line through points."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'


def colour_of(number: int) -> str:
    """A colour by its number."""
    return COLOURS[number % len(COLOURS)]
