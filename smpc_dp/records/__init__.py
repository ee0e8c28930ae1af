"""Statistics of records with differential privacy: tables, what is asked of them, noise and intervals.

`schema` says which columns all parties have, `table` reads one party's rows, `ask` reads what is asked,
`features` maps rows to one vector of integers, `sensitivity` bounds how far one row moves it, `plan` splits
the noise over the answers, `answers` estimates them with intervals. docs/proofs/records.md has the proofs.
"""
