"""``python -m cora``: the command line where the installed script is not on the path."""

from cora.cli import main

if __name__ == "__main__":
    main()
