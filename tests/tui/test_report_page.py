"""The report: complete, well-formed, self-contained, readable by everybody."""

import json
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from akv_rsi.cli import run as command
from akv_rsi.insight.compare import source_of
from akv_rsi.pages.html import COLOURS
from akv_rsi.pages.report import page

VOID = {"meta", "rect", "line", "polyline", "path", "circle"}


@pytest.fixture(scope="module")
def html(recorded):
    return page(recorded)


class Elements(HTMLParser):
    """Every element with its attributes; raises where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID or tag in ("rect", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_it_is_well_formed_and_loads_nothing(html):
    elements = Elements(html)
    assert not elements.of("script")
    assert not [a for _, a in elements.found if {"src", "href"} & set(a)]
    assert "url(" not in html
    assert elements.of("meta")[1]["name"] == "viewport"


def test_who_cannot_see_or_point_gets_everything(html):
    elements = Elements(html)
    assert elements.of("html") == [{"lang": "en"}]
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in elements.of("svg"))
    assert all(a["scope"] in ("col", "row") for a in elements.of("th"))
    regions = [a for a in elements.of("div") if "scroll" in a["class"]]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in regions)
    levels = [int(tag[1]) for tag, _ in elements.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def luminance(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_enough_in_light_and_dark():
    for paper, inks in (
        ("#ffffff", ("#1b1b1e", "#495057", "#b02a37")),
        ("#16181c", ("#e9ecef", "#adb5bd", "#ff8787")),
    ):
        assert all(contrast(paper, ink) >= 4.5 for ink in inks)
        assert all(contrast(paper, colour) >= 3 for colour in COLOURS)


def test_it_says_what_the_search_found(html, recorded):
    report = recorded.report
    assert f"{report.best.test.cost_ratio.estimate:.1%} of keeping everything" in html
    assert f"{report.best.test.accuracy.estimate:.3f} [" in html
    for named in report.baselines:
        assert f"{named.name} (hand-written)" in html
    assert escape(source_of(recorded.best)) in html
    for words in ("without line", "cache writes", "A tie", "--seed 0", "oracle"):
        assert words in html


def test_the_command_writes_it_and_refuses_an_unfinished_run(capsys, copy, tmp_path):
    target = tmp_path / "page.html"
    assert command(["report", str(copy), "--output", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(target)}
    assert target.read_text().startswith("<!doctype html>")
    assert command(["report", str(copy), "--output", str(tmp_path / "no" / "page.html")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    (copy / "run.sqlite").unlink()
    assert command(["report", str(copy)]) == 1
    assert "is not finished (stopped)" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_is_wider_than_the_screen(html, tmp_path, width):
    frame = f'<iframe id="f" style="width:{width}px;border:0" srcdoc="{escape(html)}"></iframe>'
    script = (
        "const f=document.getElementById('f');f.onload=()=>{"
        "const e=f.contentDocument.documentElement;document.title=e.scrollWidth-e.clientWidth}"
    )
    harness = tmp_path / "frame.html"
    harness.write_text(f"<!doctype html><title>none</title>{frame}<script>{script}</script>")
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         "--virtual-time-budget=5000", f"--window-size={width + 40},900", f"file://{harness}"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert "<title>0</title>" in done.stdout
