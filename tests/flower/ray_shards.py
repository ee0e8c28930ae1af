"""Shards that workers of a cluster run, and which lose their worker."""

from __future__ import annotations

import os
import time
from pathlib import Path


def die_once(marker: str, value: int) -> int:
    """End the process of the first worker; return the square."""
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return value * value


def die(value: int) -> int:
    """End the process of each worker."""
    os._exit(value)


def wait_long(marker: str) -> None:
    """Say that it has begun, and take longer than any test."""
    Path(marker).touch()
    time.sleep(600)
