"""The lint: what it refuses, at which line, and that every shipped policy passes it."""

from __future__ import annotations

import pytest

from akv_rsi.errors import ConfigError, LintError
from akv_rsi.policies import library
from akv_rsi.policies.lint import LONGEST_SOURCE, lint
from akv_rsi.policies.sandbox import check_types
from akv_rsi.policies.tunables import Tunable, freeze, tunables_of
from akv_rsi.policies.vocabulary import capabilities_of, check_target, needs_of

HEAD = "from akv_rsi.policies.dsl import Context, drop, tunable\n"


def body(*lines: str) -> str:
    return HEAD + "def policy(ctx):\n" + "".join(f"    {line}\n" for line in lines)


def refused(source: str) -> str:
    with pytest.raises(LintError) as caught:
        lint(source)
    return str(caught.value)


@pytest.mark.parametrize("name", library.PROGRAMS)
def test_the_library_passes(name: str) -> None:
    lint(library.spec(name).source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os\n" + body("pass"), "line 1: import of os is not allowed"),
        (body("import os"), "line 3: import of os is not allowed"),
        ("from os import path\n" + body("pass"), "line 1: import of os is not allowed"),
        ("from . import x\n" + body("pass"), "line 1: import of . is not allowed"),
        (
            "from akv_rsi.policies.dsl import evict\n" + body("pass"),
            "line 1: unknown verb 'evict'",
        ),
        (
            "from akv_rsi.policies.dsl import drop as d\n" + body("pass"),
            "line 1: import drop under its own name",
        ),
        (body("from akv_rsi.policies.dsl import keep"), "line 3: an import must stand at the top"),
        (body("evict(ctx)"), "line 3: unknown name 'evict'"),
        (body("drp(ctx)"), "line 3: unknown name 'drp' (did you mean drop?)"),
        (body("keep(ctx)"), "line 3: 'keep' is used but not imported from akv_rsi.policies.dsl"),
        (body("ctx.__class__"), "line 3: '__class__': names that begin with an underscore"),
        (body("ctx._by_id"), "line 3: '_by_id': names that begin with an underscore"),
        (body("__import__('os')"), "line 3: unknown name '__import__'"),
        (body("x = __builtins__"), "line 3: unknown name '__builtins__'"),
        (body("open('/etc/passwd')"), "line 3: unknown name 'open'"),
        (body("getattr(ctx, 'x')"), "line 3: unknown name 'getattr'"),
        (body("'{0.x}'.format(ctx)"), "line 3: unknown field or method 'format'"),
        (body("ctx.segment"), "line 3: unknown field or method 'segment' (did you mean segments?)"),
        (body("ctx.turn = 3"), "line 3: 'turn' cannot be assigned"),
        (body("x = 1", "ctx.turn += x"), "line 4: 'turn' cannot be assigned"),
        (
            body("try:", "    pass", "except ValueError:", "    pass"),
            "line 3: 'try' is not allowed",
        ),
        (body("with ctx:", "    pass"), "line 3: 'with' is not allowed"),
        (body("raise ValueError"), "line 3: 'raise' is not allowed"),
        (body("global x"), "line 3: 'global' is not allowed"),
        (body("class A:", "    pass"), "line 3: 'class' is not allowed"),
        (body("yield 1"), "line 3: 'yield' is not allowed"),
        (body("del ctx"), "line 3: 'del' is not allowed"),
        (body("x = 1 << 99"), "line 3: '<<' is not allowed"),
        (body("x = 2", "x **= 3"), "line 4: '**=' is not allowed"),
        (body("x = round(0.5, 1)"), "line 3: round takes one argument"),
        (body("x = [s for s in {1, 2}]"), "line 3: the order of a set is undefined"),
        (body("for s in set('ab'):", "    pass"), "line 3: the order of a set is undefined"),
        (body("x = tunable('a', 1, 2, 1)"), "line 3: a tunable must be declared outside"),
        (body("drop = 3"), "line 3: 'drop' is a reserved name"),
        (body("next = 3"), "line 3: 'next' is a reserved name"),
        (body("Runtime = 3"), "line 3: 'Runtime' is a reserved name"),
        (body("_x = 3"), "line 3: '_x': names must not begin with an underscore"),
        ("SEEN = []\n" + body("pass"), "line 1: a name outside of functions must hold a number"),
        ("SEEN = {}\n" + body("pass"), "line 1: a name outside of functions must hold a number"),
        (
            "for x in ():\n    pass\n" + body("pass"),
            "line 1: only imports, constants and functions",
        ),
        (HEAD + "def f(x=[]):\n    pass\n" + body("pass"), "line 2: the defaults of f must be"),
        (HEAD + "@drop\n" + body("pass").replace(HEAD, ""), "decorators are not allowed"),
        (HEAD, "line 1: no function policy(ctx) is defined"),
        (HEAD + "def policy():\n    pass\n", "line 2: policy must take exactly one argument"),
        (HEAD + "def policy(a, b):\n    pass\n", "line 2: policy must take exactly one argument"),
        (HEAD + "async def policy(ctx):\n    pass\n", "line 2: 'async' is not allowed"),
        (HEAD + "def policy(ctx):\n    x = (\n", "line 3: syntax error"),
        (HEAD + "def policy(ctx):\npass\n", "line 3: syntax error"),
        (HEAD + "\0", "null bytes"),
        ("(" * 5000, "line 1: "),
        ("-" * 15000 + "1", "line 1: "),
        ("#" * (LONGEST_SOURCE + 1), "line 1: the source is longer"),
    ],
)
def test_refuses(source: str, message: str) -> None:
    assert message in refused(source)


