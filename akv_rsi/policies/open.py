"""Opens policies from their specifications, and reads specifications from files."""

from __future__ import annotations

from pathlib import Path

from akv_rsi.errors import ConfigError
from akv_rsi.policies.executor import Executor, Limits, Plain
from akv_rsi.policies.instrument import Code, instrument
from akv_rsi.policies.lint import lint
from akv_rsi.policies.program import Program
from akv_rsi.policies.spec import PolicySpec

# In an exported module, what follows this line is not the policy.
EXPORT_MARKER = "# --- akv-rsi: glue below this line, no part of the policy ---"


def open_policy(spec: PolicySpec, limits: Limits | None = None) -> Program:
    """The policy, ready to decide: in a sandbox of its own, or in plain Python if ``spec.trusted``.

    Close it when done. Raises `LintError` when the source is refused and `ConfigError` when a
    tunable's value does not fit or ``spec`` is no program.
    """
    if spec.kind != "program":
        raise ConfigError(f"{spec.name} is no program: an {spec.kind} policy cannot be opened")
    lint(spec.source)
    code = instrument(spec.source, dict(spec.tunables))
    return Program(spec.name, spec.source, _executor(code, spec.trusted, limits or Limits()))


def _executor(code: Code, trusted: bool, limits: Limits) -> Executor:
    if trusted:
        return Plain(code, limits)
    # Its library takes long to load, and who looks at a run seldom runs a policy.
    from akv_rsi.policies.sandbox import Sandbox

    return Sandbox(code, limits)


def read_policy(path: str | Path) -> PolicySpec:
    """The policy in a file: one you wrote, or an exported module (whose glue is left out).

    It is untrusted, whatever the file says. Raises `ConfigError` when it cannot be read and
    `LintError` when it is no policy.
    """
    file = Path(path)
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the policy file {file} cannot be read: {error}") from error
    source = source.partition(f"\n{EXPORT_MARKER}\n")[0]
    lint(source)
    return PolicySpec(name=file.stem, source=source)
