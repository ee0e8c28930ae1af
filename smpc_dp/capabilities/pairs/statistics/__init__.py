"""Statistics of pairs of records: exact values, estimators under local DP, and plans for the protocols."""
