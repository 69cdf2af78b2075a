"""Draws sentences of a grammar in the EBNF that constrained decoding takes."""

from __future__ import annotations

import re
from random import Random

_TOKEN = re.compile(r'\s*("(?:\\.|[^"\\])*"|\[[^\]]*\]|[A-Za-z_]\w*|[()|?*+])')


def rules_of(text):
    """Each rule's name and its tokens; comments are left out."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    heads = re.split(r"^(\w+) ::= ", "\n".join(lines), flags=re.M)[1:]
    return {name: _TOKEN.findall(body) for name, body in zip(heads[::2], heads[1::2], strict=True)}


class Sampler:
    """``draw`` expands the rule ``root``; names of rules that were used are in ``used``."""

    def __init__(self, text):
        self.rules = {name: self.parse(tokens) for name, tokens in rules_of(text).items()}
        self.used = set()

    def parse(self, tokens):
        node, rest = self.choice(list(tokens))
        assert not rest, rest
        return node

    def choice(self, tokens):
        options = []
        while True:
            sequence = []
            while tokens and tokens[0] not in ("|", ")"):
                item, tokens = self.item(tokens)
                sequence.append(item)
            options.append(sequence)
            if not tokens or tokens[0] == ")":
                return ("choice", options), tokens
            tokens = tokens[1:]

    def item(self, tokens):
        head, tokens = tokens[0], tokens[1:]
        if head == "(":
            node, tokens = self.choice(tokens)
            assert tokens[0] == ")"
            tokens = tokens[1:]
        elif head.startswith('"'):
            node = ("text", head[1:-1].encode().decode("unicode_escape"))
        elif head.startswith("["):
            node = ("class", head[1:-1])
        else:
            node = ("rule", head)
        if tokens and tokens[0] == "?":
            return ("maybe", node), tokens[1:]
        return node, tokens

    def draw(self, rng: Random, node=("rule", "root")):
        kind, content = node
        if kind == "text":
            return content
        if kind == "class":
            pairs = re.findall(r"(.)-(.)|(.)", content)
            letters = [c for a, b, one in pairs for c in ([one] if one else span(a, b))]
            return rng.choice(letters)
        if kind == "rule":
            self.used.add(content)
            return self.draw(rng, self.rules[content])
        if kind == "maybe":
            return self.draw(rng, content) if rng.random() < 0.5 else ""
        return "".join(self.draw(rng, item) for item in rng.choice(content))


def span(low, high):
    return [chr(code) for code in range(ord(low), ord(high) + 1)]
