"""Versions of secure aggregation."""

# Parties commit to masking keys before any is shown.
VERSION = 2
# An earlier version: logs of statistics of pairs in its sessions are audited, and none of them is run.
AUDITED_VERSION = 1
