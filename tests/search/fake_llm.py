"""A loopback server that speaks the chat-completions protocol: recorded answers, and faults.

It answers by what the prompt says: the first rule whose words all occur in it. A prompt that no
rule knows is refused and remembered, so a test can tell that none came.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD = """from akv_rsi.policies.dsl import Context, drop, repos, tunable

KEEP = tunable("keep", 1, 16, default={keep})


def policy(ctx: Context) -> None:
    for seg in ctx.segments:
        if seg.tool == "poll" and seg.age >= 1 or seg.kind == "tool_result" and seg.age >= KEEP:
            drop(seg)
    if ctx.position_span > 0.8 * ctx.reliable_span:
        repos()
"""
BAD = """from akv_rsi.policies.dsl import Context, drop
import os

def policy(ctx: Context) -> None:
    drop(ctx.segments[0])
"""
DIFF = """--- policy.py
+++ policy.py
@@ -6,3 +6,3 @@ def policy(ctx: Context) -> None:
-        if seg.age >= KEEP:
+        if seg.age >= 4:
             drop(seg)
"""


def proposal(source, idea="keep what is young"):
    return json.dumps({"idea": idea, "source": source})


@dataclass
class Rule:
    """Prompts with all these ``words`` get the ``answers`` in turn, the last one again and again.

    An answer is a text, or a fault: ``429``, ``500`` (or another status), ``slow``, ``endless``,
    ``huge``, ``garbage``, ``cut``.
    """

    words: tuple[str, ...]
    answers: list[str | int]
    asked: int = 0


@dataclass
class FakeLLM:
    """Use as a context manager. ``modes`` are the response formats that it accepts."""

    rules: list[Rule]
    modes: tuple[str, ...] = ("json_schema", "json_object", "fenced")
    seen: list[dict] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    retry_after: str = "0"

    def __enter__(self):
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                fake.answer(self)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler):
        self.keys.add(handler.headers.get("Authorization", ""))
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.seen.append(body)
        text = "\n".join(message["content"] for message in body["messages"])
        mode = body.get("response_format", {}).get("type", "fenced")
        rule = next((r for r in self.rules if all(word in text for word in r.words)), None)
        if mode not in self.modes:
            return self.send(handler, 400, b"{}")
        if rule is None:
            self.unknown.append(text)
            return self.send(handler, 418, b"{}")
        reply = rule.answers[min(rule.asked, len(rule.answers) - 1)]
        rule.asked += 1
        return self.reply(handler, reply)

    def reply(self, handler, reply):
        if isinstance(reply, int):
            return self.send(handler, reply, b'{"error": {"message": "sk-echo"}}')
        try:
            if reply == "slow":
                time.sleep(30)
            elif reply == "endless":
                self.start(handler, None)
                while True:
                    handler.wfile.write(b" ")
                    handler.wfile.flush()
                    time.sleep(0.02)
            elif reply == "huge":
                self.start(handler, None)
                for _ in range(400):
                    handler.wfile.write(b"x" * 100_000)
            elif reply == "cut":
                self.start(handler, 5000)
                handler.wfile.write(b'{"id":')
            elif reply == "garbage":
                return self.send(handler, 200, b"<html>hello</html>")
            else:
                return self.send(handler, 200, json.dumps(completion(reply)).encode())
        except OSError:
            pass  # the client gave up, as it should
        handler.close_connection = True
        return None

    def start(self, handler, length):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        if length is not None:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()

    def send(self, handler, status, body):
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Retry-After", self.retry_after)
        handler.end_headers()
        handler.wfile.write(body)


def completion(text):
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    about = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    return about | {"choices": [choice], "usage": usage}


def probing():
    return Rule(("test of the form",), ['{"ok": true}'])


def usual(**other):
    """A model that does its work: proposals that differ, sensible repairs, lessons."""
    proposals = [proposal(GOOD.format(keep=keep)) for keep in (6, 9, 4, 12, 3, 14, 5, 7)]
    return [
        probing(),
        Rule(("Below is the strategy",), ['{"strategy": "Keep views; drop polls at once."}']),
        Rule(("This policy was refused",), other.get("repair", proposals)),
        Rule(("Improve this policy",), other.get("improve", proposals)),
        Rule(("Combine what is good",), other.get("combine", proposals)),
        Rule(("differs in its idea",), other.get("new", proposals)),
        Rule(
            ("in one sentence",), ['{"diagnosis": "views go early", "lesson": "keep views longer"}']
        ),
    ]
