"""Implementation of the public functions of `frossl`, which the command line calls."""