def test_names_every_problem_once_in_order() -> None:
    message = refused(body("evict(ctx)", "x = ctx.nothing", "ctx.turn = 2"))
    assert [part.split(":")[0] for part in message.split("; ")] == ["line 3", "line 4", "line 5"]
    assert "\n" not in message


def test_allows_what_policies_need() -> None:
    lint(
        '''
"""Doc."""
from __future__ import annotations
from akv_rsi.policies.dsl import Context, Segment, drop, identifiers, overlap, tunable

KEEP = tunable("keep", 1, 16, default=6)
WEIGHTS: tuple[tuple[str, float], ...] = (("grep", 0.5), ("open", -1.0))


def weight(seg: Segment, default: float = 1.0) -> float:
    """Doc."""
    return dict(WEIGHTS).get(seg.tool or "", default) ** 2


def policy(ctx: Context) -> None:
    old = sorted((s for s in ctx.segments if s.age >= KEEP), key=lambda s: (-s.tokens, s.id))
    words: set[str] = {w for s in old for w in identifiers(s)}
    total, i = 0, 0
    while i < len(old) and total < 100:
        total += old[i].tokens
        if (share := overlap(old[i], old[0])) < 0.5 and "error" not in old[i].text.lower():
            drop(old[i][: max(1, int(weight(old[i]) * share))])
        i += 1
    _ = f"{total:>4} {len(words)}"
'''
    )


def test_an_endless_loop_is_for_the_sandbox_to_stop() -> None:
    lint(body("while True:", "    pass"))


@pytest.mark.parametrize("name", library.PROGRAMS)
def test_the_library_has_types_that_fit(name: str) -> None:
    check_types(library.spec(name).source)


def test_types_that_do_not_fit_are_named_by_line() -> None:
    source = (
        "from akv_rsi.policies.dsl import (\n    Context,\n    drop,\n    tunable,\n)\n"
        'KEEP = tunable("keep", 1, 2, default=1)\n'
        "def policy(ctx: Context) -> None:\n"
        "    x = ctx.segments[0].text + KEEP\n"
        "    drop(ctx)\n"
        '    if ctx.segments[0].kind == "tool_result":\n'
        "        drop(ctx.segments[0][1:KEEP])\n"
    )
    with pytest.raises(LintError, match=r"^line 8: .*; line 9: [^;]*$"):
        check_types(source)


def test_tunables_are_read_in_order() -> None:
    source = (
        'A = tunable("keep", 1, 16, default=6)\n'
        'B: float = tunable("share", -0.5, 1, 0.5)\n'
        'C = tunable("window", low=1, high=4096, default=64, log=True)\n'
    )
    assert tunables_of(source) == (
        Tunable("keep", 1, 16, 6, integer=True, log=False),
        Tunable("share", -0.5, 1, 0.5, integer=False, log=False),
        Tunable("window", 1, 4096, 64, integer=True, log=True),
    )


@pytest.mark.parametrize(
    "call",
    [
        'tunable("a", 2, 1, default=1)',
        'tunable("a", 1, 2, default=3)',
        'tunable("a", 0, 2, default=1, log=True)',
        'tunable("a", 1, 2)',
        'tunable("a", 1, 2, 1, False, 7)',
        'tunable("a b", 1, 2, default=1)',
        'tunable("a", 1, n, default=1)',
        'tunable("a", True, 2, default=1)',
        'tunable("a", 1, 2, default=1, step=1)',
        'tunable("a", **x)',
    ],
)
def test_malformed_tunables(call: str) -> None:
    with pytest.raises(LintError, match=r"^line 2: "):
        tunables_of(f"\nA = {call}\n")


def test_a_tunable_declared_twice() -> None:
    with pytest.raises(LintError, match="declared twice"):
        tunables_of('A = tunable("a", 1, 2, default=1)\nB = tunable("a", 1, 2, default=1)\n')


def test_freeze_keeps_line_numbers_and_unicode() -> None:
    source = (
        'Ä = 1; A = tunable(\n    "a",\n    1, 9, default=2)  # é\nB = tunable("b", 0.0, 1.0, 0.5)'
    )
    assert freeze(source, {"a": 7}) == "Ä = 1; A = 7\n\n  # é\nB = 0.5"


@pytest.mark.parametrize("values", [{"b": 1}, {"a": 0}, {"a": 10}, {"a": 1.5}, {"a": True}])
def test_freeze_refuses(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        freeze('A = tunable("a", 1, 9, default=2)', values)


def test_capabilities() -> None:
    assert capabilities_of(library.spec("full").source) == frozenset()
    assert capabilities_of(library.spec("rolling_drop").source) == {"drop"}
    assert capabilities_of(library.spec("rolling_drop_repos").source) == {"drop", "repos"}
    assert capabilities_of(library.spec("sinks_window").source) == {"drop", "repos", "tokenizer"}
    assert capabilities_of(body("x = ctx.cost_so_far + ctx.segments[0].attention")) == {
        "attention",
        "cost",
    }
    assert needs_of(body("drop(ctx.segments[0][1:])")) == {"drop", "segments", "slice"}


def test_targets() -> None:
    check_target(frozenset({"drop", "repos"}), "any")
    check_target(frozenset({"refresh"}), "engine")
    with pytest.raises(Exception, match="akv-sglang does not offer refresh"):
        check_target(frozenset({"drop", "refresh"}), "akv-sglang")
    with pytest.raises(Exception, match="unknown target"):
        check_target(frozenset(), "x")
