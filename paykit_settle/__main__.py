"""`python -m paykit_settle`: the same as the console script."""

from paykit_settle.cli import main

main()
