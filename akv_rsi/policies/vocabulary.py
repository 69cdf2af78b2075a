"""The words a policy may use, and what its use of them says: needed fields, needed capabilities."""

from __future__ import annotations

import ast
from functools import lru_cache

from akv_rsi.errors import CapabilityError
from akv_rsi.policies import dsl, runtime
from akv_rsi.policies.tunables import parse

VERBS = frozenset({"drop", "keep", "restore", "refresh", "repos"})
EXPORTS = frozenset(dsl.__all__)
FIELDS = frozenset(
    name for cls in (dsl.Segment, dsl.Context) for name in cls.__slots__ if not name.startswith("_")
)
_BUILTINS = """
    abs all any bool dict divmod enumerate filter float frozenset int isinstance len list map max
    min range reversed round set sorted str sum tuple zip
"""
_METHODS = """
    notes_about
    append extend insert pop remove index count sort reverse copy clear get items keys values
    setdefault update add discard union intersection difference issubset issuperset isdisjoint
    split rsplit splitlines strip lstrip rstrip lower upper startswith endswith find rfind replace
    join isdigit isalpha isalnum isupper islower removeprefix removesuffix partition rpartition
"""
BUILTINS = frozenset(_BUILTINS.split())
ATTRIBUTES = FIELDS | frozenset(_METHODS.split())
# What `needs_of` can return.
ALL_NEEDS = FIELDS | EXPORTS | {"notes_about", "slice"}
# What shares a namespace with the policy inside the sandbox, and what it may not rename anyway.
RESERVED = (
    EXPORTS
    | BUILTINS
    | frozenset(n for m in (dsl, runtime) for n in vars(m) if not n.startswith("_"))
    | {"next", "iter"}
)

# Fields that some targets do not have, by the capability they ask for.
_FIELD_CAPABILITIES = {
    "attention": "attention",
    "cost_so_far": "cost",
    "tokens": "tokenizer",
    "attended": "tokenizer",
    "position_span": "tokenizer",
}
TARGETS = {
    "engine": frozenset({"drop", "restore", "repos", "refresh", "attention", "tokenizer", "cost"}),
    "akv-sglang": frozenset({"drop", "repos", "tokenizer"}),
}
TARGETS["any"] = TARGETS["engine"] & TARGETS["akv-sglang"]


@lru_cache(maxsize=256)  # a search opens each of its policies several times
def needs_of(source: str) -> frozenset[str]:
    """The fields, methods and functions of the DSL that ``source`` mentions."""
    nodes = list(ast.walk(parse(source)))
    names = {n.id for n in nodes if isinstance(n, ast.Name) and n.id in EXPORTS}
    fields = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    slices = {"slice"} if any(isinstance(n, ast.Slice) for n in nodes) else set()
    return frozenset(names | (fields & (FIELDS | {"notes_about"})) | slices)


def capabilities_of(source: str) -> frozenset[str]:
    """What ``source`` needs of its target: verbs, ``attention``, ``tokenizer``, ``cost``."""
    needs = needs_of(source)
    fields = {_FIELD_CAPABILITIES[name] for name in needs if name in _FIELD_CAPABILITIES}
    slices = {"tokenizer"} if "slice" in needs else set()
    return frozenset((needs & VERBS) - {"keep"} | fields | slices)


def check_target(capabilities: frozenset[str], target: str) -> None:
    """Raises `CapabilityError` unless ``target`` offers all ``capabilities``."""
    if target not in TARGETS:
        raise CapabilityError(f"unknown target {target!r}: use one of {', '.join(sorted(TARGETS))}")
    if missing := sorted(capabilities - TARGETS[target]):
        raise CapabilityError(f"the target {target} does not offer {', '.join(missing)}")
