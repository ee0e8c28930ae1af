"""Circuits published in Bristol Fashion: the meaning of each, its file, and the check of both."""
