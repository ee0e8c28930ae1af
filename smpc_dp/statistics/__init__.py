"""Statistics of pairs of records: kernels, estimators, and what protocols need to know of them."""
