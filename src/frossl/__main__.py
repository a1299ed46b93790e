"""`python -m frossl` is the command line."""

from frossl.cli import main

main()
