"""``python -m digits`` runs the command ``digits``."""

from digits.cli.main import main

if __name__ == "__main__":
    main()
