"""The tests of this folder run in an environment of their own: `make test-torch`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") and find_spec("pandas") else ["test_*.py"]
