"""What this machine offers a model that runs in the process: cores and memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def physical_cores() -> int:
    """Return the number of physical cores this process may use (at least 1)."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # macOS, Windows
        return max(1, os.cpu_count() or 1)
    first_siblings = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            first_siblings.add(siblings.read_text(encoding="ascii").strip())
        except OSError:
            first_siblings.add(str(cpu))
    cores = len(first_siblings)
    with contextlib.suppress(OSError, ValueError):  # the share of a container
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return max(1, cores)


def default_slots() -> int:
    """Return how many requests are worked on at once: 1 on up to 2 cores, then half the cores, 4 at most."""
    return max(1, min(4, physical_cores() // 2))


def free_memory_bytes() -> int | None:
    """Return the memory that can be had without swapping, in bytes; ``None`` where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
