"""The demonstration: eight lenders pool the statistics of their loans, and no loan leaves its lender."""
