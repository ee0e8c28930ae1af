"""Peak memory of a member that commits to a vector and checks a total, in a process of its own.

`python -m smpc_dp_lab.bench.checked_worker FOLDER LENGTH BITS` reads the generators of the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from smpc_dp.generator_cache import GeneratorCache
from smpc_dp_lab.bench.committed import Vector
from smpc_dp_lab.bench.resident import peak_bytes


def main() -> None:
    """Commit to a vector and check it, as the arguments say; print the process's peak memory in bytes."""
    folder, length, bits = sys.argv[1:]
    vector = Vector(GeneratorCache(Path(folder)).load(int(length)), int(length), int(bits))
    vector.check(vector.commit())
    print(peak_bytes())


if __name__ == "__main__":
    main()
