"""Texts and token ids of the embedded prefix-cache server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, pre_tokenizers

PATH = Path(__file__).parents[3] / "fixtures" / "data" / "tier" / "tokenizer.json"
"""Made by `python -m fixtures.tier_tokenizer`."""


class TierTokenizer:
    """A byte-level BPE.

    Any text is encoded, the name of a special token in it as plain text. Any ids have a text, those of specials and those that only the
    network knows included.
    """

    def __init__(self, path: Path = PATH) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no tokenizer; `python -m fixtures.tier_tokenizer` writes it")
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.encode_special_tokens = True
        self.vocabulary = self._tokenizer.get_vocab_size()
        self._bytes = byte_alphabet()
        self._specials = {id_ for id_, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}

    def encode(self, text: str) -> tuple[int, ...]:
        """Its ids; nothing is added."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        r"""Their text. Bytes that are no UTF-8 read as \xff, ids that have no text as <id>."""
        return b"".join(self.piece(id_) for id_ in ids).decode("utf-8", errors="backslashreplace")

    def piece(self, id_: int) -> bytes:
        """The bytes of one token."""
        token = self._tokenizer.id_to_token(id_)
        if token is None or id_ in self._specials:
            return f"<{id_}>".encode()
        return bytes(self._bytes[character] for character in token)


def byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: printable ones for themselves, the rest in order from U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
    assert alphabet.keys() == set(pre_tokenizers.ByteLevel.alphabet())
    return alphabet
