"""Where the program starts: the installed script, and ``python -m cora`` where that is not on the path."""

import sys


def main() -> None:
    """The command line; an interrupt while its modules are still being loaded ends it as a later one would."""
    try:
        from cora.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)  # `cora.cli.EXIT_INTERRUPTED`, which is not there yet
    run()


if __name__ == "__main__":
    main()
