"""The tests of this folder run in an environment of their own: `make test-flower`."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("flwr") else ["test_*.py"]
