"""The server of our own: started, waited for, stopped whatever happens; the grammar it is given."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from ebnf import Sampler
from fake_llm import FakeLLM, Rule, probing

from akv_rsi.errors import ConfigError, PolicyError
from akv_rsi.policies.lint import lint
from akv_rsi.policies.sandbox import check_types
from akv_rsi.search.config import SearchConfig
from akv_rsi.search.ledger import Ledger
from akv_rsi.search.llm.answers import Proposal, instruction, read, schema
from akv_rsi.search.llm.connect import connect
from akv_rsi.search.llm.endpoint import Endpoint, Model
from akv_rsi.search.llm.exchange import Ask, Exchange
from akv_rsi.search.llm.prompts import text_of
from akv_rsi.search.llm.serve import _free_port, running, serving

SERVER = """
import http.server, os, subprocess, sys
subprocess.Popen(["sleep", "300"])          # a worker of its own
open(sys.argv[2], "w").write(str(os.getpid()))
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


def group(pid):
    """The processes of a group that live."""
    done = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [row for row in rows if row[0] == str(pid) and not row[1].startswith("Z")]


def gone(pid, seconds=30):
    deadline = time.monotonic() + seconds
    while group(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not group(pid)


@pytest.mark.parametrize("how", ["ends", "raises"])
def test_a_server_lives_as_long_as_it_is_asked(tmp_path, how):
    port, note = _free_port(), tmp_path / "pid"
    command = [sys.executable, "-c", SERVER, str(port), str(note)]
    try:
        with running(command, f"http://127.0.0.1:{port}", 60) as url:
            assert url.endswith(str(port))
            pid = int(note.read_text())
            assert len(group(pid)) == 2
            if how == "raises":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert gone(pid)


PARENT = """
import sys, time
sys.path.insert(0, sys.argv[3])
from test_serve import SERVER
from akv_rsi.search.llm.serve import running
with running([sys.executable, "-c", SERVER, sys.argv[1], sys.argv[2]],
             "http://127.0.0.1:" + sys.argv[1], 60):
    print("up", flush=True)
    time.sleep(300)
"""


def test_it_dies_with_its_parent_even_by_kill_9(tmp_path):
    note, here = tmp_path / "pid", str(Path(__file__).parent)
    command = [sys.executable, "-c", PARENT, str(_free_port()), str(note), here]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "up\n"
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    assert gone(int(note.read_text()))


def test_a_server_that_does_not_come_up_says_why():
    broken = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with (
        pytest.raises(ConfigError, match="ended with code 3: no such model"),
        running(broken, "http://127.0.0.1:9", 60),
    ):
        raise AssertionError
    slow = [sys.executable, "-c", "import time; time.sleep(60)"]
    with (
        pytest.raises(ConfigError, match=r"not healthy after 0\.2 s: it wrote nothing"),
        running(slow, "http://127.0.0.1:9", 0.2),
    ):
        raise AssertionError


def test_only_a_local_model_is_served():
    config = SearchConfig(llm=("hosted",))
    with serving(config) as same:
        assert same is config
    with (
        pytest.raises(ConfigError, match="is served alone"),
        serving(SearchConfig(llm=("vllm:a", "vllm:b"))),
    ):
        raise AssertionError


def test_every_program_of_the_grammar_passes_lint_and_most_have_sound_types():
    sampler, rng, sound = Sampler(text_of("dsl.ebnf")), Random(0), 0
    sources = [sampler.draw(rng) for _ in range(300)]
    for source in sources:
        lint(source)
    assert sampler.used >= set(sampler.rules), "every rule is reached"
    for source in sources[:12]:
        try:
            check_types(source)
            sound += 1
        except PolicyError as error:
            last = error
    assert sound >= 8, last
    assert len(set(sources)) == 300


def test_the_whole_dsl_can_be_said():
    from akv_rsi.policies.dsl import __all__ as names
    from akv_rsi.policies.vocabulary import FIELDS

    text = text_of("dsl.ebnf")
    assert all(name in text for name in set(names) - {"Segment", "Span"})
    assert all(name in text for name in FIELDS - {"segments", "attention"})


def test_a_grammar_is_sent_where_the_server_takes_one():
    program = Sampler(text_of("dsl.ebnf")).draw(Random(1))
    with FakeLLM([probing(), Rule(("hello",), [program])]) as server:
        model = Model("m", server.url, grammar=True)
        exchange = Exchange({"m": Endpoint(model, temperature=0.7)}, Ledger())
        (answer,) = exchange.ask([Ask("m", "new", "s", "hello", Proposal)], lambda _: "")
    assert answer.content["source"] == program
    (sent,) = server.seen
    assert sent["structured_outputs"]["grammar"] == schema(Proposal, "grammar")["grammar"]
    assert sent["temperature"] == 0.7
    assert instruction(Proposal, "grammar").strip() in sent["messages"][0]["content"]
    assert read(program, Proposal).source == program
    assert connect(SearchConfig(llm=("m",), llm_grammar=True)).endpoints["m"].model.grammar


@pytest.mark.vllm
def test_a_real_server_holds_programs_to_the_grammar(capsys):
    """Needs AKV_RSI_VLLM_PYTHON, and AKV_RSI_VLLM_MODEL: a folder with a chat model."""
    import json

    from akv_rsi.cli import run

    model = f"vllm:{os.environ['AKV_RSI_VLLM_MODEL']}"
    assert run(["bench", "llm", "--llm", model, "--count", "4", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["proposals"] == 4
    assert about["fates"].get("no answer", 0) <= 1
    assert about["fingerprints"] >= 1
