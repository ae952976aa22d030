#!/usr/bin/env python3
"""record_picture_vectors.py: what transformers' language models leave at the positions of a prompt with a picture, pooled, for the small pairs of tests/records/pictures.

    record_picture_vectors.py NAME ... > tests/records/pictures/vectors.jsonl

Needs what record_answers.py needs; models, prompts and picture are those of its records (the weights are drawn by the name). Of each the mean of the last hidden state over all positions, and that
of the last position.
"""
import json
import sys
from pathlib import Path

import record_answers as answers
import torch
from PIL import Image

RECORDS = Path(__file__).resolve().parents[1] / "records" / "pictures"

for name in sys.argv[1:]:
    record = json.loads((RECORDS / f"{name}.json").read_text())
    model, processor, marker, _, _ = answers.MODELS[name]()
    model = model.eval().float()
    answers.projectors.small_weights(model, sum(name.encode()))
    n = record["prompt"].count("<__media__>")
    inputs = processor(text=record["prompt"].replace("<__media__>", marker), images=[Image.fromarray(answers.picture(*record["picture"]))] * n, return_tensors="pt")
    with torch.no_grad():
        rows = model.model(**inputs).last_hidden_state[0].double()
    numbers = {how: [float(f"{x:.7g}") for x in row] for how, row in (("mean", rows.mean(0)), ("last", rows[-1]))}
    print(json.dumps({"name": name, "n": len(rows), **numbers}, separators=(",", ":")))
