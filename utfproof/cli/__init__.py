"""How commands are run and shown. Exit codes: 0 holds, 1 refuted, 2 malformed, 3 over a limit, 4 undecided."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `utfproof`: run, print at most one line of error, exit with the contract's code."""
    import sys

    from utfproof.cli import signals
    from utfproof.util.processes import wait_passively

    signals.while_loading()
    wait_passively()
    signals.open_streams()
    from utfproof.cli.app import run

    code = run(sys.argv[1:] if arguments is None else arguments, begin=signals.while_running)
    signals.when_done()
    # CPython remembers a KeyboardInterrupt that left the exec of a string (dataclasses are made by one), and `python -m` then
    # dies by SIGINT whatever the code is; an exec that ends well makes it forget
    exec("0")
    sys.exit(code)
