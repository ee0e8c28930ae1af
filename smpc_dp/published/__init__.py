"""The circuits that are published in Bristol Fashion: what each computes, its file, and the check of both."""
