"""Network differential privacy: the privacy loss of a walking token towards one party or colluding parties.

[Bellet 2021, 4.2]. `ring` and `histogram` plan the walk on a ring, `complete` the random walk on the complete
graph, for sums and for gradient descent; `published` has the paper's own theorems. The other modules are
their foundation. Statements and proofs: docs/proofs/planners.md.
"""
