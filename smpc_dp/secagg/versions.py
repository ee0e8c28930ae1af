"""Versions of secure aggregation."""

# From three parties up a session tolerates one colluding party, unless its file says otherwise.
VERSION = 3
# An earlier version, whose sessions are run: the same messages, with another default of `corrupt`. It is the
# version of the runs of groups of learners too, whose session has a version of its own.
EARLIER_VERSION = 2
# Before it masking keys were not committed to before any was shown: logs of statistics of pairs in its
# sessions are audited, and none of them is run.
AUDITED_VERSION = 1
