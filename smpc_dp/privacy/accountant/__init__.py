"""The accountant: what releases cost, alone and together, and the ledger that is charged before each.

`events` says what a release is, `compose` adds up, `renyi` has the Rényi side of it, `theorems` the
composition theorems that papers quote, `ledger` the durable account of one party.
"""
