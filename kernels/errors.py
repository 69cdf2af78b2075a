"""The one error a kernel's caller can make: arguments that do not fit."""

from __future__ import annotations


class KernelArgumentError(ValueError):
    """Shapes, types or indices that a kernel must not be launched with; the message says which."""
