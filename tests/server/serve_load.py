"""Load and faults against a real `akv-rsi serve` process, on a loopback port.

    python tests/server/serve_load.py --clients 200 --seconds 300

Each client is an agent: it resends its growing conversation with its cumulative ops. The pool holds
a part of the working set. Some clients vanish in mid-stream, the server is killed (-9) half-way and
started again, and clients resend; the seconds are those it is up. Then nothing is in work, the
pool's accounts balance, and some of the answers are asked for once more, where nothing that is
cached can be used: they must come out the same.
Prints one JSON object; exits with 1 when an answer was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

CALLS, CONTEXT, PAGE = 12, 160, 16
AGAIN, OF = 100, 20  # every 20th answer is asked for again, until there are 100
WORDS = "ready saved pending finished error needs repaired accepted closed not next note".split()


class Load:
    def __init__(self, clients: int, seconds: float, share: float, seed: int) -> None:
        self.clients, self.seconds, self.seed = clients, seconds, seed
        self.pages = max(64, int(share * clients * CONTEXT / PAGE))
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.seen: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.ttft: list[float] = []
        self.memory: list[int] = []
        self.kept: list[tuple[dict[str, Any], str]] = []
        self.until = float("inf")
        self.server = self.start()

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until

    def start(self) -> subprocess.Popen[bytes]:
        command = [Path(sys.executable).with_name("akv-rsi"), "serve", "--port", str(self.port)]
        return subprocess.Popen([*command, "--pages", str(self.pages), "--threads", "1"])

    async def ready(self) -> None:
        async with httpx2.AsyncClient() as client:
            while True:
                try:
                    if (await client.get(f"{self.url}/health")).status_code == 200:
                        return
                except httpx2.TransportError:
                    await asyncio.sleep(0.2)

    async def agent(self, number: int) -> None:
        rng = random.Random(self.seed * 1000 + number)
        async with httpx2.AsyncClient(timeout=120) as client:
            while not self.over:
                await self.conversation(client, rng)

    async def conversation(self, client: httpx2.AsyncClient, rng: random.Random) -> None:
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": " ".join(rng.choices(WORDS, k=8))}
        ]
        drops: dict[str, list[int]] = {}
        for call in range(CALLS):
            if self.over:
                return
            if call > 2:
                drops[str(2 * call - 1)] = [2 * call - 4]
            body = {"messages": messages, "drop_message": drops, "max_tokens": 8, "seed": call}
            answer = await self.ask(client, rng, body)
            if answer is None:
                return
            self.seen["answered"] += 1
            # What was answered before the kill is not known to have been said as it was sampled.
            if self.until < float("inf") and self.seen["answered"] % OF == 0:
                self.kept.append(
                    ({**body, "messages": [*messages], "drop_message": {**drops}}, answer)
                )
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "tool", "content": " ".join(rng.choices(WORDS, k=6))})

    async def ask(
        self, client: httpx2.AsyncClient, rng: random.Random, body: dict[str, Any]
    ) -> str | None:
        """The answer's text; resent until it comes. None when the client vanishes."""
        vanishes = rng.random() < 0.05
        while not self.over:
            try:
                return await self.stream(client, body, vanishes)
            except httpx2.TransportError:
                self.seen["broken off, or no server"] += 1
                await asyncio.sleep(0.5)
            except _Busy:
                await asyncio.sleep(rng.uniform(0.2, 1.0))
        return None

    async def stream(
        self, client: httpx2.AsyncClient, body: dict[str, Any], vanishes: bool
    ) -> str | None:
        began, text, ended = time.monotonic(), "", False
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with client.stream("POST", f"{self.url}/v1/chat/completions", json=asked) as answer:
            if answer.status_code == 429:
                self.seen["refused with 429"] += 1
                raise _Busy
            if answer.status_code != 200:
                self.wrong.append((await answer.aread()).decode()[:200])
                return None
            async for line in answer.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise httpx2.RemoteProtocolError(chunk["error"]["message"])
                if not text:
                    self.ttft.append(time.monotonic() - began)
                if chunk["choices"]:
                    text += chunk["choices"][0]["delta"].get("content") or ""
                    ended = ended or chunk["choices"][0]["finish_reason"] is not None
                else:
                    self.check(chunk["usage"], body)
                if vanishes and text:
                    self.seen["vanished"] += 1
                    return None
        if not ended:
            raise httpx2.RemoteProtocolError("the stream broke off")
        return text

    def check(self, usage: dict[str, Any], body: dict[str, Any]) -> None:
        skipped = usage["prompt_tokens_details"]["drop_skipped_tokens"]
        # Each dropped tool result has six words, a header and an end marker.
        if skipped != 8 * len(body["drop_message"]):
            self.wrong.append(f"{skipped} tokens skipped by {len(body['drop_message'])} drops")

    async def faults(self) -> None:
        await asyncio.sleep(self.seconds / 2)
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()
        self.server = self.start()
        await self.ready()
        self.until = time.monotonic() + self.seconds / 2
        while not self.over:
            status = Path(f"/proc/{self.server.pid}/status").read_text()
            self.memory.append(int(status.split("VmRSS:")[1].split()[0]) // 1024)
            await asyncio.sleep(1)

    async def again(self, client: httpx2.AsyncClient) -> int:
        """How many kept answers came out otherwise with an empty cache."""
        different = 0
        for body, answer in self.kept[:AGAIN]:
            asked = {**body, "cache_salt": "again"}
            told = await client.post(f"{self.url}/v1/chat/completions", json=asked)
            different += told.json()["choices"][0]["message"]["content"] != answer
        return different

    async def run(self) -> dict[str, Any]:
        await self.ready()
        agents = [self.agent(number) for number in range(self.clients)]
        await asyncio.gather(self.faults(), *agents)
        async with httpx2.AsyncClient(timeout=60) as client:
            while True:
                page = (await client.get(f"{self.url}/metrics")).text
                gauges = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#")
                if (
                    float(gauges["akv_requests_in_work"])
                    == float(gauges["akv_engine_in_work"])
                    == 0
                ):
                    break
                await asyncio.sleep(0.2)
            deep = await client.get(f"{self.url}/health?deep=true")
            different = await self.again(client)
        if different:
            self.wrong.append(f"{different} answers came out otherwise with an empty cache")
        self.server.send_signal(signal.SIGTERM)
        exit_code = self.server.wait(60)
        if deep.status_code != 200 or exit_code not in (0, -signal.SIGTERM):
            self.wrong.append(f"health {deep.text}, exit code {exit_code}")
        names = (
            "evicted_pages",
            "recovered_tokens",
            "preemptions",
            "cached_tokens",
            "prompt_tokens",
        )
        ttft = sorted(self.ttft)
        return {
            "clients": self.clients,
            "seconds": self.seconds,
            "pages": self.pages,
            "answers": dict(self.seen),
            "wrong": len(self.wrong),
            "what": self.wrong[:10],
            "asked_again": min(AGAIN, len(self.kept)),
            "different": different,
            "accounts": deep.json(),
            "ttft_p50_p95": [round(ttft[int(len(ttft) * q)], 3) for q in (0.5, 0.95)],
            "rss_mib": self.memory[:: max(1, len(self.memory) // 8)],
            "engine": {n: float(gauges[f"akv_engine_{n}_total"]) for n in names},
        }


class _Busy(Exception):
    pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--share", type=float, default=0.6, help="of the working set, in pages")
    parser.add_argument("--seed", type=int, default=0)
    load = Load(**vars(parser.parse_args()))
    try:
        outcome = asyncio.run(load.run())
    finally:
        load.server.kill()
    print(json.dumps(outcome, indent=1))
    return 1 if outcome["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
