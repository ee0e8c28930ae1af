"""Statistics of pairs of records: plans for their evaluation, exact and ideal values, similarities."""
