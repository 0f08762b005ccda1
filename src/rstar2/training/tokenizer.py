r"""The laptop tokenizer: a small byte-level BPE with the protocol's tags as tokens.

Digits stand alone and a JSON newline (``\n`` with its indentation) is one piece, so
that numbers are copied digit by digit and programs tokenise alike in every place.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rstar2.protocol.manifest import TAGS, TURN_CLOSE, TURN_OPEN
from rstar2.protocol.template import CHAT_TEMPLATE

END_OF_TEXT = "<|endoftext|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_OPEN, TURN_CLOSE)

_PIECES = r"\\n *|\d| ?[A-Za-z]+| ?[^A-Za-z0-9\s\\]+|\\|\s+"


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Trains the BPE on plain texts.

    Args:
        texts: Training texts; names of special tokens and tags in them are left out.
        vocab_size: Entries in all, tags and the 256 bytes included.

    Returns:
        A fast tokenizer with ``CHAT_TEMPLATE``; its length is at most ``vocab_size``.
    """
    added = [*SPECIAL_TOKENS, *TAGS]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TAGS),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(_without(texts, added), trainer)
    bpe.add_tokens(list(TAGS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=TURN_CLOSE, pad_token=END_OF_TEXT
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _without(texts: Iterable[str], names: list[str]) -> Iterable[str]:
    for text in texts:
        for name in names:
            text = text.replace(name, "\n")
        yield from text.split("\n\n")
