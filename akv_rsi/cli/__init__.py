"""The `akv-rsi` command; one file per sub-command.

Commands are named here and imported when they are called, so `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from akv_rsi.errors import AkvError, CapabilityError, ConfigError, LintError

# Exit codes: what was asked for cannot be done; it was tried and failed; Ctrl-C.
BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
# Name: where it is, what it does, an example.
_COMMANDS = {
    "search": (
        "akv_rsi.cli.search:search",
        "Find the best policy within a cost budget.",
        "akv-rsi search --budget 0.8 --seed 1",
    ),
    "eval": (
        "akv_rsi.cli.eval:evaluate",
        "Evaluate policies on tasks.",
        "akv-rsi eval rolling_drop my_policy.py --tasks 24",
    ),
    "audit": (
        "akv_rsi.cli.audit:audit",
        "Audit recorded transcripts: cost, cache misses, what policies would save.",
        "akv-rsi audit ~/.claude/projects --html audit.html",
    ),
    "critique": (
        "akv_rsi.cli.critique:critique",
        "Tell why a candidate failed: which lost span was to blame, and what it kept in vain.",
        "akv-rsi critique runs/20260101-120000-0.8-0 --candidate 3f2a90c1d4e5",
    ),
    "fidelity": (
        "akv_rsi.cli.fidelity:fidelity",
        "Measure by a model what policies do to recorded actions.",
        "akv-rsi fidelity --suite repo --model reference --conversations 8",
    ),
    "inspect": (
        "akv_rsi.cli.inspect:inspect",
        "Look at a run in the terminal: candidates, sources, cache maps.",
        "akv-rsi inspect runs/20260101-120000-0.8-0",
    ),
    "recall": (
        "akv_rsi.cli.recall:recall",
        "Ask a model for facts of long transcripts under cache operations.",
        "akv-rsi recall --model model.gguf --length 1000",
    ),
    "report": (
        "akv_rsi.cli.report:report",
        "Write a finished run's report as one HTML file.",
        "akv-rsi report runs/20260101-120000-0.8-0",
    ),
    "export": (
        "akv_rsi.cli.export:export",
        "Write a found policy as a plain Python module.",
        "akv-rsi export runs/20260101-120000-0.8-0 --output policy.py",
    ),
    "serve": (
        "akv_rsi.cli.serve:serve",
        "Serve a model to OpenAI clients, with cache ops in requests or by a policy.",
        "akv-rsi serve --model reference --policy rolling_drop:keep=3",
    ),
    "proxy": (
        "akv_rsi.cli.proxy:proxy",
        "Add the cache ops of a policy to requests on their way to a server.",
        "akv-rsi proxy --policy policy.py --upstream http://127.0.0.1:30000",
    ),
    "runs list": (
        "akv_rsi.cli.runs:list_runs",
        "List the runs, the oldest first.",
        "akv-rsi runs list",
    ),
    "runs show": (
        "akv_rsi.cli.runs:show",
        "Show what a run found, or how far it is.",
        "akv-rsi runs show runs/20260101-120000-0.8-0",
    ),
    "bench search": (
        "akv_rsi.cli.bench_search:bench_search",
        "What each part of the search is worth, over seeds, at equal episodes.",
        "akv-rsi bench search --quick --seeds 3",
    ),
    "bench serve": (
        "akv_rsi.cli.bench_serve:bench_serve",
        "Replay agents against a server: times, throughput, cost, hits and pages.",
        "akv-rsi bench serve --concurrency 4 --runs 8",
    ),
    "bench llm": (
        "akv_rsi.cli.bench_llm:bench_llm",
        "What a model's proposals are worth: how many differ, and the fate of each.",
        "akv-rsi bench llm --llm vllm:SmolLM2-135M-Instruct --count 50",
    ),
    "bench kernels": (
        "akv_rsi.cli.bench_kernels:bench_kernels",
        "Check and time the kernels on a GPU.",
        "akv-rsi bench kernels --json",
    ),
    "bench serving": (
        "akv_rsi.cli.bench_kernels:bench_serving",
        "Time an 8B-shaped model on a GPU: decoding, edits, a trajectory.",
        "akv-rsi bench serving --json",
    ),
    "bench engine": (
        "akv_rsi.cli.bench_engine:bench_engine",
        "How fast the engine is on a CPU, as ratios to transformers and to plain steps.",
        "akv-rsi bench engine --json",
    ),
    "doctor": (
        "akv_rsi.cli.doctor:doctor",
        "Check this machine and the engine on it.",
        "akv-rsi doctor",
    ),
}

_GROUPS = {"runs": "List and show runs.", "bench": "Measure the parts of akv-rsi."}


def build_app() -> App:
    """The command line as an object."""
    app = App(
        name="akv-rsi",
        help="Finds the KV-cache policy that makes your agents cheaper without making them worse.",
        help_epilogue="Example: akv-rsi search --budget 0.8",
        default_parameter=Parameter(negative=""),
        suppress_keyboard_interrupt=False,  # `run` says what it means
    )
    groups = {"": app} | {name: App(name=name, help=about) for name, about in _GROUPS.items()}
    for name in _GROUPS:
        app.command(groups[name])
    for path, (place, about, example) in _COMMANDS.items():
        group, _, name = path.rpartition(" ")
        groups[group].command(place, name=name, help=about, help_epilogue=f"Example: {example}")
    app.register_install_completion_command(help="Install completion for your shell.")
    return app


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; errors are one line on stderr."""
    try:
        outcome = build_app()(
            list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as error:
        return _fail(" ".join(str(error).split()), BAD_INPUT)
    except (ConfigError, LintError, CapabilityError) as error:
        return _fail(str(error), BAD_INPUT)
    except AkvError as error:
        return _fail(str(error), FAILURE)
    except KeyboardInterrupt:
        return _fail("interrupted; what was recorded is kept", INTERRUPTED)
    return outcome if isinstance(outcome, int) else 0


def _fail(line: str, code: int) -> int:
    print(f"akv-rsi: {line}", file=sys.stderr)
    return code


def main() -> None:
    """The console script."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads the output, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILURE
    sys.exit(code)
