"""The privacy accountant: the cost of releases, alone and composed, and the ledger charged before each.

`events` describes a release, `compose` composes releases, `renyi` accounts by Rényi divergences, `theorems`
has the composition theorems that papers quote, and `ledger` is the durable account of one party.
"""
