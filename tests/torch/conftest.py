"""The tests of this folder run in an environment of their own: `make test-torch`."""

from importlib.util import find_spec

collect_ignore_glob = [] if all(map(find_spec, ("torch", "opacus", "pandas"))) else ["test_*.py"]
