"""What rows in ik_llama.cpp's formats stand for, in numpy, and what tests need to know about them.

tests/records/formats/ik_llama.cpp.json has hashes of what its own code makes of the rows of test_formats.py
(tests/tools/record_formats.py).
"""
import hashlib

import numpy as np

# ggml's number, elements of a block, bytes of a block, bytes before a row's blocks, rows together
SIZES = {
    "Q6_0": (133, 32, 26, 0, 1), "IQ2_K": (137, 256, 76, 0, 1), "IQ3_K": (138, 256, 110, 0, 1), "IQ4_K": (139, 256, 144, 0, 1), "IQ5_K": (140, 256, 176, 0, 1),
    "IQ6_K": (141, 256, 212, 0, 1), "IQ4_KS": (144, 256, 136, 4, 1), "IQ2_KS": (145, 256, 70, 2, 1), "IQ4_KSS": (146, 256, 128, 4, 1), "IQ5_KS": (152, 256, 168, 4, 1),
    "IQ3_KS": (156, 256, 102, 2, 1), "IQ2_KL": (157, 256, 86, 2, 1), "IQ1_KT": (158, 256, 56, 4, 1), "IQ2_KT": (153, 256, 68, 4, 1), "IQ3_KT": (154, 256, 100, 4, 1),
    "IQ4_KT": (155, 256, 128, 4, 1), "IQ2_BN": (135, 64, 16, 4, 1), "Q8_KV": (151, 32, 32, 8, 1),
    "Q4_0_R8": (202, 32, 18, 0, 8), "Q5_0_R4": (206, 32, 22, 0, 4), "Q8_0_R8": (208, 32, 34, 0, 8), "Q2_K_R4": (210, 256, 84, 0, 4), "Q3_K_R4": (211, 256, 110, 0, 4),
    "Q4_K_R4": (212, 256, 144, 0, 4), "Q5_K_R4": (213, 256, 176, 0, 4), "Q6_K_R4": (214, 256, 210, 0, 4), "IQ4_NL_R4": (220, 32, 18, 0, 4), "IQ4_XS_R8": (223, 256, 136, 0, 8),
    "Q6_0_R4": (233, 32, 26, 0, 4), "IQ2_K_R4": (337, 256, 76, 0, 4), "IQ3_K_R4": (338, 256, 110, 0, 4), "IQ4_K_R4": (339, 256, 144, 0, 4), "IQ5_K_R4": (340, 256, 176, 0, 4),
    "IQ4_KS_R4": (344, 256, 136, 4, 4), "IQ5_KS_R4": (352, 256, 168, 4, 4), "Q8_K_R8": (399, 256, 258, 0, 8), "IQ2_XXS_R4": (216, 256, 66, 0, 4), "IQ2_XS_R4": (217, 256, 74, 0, 4),
    "IQ3_XXS_R4": (218, 256, 98, 0, 4), "IQ1_S_R4": (219, 32, 6, 2, 4), "IQ3_S_R4": (221, 256, 110, 0, 4), "IQ2_S_R4": (222, 256, 82, 0, 4), "IQ1_M_R4": (229, 32, 7, 2, 4),
    "BF16_R16": (230, 2, 4, 0, 16), "IQ2_BN_R4": (335, 64, 16, 4, 4), "MXFP4_R8": (353, 32, 17, 0, 8), "Q8_K_R16": (397, 256, 258, 0, 16), "Q8_KV_R8": (398, 32, 32, 4, 8),
}
# The fields of a block whose rows are interleaved: bytes of a row, and how many of them are next to each other
FIELDS = {
    "Q4_0_R8": [(2, 2), (16, 4)], "Q5_0_R4": [(2, 2), (20, 4)], "Q8_0_R8": [(2, 2), (32, 4)], "Q2_K_R4": [(4, 2), (16, 1), (64, 4)], "Q3_K_R4": [(2, 2), (12, 1), (96, 4)],
    "Q4_K_R4": [(4, 2), (12, 1), (128, 4)], "Q5_K_R4": [(4, 2), (12, 1), (160, 4)], "Q6_K_R4": [(2, 2), (16, 1), (192, 4)], "IQ4_NL_R4": [(2, 2), (16, 4)],
    "IQ4_XS_R8": [(2, 2), (6, 1), (128, 4)], "Q6_0_R4": [(2, 2), (24, 4)], "IQ2_K_R4": [(2, 2), (10, 1), (64, 4)], "IQ3_K_R4": [(2, 2), (12, 1), (96, 4)],
    "IQ4_K_R4": [(2, 2), (14, 1), (128, 4)], "IQ5_K_R4": [(2, 2), (14, 1), (160, 4)], "IQ4_KS_R4": [(8, 1), (128, 4)], "IQ5_KS_R4": [(8, 1), (160, 4)], "Q8_K_R8": [(2, 2), (256, 4)],
    "IQ2_XXS_R4": [(2, 2), (32, 4), (32, 4)], "IQ2_XS_R4": [(2, 2), (64, 8), (8, 1)], "IQ3_XXS_R4": [(2, 2), (32, 4), (64, 8)], "IQ1_S_R4": [(4, 1), (2, 2)],
    "IQ3_S_R4": [(2, 2), (64, 1), (8, 1), (32, 4), (4, 1)], "IQ2_S_R4": [(2, 2), (32, 4), (8, 1), (32, 4), (8, 1)], "IQ1_M_R4": [(4, 1), (2, 1), (1, 1)], "BF16_R16": [(4, 4)],
    "IQ2_BN_R4": [(16, 4)], "MXFP4_R8": [(1, 1), (16, 4)], "Q8_K_R16": [(2, 2), (256, 4)], "Q8_KV_R8": [(32, 4)],
}
# Where the half-precision scales of a block lie
SCALES = {name: [2 * i for i in range(together * (2 if name in ("Q2_K_R4", "Q4_K_R4", "Q5_K_R4") else 1))] if not head else [] for name, (_, _, _, head, together) in SIZES.items()}
# "8": bytes at the start, each a whole scale; in BF16_R16 there are none
SCALES |= {"MXFP4_R8": ["8"], "BF16_R16": []}

