"""Speculative decoding: what the parameter `draft_model` of Llama takes."""


class LlamaPromptLookupDecoding:
    """Tokens that followed the same text before are guessed, and evaluated together with the next one.

    Weft measures while it runs how long a guess pays, and guesses no longer than that: both parameters are accepted and change
    nothing.  The answers are those without guesses."""

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        self.max_ngram_size, self.num_pred_tokens = max_ngram_size, num_pred_tokens
