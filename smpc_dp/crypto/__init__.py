"""Cryptographic building blocks: thin faces over well-kept libraries and the compiled core."""
