"""Local reports."""
