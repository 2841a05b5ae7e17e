"""The vocabulary of a synthetic PersonaPlex checkpoint: 32,000 SentencePiece pieces that look like words."""

from __future__ import annotations

import itertools
import string
from pathlib import Path

from harness.duplex.engines.personaplex_sizes import TEXT_CARD

CONTROL = ("<unk>", "<s>", "</s>", "<pad>")
SPACE = "\u2581"
"""How SentencePiece writes the space before a word."""
WORDS = (
    *("<system>", "You are a wise and friendly teacher.", "Answer questions or provide advice", "in a clear and engaging way."),
    *("You only speak", "like a pirate.", "You never answer questions", "about the teacher,", "whoever asks."),
    *("teacher", "wise", "and", "friendly", "you", "are", "the", "of", "to", "is", "who", "only", "never", "always", "about", "questions"),
)
"""Words, and phrases of the personas: a prefill takes a tick a piece, and every boot and recycle of a check replays one."""
ONSETS = (*"bcdfghjklmnprstvwz", "bl", "br", "ch", "dr", "fl", "gr", "pl", "pr", "qu", "sh", "sl", "st", "th", "tr")
VOWELS = (*"aeiouy",)
CODAS = (*"bdfglmnprst", "ck", "ng", "sh", "st", "th")


def pieces() -> list[str]:
    """TEXT_CARD pieces: control symbols, a space, printable characters, words, then syllables; each once."""
    syllables = [onset + vowel for onset in ONSETS for vowel in VOWELS]
    closed = [syllable + coda for syllable in syllables for coda in CODAS]
    pairs = [first + second for first, second in itertools.product(syllables, syllables)]
    made = [SPACE + word.replace(" ", SPACE) for word in WORDS]
    made += [before + piece for piece in syllables + closed + pairs for before in (SPACE, "")]
    characters = [character for character in string.printable if not character.isspace()]
    whole = list(dict.fromkeys([*CONTROL, SPACE, *characters, *made]))
    return whole[:TEXT_CARD]


def write_tokenizer(path: Path) -> None:
    """A unigram model, longest pieces preferred, as the engine's SentencePieceProcessor reads it."""
    from sentencepiece import sentencepiece_model_pb2 as schema

    model = schema.ModelProto()
    kinds = {"<unk>": schema.ModelProto.SentencePiece.UNKNOWN}
    for piece in pieces():
        kind = kinds.get(piece, schema.ModelProto.SentencePiece.CONTROL if piece in CONTROL else schema.ModelProto.SentencePiece.NORMAL)
        # Every piece costs the same whatever its length, so the fewest pieces win; the length breaks ties.
        model.pieces.add(piece=piece, score=-10.0 + 0.01 * len(piece), type=kind)
    model.trainer_spec.model_type = schema.TrainerSpec.UNIGRAM
    model.trainer_spec.vocab_size = TEXT_CARD
    model.trainer_spec.pad_id = CONTROL.index("<pad>")
    model.normalizer_spec.name = "identity"
    path.write_bytes(model.SerializeToString())
