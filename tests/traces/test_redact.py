"""Planted keys of many kinds: none comes out, whole or in part, whatever report is made."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from make import document, only, turn

from akv_rsi.cli import run
from akv_rsi.tasks.traces.audit import AuditConfig, audit_trace
from akv_rsi.tasks.traces.redact import cut, mask, redact
from akv_rsi.tasks.traces.report import Report

S = "Zq7Xw9Kp2Lm4Nb8Vc6Rt1Yu3Hs5Jd0Fg"
PLANTED = [
    # by their shape
    f"sk-{S}", f"sk-ant-api03-{S}", f"sk-proj-{S}", f"sk_live_{S}", f"ghp_{S}",
    f"github_pat_11AAA_{S}", f"glpat-{S}", f"xoxb-{S}", f"npm_{S}", f"pypi-{S}", f"hf_{S}",
    f"AIza{S}", f"SG.{S}.{S}", f"https://hooks.slack.com/services/T0/B0/{S}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{S}", f"eyJhbGciOiJIUzI1NiJ9..{S}.{S}.x",
    f"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n{S}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{S}\\nabc",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{S}\n-----END PGP PRIVATE KEY BLOCK-----",
    f"{S}\nabc\n-----END PRIVATE KEY-----",
    # by their place
    f"Bearer {S}", f"Authorization: Basic {S}==", f"authorization: token {S}", f"x-api-key: {S}",
    f"'Authorization': 'Bearer {S}'", f"Cookie: a=b; sid={S}", f"postgres://me:{S}@host/db",
    f"redis://:{S}@host", f"https://me:a:{S}@host/x", f"https://me:p@{S}@host/x",
    f"https:\\/\\/me:{S}@host", f"https://{S}@github.com/x", f"curl -u me:{S} http://host",
    f"sshpass -p {S} ssh host", f"mysql --user root:{S}", f"https://s3/x?X-Amz-Signature={S}",
    # by their names
    f"aws_secret_access_key = {S}", f'"SecretAccessKey": "{S}"', f"password=ab;{S}",
    f"PASSWORD: 'correct {S} staple'", f'"password": "correct {S}"', f"DB_PASS={S}",
    f"MYSQL_PWD={S}", f"AccountKey={S}==", f"export TOKEN='{S}'", f"'password' => '{S}'",
    f"--password {S}", f"token {S}",
    # behind escapes
    json.dumps(f"x\nsk-{S}"), json.dumps({"k": f"\tghp_{S}"}), f"sk\\u002dant\\u002d{S}",
    json.dumps(json.dumps(json.dumps({"api_key": S}))), f'{{\\"client_secret\\": \\"{S}\\"}}',
]  # fmt: skip
SHORT = [
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSF"), ("password=hunter2hunter2", "hunter2"),
    ("--password Zq7X!w9K", "Zq7X"), ("PGPASSWORD=Zq7X psql", "Zq7X"),
]  # fmt: skip


@pytest.mark.parametrize("text", PLANTED)
def test_planted_keys_are_masked(text: str) -> None:
    for around in (text, f"export X={text}; run", f"a {text}\nb"):
        assert S not in mask(around)
        assert "[secret]" in mask(around)


@pytest.mark.parametrize(("text", "secret"), SHORT)
def test_short_ones_too(text: str, secret: str) -> None:
    assert secret not in mask(f"run {text} on")


def test_ordinary_text_is_left_alone() -> None:
    for text in (
        "cat src/tokenizer.py", "max_tokens = 4096", "grep -n password app.py",
        "git commit -m 'task: fix'", "see https://example.com/a@b", "ls disk-aaaaaaaaaaaaaaaaaaaa",
        "def f(token): return 1", "user@example.com:22", "total tokens: 12",
    ):  # fmt: skip
        assert mask(text) == text
    assert redact("a") == redact("a") != redact("b")


def test_a_cut_leaves_no_half_of_a_key() -> None:
    text = f"curl -H x-key:sk-{S} host"
    for size in range(len(text) + 1):
        shown = mask(cut(text, size))
        assert "Zq" not in shown


@pytest.mark.parametrize("text", ["a", "://a:", "-", "token='", "eyJaaaaaaaa.", "secret", "\\u00"])
def test_no_text_takes_long(text: str) -> None:
    start = time.process_time()
    mask(text * (20_000 // len(text)))
    assert time.process_time() - start < 2


def planted(path: Path) -> Path:
    """Keys in the task, in calls, at each place where a long call may be cut, and in results."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You are an agent. {PLANTED[0]}"},
        {"role": "user", "content": "\n".join(PLANTED)},
    ]
    for number, text in enumerate(PLANTED):
        shift = "x" * (60 + number % 60)
        for _ in range(2):
            args = {"cmd": f"private-host {shift} {text}"}
            messages += turn(number, f"{text} answer " * 30, args=args)
    for number in range(240, 262):
        for _ in range(2):
            messages += turn(number, "answer " * 30, args={"cmd": f"{'y ' * (number // 2)}sk-{S}"})
    return document(path, {"messages": messages})


def test_reports_hold_no_keys_and_if_asked_no_text(tmp_path: Path) -> None:
    config = AuditConfig()
    audit = audit_trace(only(planted(tmp_path / "private.json")), config, None)
    plain = json.dumps(Report([audit], [], config).to_json())
    assert S[:4] not in plain
    assert "private-host" in plain
    hidden = json.dumps(Report([audit], [], config, redacted=True).to_json())
    assert "private" not in hidden


@pytest.mark.parametrize("more", [(), ("--json",), ("--redact",)])
def test_the_audit_prints_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    path, page = planted(tmp_path / "t.json"), tmp_path / "page.html"
    arguments = ["audit", str(path), "--work", "0", "--html", str(page), *more]
    assert run(arguments) == 0
    assert S[:4] not in capsys.readouterr().out + page.read_text()


@pytest.mark.parametrize("more", [(), ("--json",), ("--redact", "--json")])
def test_fidelity_prints_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: tuple[str, ...]
) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "open view"}]
    for number in range(6):
        messages += turn(number, f"{'open ' * (8 + number)} sk-{S} view", args={"at": "view"})
    path = document(tmp_path / "t.json", {"messages": messages})
    arguments = ["fidelity", str(path), "--policy", "rolling_drop:keep=1", "--tokens", "900"]
    assert run([*arguments, *more]) == 0
    out = capsys.readouterr().out
    assert "rolling_drop" in out
    assert S[:4] not in out
