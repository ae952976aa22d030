#!/usr/bin/env python3
"""record_mobilenet.py: the small mmproj file of Gemma 3n's pictures and the rows that timm and transformers make with it, for tests/records/projectors.

    record_mobilenet.py CONVERTER OUT_FOLDER

Needs torch, timm and transformers (the record was made with 2.15.0, 1.0.31 and 5.24.0) and llama.cpp's convert_hf_to_gguf.py. MobileNetV5 has few blocks of each kind here; its weights have few values, as those
of record_projectors.py, whose pixels it is given.
"""
import json
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors.torch
import torch
import transformers
from record_projectors import pixels, small_weights
from timm.layers import RmsNorm2d
from timm.models import mobilenetv5
from timm.models._efficientnet_builder import decode_arch_def
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nMultimodalEmbedder

SIDE, WIDTH, TEXT = 256, 32, 40
BLOCKS = [["er_r1_k3_s2_e2_c8", "er_r1_k3_s1_e2_c8"], ["uir_r1_a3_k5_s2_e2_c16", "uir_r1_a5_k0_s1_e2_c16"],
          ["uir_r1_a5_k5_s2_e2_c24", "uir_r1_a0_k0_s1_e1_c24", "mqa_r1_k3_h3_v2_s1_d8_c24", "uir_r1_a0_k0_s1_e2_c24"],
          ["uir_r1_a5_k5_s2_e2_c32", "mqa_r1_k3_h2_s1_d8_c32", "uir_r1_a0_k0_s1_e2_c32"]]


def small_ones():
    layers = {"norm_layer": RmsNorm2d, "act_layer": mobilenetv5._GELU}
    net = mobilenetv5.MobileNetV5Encoder(decode_arch_def(BLOCKS), stem_size=8, fix_stem=True, pad_type="same", layer_scale_init_value=1e-5, **layers)
    net.msfa = mobilenetv5.MobileNetV5MultiScaleFusionAdapter(in_chs=net.msfa_in_chs, out_chs=WIDTH, output_resolution=16, **layers)
    vision = transformers.Gemma3nVisionConfig(hidden_size=WIDTH, vocab_size=8, vocab_offset=64)
    end = Gemma3nMultimodalEmbedder(vision, transformers.Gemma3nTextConfig(hidden_size=TEXT, vocab_size=64))
    small_weights(net, 1)
    small_weights(end, 2)
    return net.eval(), end.eval()


def save(net, end, folder):
    tensors = {f"model.vision_tower.timm_model.{k}": v for k, v in net.state_dict().items()} | {f"model.embed_vision.{k}": v for k, v in end.state_dict().items()}
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    sound = {"hidden_size": 16, "conf_num_hidden_layers": 1, "conf_num_attention_heads": 2, "input_feat_size": 128, "model_type": "gemma3n_audio"}
    vision = {"hidden_size": WIDTH, "model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc", "vocab_size": 8, "vocab_offset": 64, "rms_norm_eps": 1e-6}
    (folder / "config.json").write_text(json.dumps({"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "vision_config": vision, "audio_config": sound,
                                                    "text_config": {"model_type": "gemma3n_text", "hidden_size": TEXT, "vocab_size": 64, "num_hidden_layers": 1}}))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"height": SIDE, "width": SIDE}, "image_seq_length": 256}))


def main():
    converter, out = sys.argv[1], Path(sys.argv[2])
    net, end = small_ones()
    with torch.no_grad():
        seen = net.forward_features(torch.tensor(pixels(3, SIDE, SIDE))[None])
        rows = end(inputs_embeds=seen.reshape(1, WIDTH, -1).permute(0, 2, 1) * WIDTH ** 0.5)[0]
        rows = torch.cat([rows, end(input_ids=torch.tensor([64]))]).double()      # <end_of_image>
    some = {i: [float(f"{v:.9g}") for v in rows[i]] for i in (0, 1, 128, 255, 256)}
    record = {"medium": "vision", "width": SIDE, "height": SIDE, "n_rows": len(rows), "n_embd": TEXT, "rows": some, "norms": [float(f"{v:.9g}") for v in rows.norm(dim=1)]}
    (out / "gemma3nv.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        save(net, end, Path(folder))
        file = Path(folder) / "mmproj.gguf"
        subprocess.run([sys.executable, converter, folder, "--mmproj", "--outtype", "f32", "--outfile", file], check=True)
        (out / "gemma3nv.gguf.xz").write_bytes(lzma.compress(file.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main()