IQ2 = [-31, -13, 1, 17]
IQ3 = [-63, -40, -23, -10, 1, 13, 28, 47]
IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
IQ5 = [-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5, 11, 17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121]
IQ6 = [-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54, -51, -47, -44, -40, -37, -34, -31, -28, -25, -22, -19, -16, -13, -11, -8, -5,
       -2, 0, 3, 6, 9, 12, 14, 17, 20, 23, 27, 30, 33, 36, 40, 44, 47, 51, 55, 59, 63, 68, 72, 77, 82, 87, 92, 98, 103, 109, 115, 121]
FP4 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]       # twice the value
PAIRS = [(-63, -23), (-63, 13), (-40, -63), (-40, -10), (-40, 13), (-40, 47), (-23, -40), (-23, -23), (-23, 1), (-23, 13), (-23, 28), (-10, -63), (-10, 1), (-10, 13), (-10, 47), (1, -23),
         (1, -10), (1, 1), (1, 13), (1, 28), (13, -40), (13, -23), (13, -10), (13, 1), (13, 13), (28, -63), (28, -23), (28, 1), (28, 28), (28, 47), (47, -23), (47, 13)]


def take(raw, at, count, dtype=np.uint8):
    return np.ascontiguousarray(raw[:, at:at + count]).view(dtype).astype(np.int32 if dtype != np.float16 else np.float32)


def split(x, width):
    """The codes of `width` bits in each byte, the lowest first, along a new last axis."""
    return x[..., None] >> np.arange(0, 8, width) & (1 << width) - 1


def flat(x):
    return x.reshape(len(x), -1)


def bit_list(raw, at, count):
    return flat(split(take(raw, at, count), 1))


def nibble_list(raw, at, count):
    return flat(split(take(raw, at, count), 4))


def runs(raw, at, count, run, width):
    """Runs of bytes: first the lowest `width` bits of a whole run, then the next ones."""
    return flat(split(take(raw, at, count).reshape(len(raw), -1, run), width).transpose(0, 1, 3, 2))


