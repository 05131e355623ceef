"""``python -m digits`` is the command ``digits``."""

from digits.cli import main

if __name__ == "__main__":
    main()
