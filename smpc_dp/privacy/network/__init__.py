"""Network differential privacy: what one party, or several who collude, learn from a token that walks.

[Bellet 2021, 4.2]. `ring` and `histogram` plan the walk on a ring, `complete` the random walk on the complete
graph, for sums and for gradient descent; `published` has the paper's own theorems. The other modules are
what they stand on. Statements and proofs: docs/proofs/planners.md.
"""
