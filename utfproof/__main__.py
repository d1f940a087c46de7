"""`python -m utfproof`."""

from utfproof.cli import main

main()