def apart(name, raw):
    """uint8 (.., bytes of blocks of interleaved rows) -> (.., rows, bytes of a block)"""
    together, at, fields = SIZES[name][4], 0, []
    for count, unit in FIELDS[name]:
        part = raw[..., at:at + count * together].reshape(*raw.shape[:-1], count // unit, together, unit)
        fields.append(np.moveaxis(part, -2, -3).reshape(*raw.shape[:-1], together, count))
        at += count * together
    return np.concatenate(fields, -1)


def placed(raw, at, count, shift, width):
    """Codes of `width` bits in groups of bytes: shift(ll, h, lh) is that of the half h in the bytes [lh, ll] or, if there are no more, of all."""
    x = take(raw, at, count).reshape(len(raw), -1, 2, 2, 4) if count % 16 == 0 and width == 4 else take(raw, at, count)
    made = []
    for ll in range(2):
        for h in range(2):
            for lh in range(2):
                if width == 4:
                    b = x[:, :, lh, ll]
                elif width == 2:
                    b = x.reshape(len(raw), -1, 2, 4)[:, :, ll]
                else:
                    b = x.reshape(len(raw), -1, 4)
                made.append(b >> shift(ll, h, lh) & (1 << width) - 1)
    return flat(np.stack(made, 2))


def fours(raw, at, count):
    return placed(raw, at, count, lambda ll, h, lh: 4 * h, 4)


def pairs(raw, at):
    return runs(raw, at, 64, 4, 2)


def book(name):
    """The entries of a code book, as rows of integers."""
    from gguf import quants
    kind = getattr(quants, name)
    kind.init_grid()
    return kind.grid.reshape(-1, kind.grid_shape[-1]).astype(np.int32)


def signed(magnitude, bits):
    return magnitude * (1 - 2 * bits)


def blocks_of_books(name, raw, row_scale):
    """As `blocks` for one row of those that are stored together, with indices of code books."""
    half = take(raw, 0, 2, np.float16) / np.float32(8)
    if name in ("IQ2_XXS_R4", "IQ3_XXS_R4"):
        words = take(raw, 2, 32).reshape(-1, 8, 4)
        signs = words & 254 ^ words >> 1 & 127
        scale = ((words & 1) << np.arange(4)).sum(-1)
        value = book("IQ2_XXS")[take(raw, 34, 32)] if name == "IQ2_XXS_R4" else 2 * book("IQ3_XXS")[take(raw, 34, 64)]
        return half * (2 * scale + 1), signed(flat(value), flat(split(flat(signs), 1)))
    if name == "IQ2_XS_R4":
        words = take(raw, 2, 64, np.uint16)
        signs = words >> 9 ^ words >> 8 & 254
        return half * (2 * nibble_list(raw, 66, 8) + 1), signed(flat(book("IQ2_XS")[words & 511]), flat(split(signs, 1)))
    if name == "IQ2_S_R4":
        index = take(raw, 2, 32) | flat(split(take(raw, 34, 8), 2)) << 8
        return half * (2 * nibble_list(raw, 74, 8) + 1), signed(flat(book("IQ2_S")[index]), bit_list(raw, 42, 32))
    if name == "IQ3_S_R4":
        low, high, signs, made = take(raw, 2, 64), take(raw, 66, 8), take(raw, 74, 32), np.zeros((len(raw), 256), np.int32)
        for four in range(64):                            # weights 4 four .. 4 four + 3
            part, at = divmod(four, 8)
            entry = book("IQ3_S")[low[:, 8 * part + 2 * (at % 4) + at // 4] | (high[:, part] >> at & 1) << 8]
            made[:, 4 * four:4 * four + 4] = signed(entry, signs[:, 4 * part:4 * part + 4] >> at & 1)
        return take(raw, 0, 2, np.float16) * (2 * runs(raw, 106, 4, 4, 4) + 1), made
    if name == "IQ1_S_R4":
        high = take(raw, 4, 2, np.uint16)
        index = take(raw, 0, 4) | (high >> np.arange(0, 12, 3) & 7) << 8
        return row_scale / np.float32(8) * (2 * (high >> 12 & 7) + 1), 8 * flat(book("IQ1_S")[index]) + 1 - 2 * (high >> 15)
    assert name == "IQ1_M_R4"
    high = nibble_list(raw, 4, 2)
    return row_scale / np.float32(8) * nibble_list(raw, 6, 1), flat(8 * book("IQ1_M")[take(raw, 0, 4) | (high & 7) << 8] + (1 - 2 * (high >> 3))[..., None])


def blocks_of_rows(name, raw, row_scale):
    """As `blocks` for one row of those that are stored together: minima, too."""
    half, minimum = take(raw, 0, 2, np.float16), None
    marks = runs(raw, 2, 2, 2, 1)
    if name in ("IQ2_XXS_R4", "IQ2_XS_R4", "IQ2_S_R4", "IQ3_XXS_R4", "IQ3_S_R4", "IQ1_S_R4", "IQ1_M_R4"):
        scale, value = blocks_of_books(name, raw, row_scale)
    elif name == "MXFP4_R8":
        scale, value = np.ldexp(np.float32(1), take(raw, 0, 1) - 128), np.take(FP4, runs(raw, 1, 16, 16, 4))
    elif name == "BF16_R16":
        scale, value = np.ones((len(raw), 1), np.float32), (take(raw, 0, 4, np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif name == "Q8_K_R16":
        scale, value = half, take(raw, 2, 256) - 128
    elif name == "Q8_KV_R8":
        scale, value = row_scale, take(raw, 0, 32, np.int8)
    elif name == "IQ2_BN_R4":
        scale, value = row_scale, runs(raw, 0, 16, 4, 2) - 1
    elif name == "Q4_0_R8":
        scale, value = half, runs(raw, 2, 16, 16, 4) - 8
    elif name == "Q5_0_R4":
        scale, value = half, (fours(raw, 6, 16) | placed(raw, 2, 4, lambda ll, h, lh: ll + 2 * lh + 4 * h, 1) << 4) - 16
    elif name == "Q6_0_R4":
        scale, value = half, (fours(raw, 10, 16) | placed(raw, 2, 8, lambda ll, h, lh: 2 * lh + 4 * h, 2) << 4) - 32
    elif name in ("Q8_0_R8", "Q8_K_R8"):
        scale, value = half, take(raw, 2, raw.shape[1] - 2, np.int8)
    elif name == "IQ4_NL_R4":
        scale, value = half, np.take(IQ4, fours(raw, 2, 16))
    elif name == "IQ4_XS_R8":
        scale, value = half * ((runs(raw, 4, 4, 4, 4) | runs(raw, 2, 2, 2, 2) << 4) - 32), np.take(IQ4, runs(raw, 8, 128, 4, 4))
    elif name == "Q2_K_R4":
        s = take(raw, 4, 16)
        scale, minimum, value = half * (s & 15), take(raw, 2, 2, np.float16) * (s >> 4), pairs(raw, 20)
    elif name in ("Q4_K_R4", "Q5_K_R4"):
        low, high = take(raw, 8, 8), runs(raw, 4, 4, 4, 4)
        scale, minimum = half * (low & 15 | (high & 3) << 4), take(raw, 2, 2, np.float16) * (low >> 4 | high >> 2 << 4)
        value = fours(raw, 16, 128) if name == "Q4_K_R4" else fours(raw, 48, 128) | placed(raw, 16, 32, lambda ll, h, lh: 4 * ll + h + 2 * lh, 1) << 4
    elif name == "Q3_K_R4":
        scale, value = half * ((runs(raw, 6, 8, 8, 4) | runs(raw, 2, 4, 4, 2) << 4) - 32), (pairs(raw, 46) | runs(raw, 14, 32, 4, 1) << 2) - 4
    elif name == "Q6_K_R4":
        scale, value = half * take(raw, 2, 16, np.int8), (fours(raw, 82, 128) | placed(raw, 18, 64, lambda ll, h, lh: 4 * lh + 2 * h, 2) << 4) - 32
    elif name == "IQ2_K_R4":
        scale, value = half * (runs(raw, 4, 8, 8, 4) - 8), np.take(IQ2, pairs(raw, 12)) + 5 * np.repeat(marks, 16, 1)
    elif name == "IQ3_K_R4":
        scale = half * ((2 * runs(raw, 6, 8, 8, 4) + 1) * (1 - 2 * runs(raw, 4, 2, 2, 1)))
        value = np.take(IQ3, pairs(raw, 14) | runs(raw, 78, 32, 4, 1) << 2) + 4 * np.repeat(marks, 16, 1)
    elif name in ("IQ4_K_R4", "IQ5_K_R4"):
        scale, value, by = half * ((runs(raw, 8, 8, 8, 4) | runs(raw, 4, 4, 4, 2) << 4) - 32), fours(raw, 16, 128), 4
        if name == "IQ5_K_R4":
            value, by = value | placed(raw, 144, 32, lambda ll, h, lh: 2 * ll + h + 4 * lh, 1) << 4, 2
        value = np.take(IQ4 if by == 4 else IQ5, value) + by * np.repeat(marks, 16, 1)
    else:
        s, value, by = take(raw, 0, 8), fours(raw, 8, 128), 4
        if name == "IQ5_KS_R4":
            value, by = value | placed(raw, 136, 32, lambda ll, h, lh: 2 * ll + h + 4 * lh, 1) << 4, 2
        scale, value = row_scale * ((s & 254) - 127), np.take(IQ4 if by == 4 else IQ5, value) + by * np.repeat(s & 1, 32, 1)
    return scale, value, minimum


def walk(start, count):
    """What `count` weights a start stands for: (blocks, starts) -> (blocks, weights)"""
    x, made = np.ascontiguousarray(start, np.uint32), []
    for _ in range(count):
        x = x * np.uint32(0xCBAC1FED)
        made.append((x[..., None].view(np.uint8) & 63).sum(-1, dtype=np.int32) - 126)
    return flat(np.stack(made, -1))


def blocks_of_trellis(name, raw, row_scale):
    if name == "IQ1_KT":
        s = take(raw, 0, 8)
        start = take(raw, 8, 32) | runs(raw, 40, 16, 16, 4) << 8 | flat(s[..., None] >> np.arange(4, 8) & 1) << 12
        return row_scale * np.take(IQ4, s & 15), walk(start + 4096, 8)
    if name == "IQ4_KT":
        s = take(raw, 0, 32, np.uint32).astype(np.uint32)
        start = take(raw, 32, 64) | runs(raw, 96, 32, 32, 4) << 8 | flat(s[..., None] >> np.arange(8, 32, 3, dtype=np.uint32) & 7).astype(np.int32) << 12
        return row_scale * ((s >> 1 & 127).astype(np.int32) - 64), walk(start + 4096 + 32768 * np.repeat((s & 1).astype(np.int32), 8, 1), 4)
    scale, value = runs(raw, 0, 4, 4, 4), walk(take(raw, 4, 64, np.uint16) + 4096, 8)
    if name == "IQ2_KT":
        return row_scale * np.take(IQ4, scale), value
    return row_scale * scale, signed(np.abs(value), runs(raw, 68, 32, 32, 1))


def blocks(name, raw, row_scale):
    """raw: uint8 (blocks, bytes); row_scale: float32 (blocks, 1).  Gives scales (float32), values, and the number of values of a scale."""
    half = take(raw, 0, 2, np.float16)
    if name.endswith("_KT"):
        return blocks_of_trellis(name, raw, row_scale)
    if name == "IQ2_BN":
        return row_scale, runs(raw, 0, 16, 16, 2) - 1
    if name == "Q8_KV":
        return row_scale, take(raw, 0, 32, np.int8)
    if name == "Q6_0":
        high = flat(split(take(raw, 2, 8), 2).reshape(-1, 8, 2, 2).transpose(0, 3, 2, 1))       # of a byte: two codes 8 apart, of each half
        return half, (runs(raw, 10, 16, 16, 4) | high << 4) - 32
    if name == "IQ2_K":
        return half * (nibble_list(raw, 4, 8) - 8), np.take(IQ2, runs(raw, 12, 64, 32, 2)) + 5 * np.repeat(bit_list(raw, 2, 2), 16, 1)
    if name == "IQ3_K":
        code = runs(raw, 14, 64, 32, 2) | runs(raw, 78, 32, 32, 1) << 2
        return half * ((2 * nibble_list(raw, 6, 8) + 1) * (1 - 2 * bit_list(raw, 4, 2))), np.take(IQ3, code) + 4 * np.repeat(bit_list(raw, 2, 2), 16, 1)
    if name in ("IQ4_K", "IQ5_K"):
        scale = half * ((nibble_list(raw, 8, 8) | flat(split(take(raw, 4, 4), 2)) << 4) - 32)
        more = np.repeat(bit_list(raw, 2, 2), 16, 1)
        if name == "IQ4_K":
            return scale, np.take(IQ4, runs(raw, 16, 128, 16, 4)) + 4 * more
        return scale, np.take(IQ5, runs(raw, 16, 128, 32, 4) | runs(raw, 144, 32, 32, 1) << 4) + 2 * more
    if name == "IQ6_K":
        return half * take(raw, 4, 16, np.int8), np.take(IQ6, runs(raw, 20, 128, 32, 4) | runs(raw, 148, 64, 32, 2) << 4) + np.repeat(bit_list(raw, 2, 2), 16, 1)
    if name == "IQ2_KS":
        scale = (nibble_list(raw, 2, 4) | bit_list(raw, 1, 1) << 4) - 16
        return row_scale * scale, np.take(IQ2, runs(raw, 6, 64, 32, 2)) + 5 * np.repeat(bit_list(raw, 0, 1), 32, 1)
    if name == "IQ3_KS":
        scale = (runs(raw, 2, 4, 4, 4) | bit_list(raw, 0, 1) << 4) - 16
        return row_scale * scale, np.take(IQ3, runs(raw, 6, 64, 32, 2) | runs(raw, 70, 32, 32, 1) << 2) + 4 * np.repeat(bit_list(raw, 1, 1), 32, 1)
    if name == "IQ2_KL":
        scale = (runs(raw, 2, 4, 4, 4) | flat(split(take(raw, 0, 2), 2)) << 4) - 32
        code = runs(raw, 6, 64, 16, 4) | runs(raw, 70, 16, 16, 1) << 4
        return row_scale * scale, flat(np.take(PAIRS, code, 0))
    if name == "IQ4_KSS":
        words = take(raw, 0, 128, np.uint16).reshape(-1, 8, 8)
        scales = ((words & 1) << np.arange(8)).sum(-1)
        words = words & 0xfffe
        words ^= words >> 1
        code = np.stack([words & 255, words >> 8], -1).reshape(-1, 8, 16)
        code = flat(np.concatenate([code & 15, code >> 4], -1))
    else:
        scales = take(raw, 0, 8)
        code = runs(raw, 8, 128, 16, 4) if name == "IQ4_KS" else runs(raw, 8, 128, 32, 4) | runs(raw, 136, 32, 32, 1) << 4
    values, by = (IQ5, 2) if name == "IQ5_KS" else (IQ4, 4)
    return row_scale * ((scales & 254) - 127), np.take(values, code) + by * np.repeat(scales & 1, 32, 1)


def dequantize(name, rows):
    """rows: uint8 (rows / those together, their bytes).  Gives float32 (rows, elements)."""
    _, block, size, head, together = SIZES[name]
    n, all_rows = rows.shape[1] // together // size, len(rows) * together
    heads, raw, minimum = np.ascontiguousarray(rows[:, :together * head]), rows[:, together * head:], None
    row_scale = heads.view(np.float16 if head == 2 else np.float32).astype(np.float32).reshape(all_rows, -1)[:, :1] if head else np.ones((all_rows, 1), np.float32)
    row_scale = np.repeat(row_scale, n, 0)
    with np.errstate(all="ignore"):
        if together == 1:
            scale, value = blocks(name, raw.reshape(-1, size), row_scale)
        else:
            raw = np.ascontiguousarray(np.swapaxes(apart(name, raw.reshape(len(rows), n, -1)), 1, 2)).reshape(-1, size)
            scale, value, minimum = blocks_of_rows(name, raw, row_scale)
        made = np.repeat(scale.astype(np.float32), block // scale.shape[1], 1) * value.astype(np.float32)
        if minimum is not None:
            made -= np.repeat(minimum.astype(np.float32), block // minimum.shape[1], 1)
        return made.reshape(all_rows, n * block)


def heads_of(scales, head):
    """The bytes before the rows' blocks: a scale, and zeros for what else is there."""
    if not head:
        return np.zeros((len(scales), 0), np.uint8)
    made = scales.astype(np.float16 if head == 2 else np.float32)[:, None].view(np.uint8)
    return np.pad(made, ((0, 0), (0, head - made.shape[1])))


def matrix(rng, name, rows, columns):
    """Random rows with scales of ordinary size, and the F32 matrix that they stand for."""
    _, block, size, head, together = SIZES[name]
    n = columns // block
    raw = rng.integers(0, 256, (rows // together, together * (head + n * size)), dtype=np.uint8)
    parts = raw[:, together * head:].reshape(-1, together * size)
    if name == "MXFP4_R8":
        parts[:, :8] = rng.integers(120, 124, (len(parts), 8))
    elif name == "BF16_R16":
        parts[:, 1::2] = parts[:, 1::2] & 128 | rng.integers(0x3d, 0x40, (len(parts), 32))
    else:
        for place in SCALES[name]:
            parts[:, place + 1] = rng.integers(0x24, 0x2c, len(parts))
    raw[:, together * head:] = parts.reshape(len(raw), -1)
    raw[:, :together * head] = heads_of(rng.uniform(.5, 1, rows), head).reshape(len(raw), -1)
    return raw, dequantize(name, raw)


def digest(floats):
    """A hash of numbers, to which one that is not finite is like another, and zeros have no sign."""
    return hashlib.sha256((np.where(np.isfinite(floats), floats, np.float32("nan")) + np.float32(0)).astype("<f4").tobytes()).hexdigest()
