"""Commands of learners."""
