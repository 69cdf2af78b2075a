"""Writes a found policy as a plain Python module.

The module holds the policy's source with its tunables frozen, so that `eval FILE` of it repeats the
search's row. Below a marker line stands glue that writes requests for a stateless server; reading
the module as a policy (`read_policy`) leaves that out.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from akv_rsi.errors import ConfigError
from akv_rsi.policies.lint import lint
from akv_rsi.policies.open import EXPORT_MARKER
from akv_rsi.policies.parity import ParityProof
from akv_rsi.policies.spec import PolicySpec
from akv_rsi.policies.tunables import freeze, parse
from akv_rsi.policies.vocabulary import capabilities_of

Interval = tuple[float, float]

_GLUE = '''
from akv_rsi.policies.wire import Counter, Payload, prepare  # noqa: E402

CAPABILITIES = frozenset({capabilities})
RELIABLE_SPAN = {reliable_span}


def prepare_request(payload: Payload, count_tokens: Counter | None = None) -> Payload:
    """A copy of a chat-completions payload with the cache operations this policy decides on.

    See `akv_rsi.policies.wire.prepare` for what is written and when ``count_tokens`` is needed.
    """
    return prepare(policy, payload, CAPABILITIES, RELIABLE_SPAN, count_tokens)
'''


@dataclass(frozen=True, slots=True)
class Score:
    """One row of results: means over ``tasks`` tasks of a split, with 95% intervals."""

    split: str
    accuracy: float
    accuracy_ci: Interval
    cost_ratio: float
    cost_ratio_ci: Interval
    tasks: int


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a policy comes from and what is known of it.

    ``origin`` says what made it (run, candidate, seed) and ``command`` how to repeat that.
    ``reliable_span`` is that of the model it was found with, in positions. ``found_on`` says on
    which transcripts, and ``measure`` what the accuracy of its scores is.
    """

    origin: str
    command: str
    reliable_span: int
    found_on: str = ""
    measure: str = "accuracy"
    scores: tuple[Score, ...] = ()
    parity: ParityProof | None = None


def export_module(spec: PolicySpec, provenance: Provenance) -> str:
    """The text of a module that holds the policy; importing it needs akv-rsi and nothing else.

    Raises `ConfigError` when ``spec`` is no program and `LintError` when its source is refused.
    """
    if spec.kind != "program":
        raise ConfigError(f"{spec.name} cannot be exported: an {spec.kind} policy is no program")
    lint(spec.source)
    source = _without_tunable(freeze(spec.source, dict(spec.tunables)))
    tree = parse(source)
    notes = ast.get_docstring(tree)
    if notes is not None:
        source = _without(source, tree.body[0])
    docstring = _docstring(spec, provenance, notes)
    glue = _GLUE.format(
        capabilities=sorted(capabilities_of(source)) or "()", reliable_span=provenance.reliable_span
    )
    return f'"""{docstring}"""\n\n{source.strip()}\n\n\n{EXPORT_MARKER}\n{glue}'


def _docstring(spec: PolicySpec, provenance: Provenance, notes: str | None) -> str:
    tunables = ", ".join(f"{name} = {value}" for name, value in spec.tunables)
    parts = [
        f"{spec.name}: a KV-cache policy, exported by akv-rsi.",
        f"Origin: {provenance.origin}\nCommand: {provenance.command}\nPolicy id: {spec.id}\n"
        f"Tunables (frozen below): {tunables or 'defaults'}",
        provenance.found_on and f"Found on: {provenance.found_on}",
        _scores(provenance),
        _parity(provenance.parity),
        f"Requires: {', '.join(sorted(capabilities_of(spec.source))) or 'nothing'}",
        f"Notes of its author:\n\n{notes}" if notes else "",
    ]
    text = "\n\n".join(part for part in parts if part)
    return text.replace("\\", "\\\\").replace('"""', "'''") + "\n"


def _scores(provenance: Provenance) -> str:
    lines = [
        f"    {s.split:<12} {s.accuracy:.3f} [{s.accuracy_ci[0]:.3f}, {s.accuracy_ci[1]:.3f}]"
        f"   {s.cost_ratio:.3f} [{s.cost_ratio_ci[0]:.3f}, {s.cost_ratio_ci[1]:.3f}]   {s.tasks}"
        for s in provenance.scores
    ]
    head = f"    split        {provenance.measure:<23}cost ratio             tasks"
    return "\n".join(["Scores, with 95% intervals:", head, *lines]) if lines else ""


def _parity(proof: ParityProof | None) -> str:
    if proof is None:
        return "Parity of sandbox and plain Python: not checked"
    return (
        f"Parity: sandbox and plain Python decided alike on {proof.decisions} recorded contexts\n"
        f"(SHA-256 of the decisions {proof.digest})"
    )


def _without_tunable(source: str) -> str:
    """The source without its import of `tunable`, which nothing uses once values are frozen."""
    for node in parse(source).body:
        if isinstance(node, ast.ImportFrom) and any(a.name == "tunable" for a in node.names):
            names = [alias.name for alias in node.names if alias.name != "tunable"]
            line = f"from {node.module} import {', '.join(names)}" if names else ""
            return _without(source, node, line)
    return source


def _without(source: str, node: ast.stmt, replacement: str = "") -> str:
    """The source with the lines of a top-level statement replaced."""
    lines = source.splitlines()
    lines[node.lineno - 1 : node.end_lineno] = [replacement] if replacement else []
    return "\n".join(lines) + "\n"
