"""A program that never heard of this server: mini-swe-agent.

It brings many packages along, so it is optional: pip install mini-swe-agent.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving import service, serving

from akv_rsi.policies.spec import PolicySpec

pytestmark = pytest.mark.slow

# mini-swe-agent's text agent sends what its commands print as user messages.
OLD_OUTPUT = """from akv_rsi.policies.dsl import Context, drop

def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.kind == "user" and not seg.pinned and seg.age >= 1:
            drop(seg)
"""
# The reference agent's answers are no commands: nothing is executed.
AGENT = """
import json, sys
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

class Dry(LocalEnvironment):
    def execute(self, action, cwd="", **kwargs):
        return {"output": "ready saved", "returncode": 0, "exception_info": ""}

model = LitellmTextbasedModel(
    model_name="openai/reference",
    model_kwargs={"api_base": sys.argv[1], "api_key": "none", "max_tokens": 4, "temperature": 0},
    cost_tracking="ignore_errors",
    action_regex="(?s)(.+)",
)
agent = DefaultAgent(
    model, Dry(), system_template="you work", instance_template="{{task}}", step_limit=4
)
agent.run("find the key")
details = [
    m["extra"]["response"]["usage"]["prompt_tokens_details"]
    for m in agent.messages
    if m["role"] == "assistant"
]
print(json.dumps(details))
"""


@pytest.mark.skipif(importlib.util.find_spec("minisweagent") is None, reason="no mini-swe-agent")
def test_mini_swe_agent_runs_unchanged_and_its_old_output_leaves_the_cache(tmp_path: Path) -> None:
    quiet = {"MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path), "MSWEA_SILENT_STARTUP": "1"}
    with serving(service(policy=PolicySpec("old_output", source=OLD_OUTPUT))) as served:
        done = subprocess.run(
            [sys.executable, "-c", AGENT, f"{served.url}/v1"],
            capture_output=True,
            text=True,
            timeout=500,
            env=os.environ | quiet,
            check=False,
        )
        served.balanced()
    assert done.returncode == 0, done.stderr[-2000:]
    details = json.loads(done.stdout.splitlines()[-1])
    skipped = [d["drop_skipped_tokens"] for d in details]
    assert len(skipped) == 4
    assert skipped[:2] == [0, 0]
    assert 0 < skipped[2] < skipped[3]
    assert all(d["cached_tokens"] > 0 for d in details[1:])
