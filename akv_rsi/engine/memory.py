"""The process's allocator, told to keep what it frees.

Each layer of each pass frees temporaries of megabytes. By default glibc hands such blocks back to
the kernel and faults every page in again at the next allocation, which costs more than the
arithmetic done on them. The setting is process-wide, costs no more than the peak already reached,
and does nothing where the C library has no `mallopt`.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3


def keep_freed_memory(limit: int = 2**30) -> None:
    """Serves blocks of up to ``limit`` bytes from the heap, and returns less than that unasked."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, limit)
        mallopt(M_TRIM_THRESHOLD, limit)
