"""Texts as images: each pixel of the only row is the number of a character."""

from __future__ import annotations

import numpy as np

from digits.data.images.images import Pixels

# Zhang, Zhao and LeCun, 2015, “Character-level Convolutional Networks for Text Classification”.
DEFAULT_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+=<>()[]{}"
MAX_CHARACTERS = 255


def check_alphabet(alphabet: str) -> None:
    """Raise ValueError if ``alphabet`` is not 1 to 255 different characters."""
    if not 0 < len(alphabet) <= MAX_CHARACTERS:
        raise ValueError(f"The alphabet must have 1 to {MAX_CHARACTERS} characters.")
    repeated = next((character for character in alphabet if alphabet.count(character) > 1), None)
    if repeated is not None:
        raise ValueError(f"The alphabet contains “{repeated}” more than once.")


class Encoding:
    """The numbers of the characters of an ``alphabet``, from 1; all others, and the padding, are 0.

    A letter that is not in the alphabet has the number of its lowercase or uppercase form, if that is.
    """

    def __init__(self, alphabet: str, length: int) -> None:
        self._length = length
        self._alphabet = alphabet
        numbers = {character: number for number, character in enumerate(alphabet, 1)}
        others = {other: number for own, number in numbers.items() for other in (own.lower(), own.upper())}
        self._numbers = others | numbers

    def encode(self, text: str) -> Pixels:
        """Encode the first characters of ``text``, uint8 [1, length, 1]."""
        numbers = [self._numbers.get(character, 0) for character in text[: self._length]]
        row = np.zeros(self._length, np.uint8)
        row[: len(numbers)] = numbers
        return row.reshape(1, self._length, 1)

    def decode(self, pixels: Pixels) -> str:
        """Return the text that ``pixels`` [1, length, 1] encode; characters outside the alphabet become spaces."""
        return "".join(
            self._alphabet[number - 1] if 0 < number <= len(self._alphabet) else " "
            for number in pixels.ravel()
        ).rstrip()
