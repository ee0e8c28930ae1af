"""Statistics of pairs of records: plans for their evaluation, exact values, similarities."""
