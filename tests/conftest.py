"""What all tests have in common."""

from __future__ import annotations

import os
import sys

# Tests start some hundred processes. Without cached bytecode each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
