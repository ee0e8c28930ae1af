"""`python -m smpc_dp`: the command `smpc-dp`."""

from smpc_dp.cli import main

main()
