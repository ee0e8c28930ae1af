"""Phases that protocols share: key graphs, masks, recovery, certified sets, the begin of logged runs."""
