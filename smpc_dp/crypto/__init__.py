"""Cryptographic building blocks over maintained libraries and the compiled core."""
