#!/usr/bin/env python3
"""record_projectors.py: small mmproj files of every type of projector, and the rows that transformers makes with them, for tests/records/projectors.

    record_projectors.py CONVERTER OUT_FOLDER [NAME ...]       default: all names

Needs torch and transformers (the records were made with 2.15.0 and 5.24.0) and llama.cpp's convert_hf_to_gguf.py. A model is made of a published configuration in small. Its weights have few
values, so that files compress: NAME.gguf.xz. Pixels are `pixels` below, which the test makes again. NAME.json has the rows in the order of the picture: some in full, the norm of each.
"""
import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

TEXT = {"hidden_size": 40, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 20, "vocab_size": 64, "max_position_embeddings": 256}
STD = [0.5, 0.5, 0.5]
LLAVA_GRIDS = [[48, 96], [96, 48], [96, 96], [144, 48], [48, 144]]


def pixels(channels, height, width):
    """Numbers in -1..1 that floats hold exactly."""
    c, y, x = np.ogrid[:channels, :height, :width]
    return (((c * 7 + y * 13 + x * 5 + (x * y) % 11) % 33 - 16) / 16).astype(np.float32)


def small_weights(model, seed):
    """Seven values for each matrix, of about the size that random initialisation has."""
    g = torch.Generator().manual_seed(seed)
    for name, p in sorted(model.named_parameters()):
        with torch.no_grad():
            fan = p[0].numel() if p.dim() > 1 else 8
            step = 2.0 ** -round(np.log2(max(fan, 1)) / 2 + 0.5)
            p.copy_(torch.randint(-3, 4, p.shape, generator=g) * step)
            if "norm" in name.lower() and name.endswith("weight") and p.dim() == 1:
                p.add_(1)


def patches(planes, patch, merge, times=2):
    """As Qwen's processors flatten a picture: squares of patches one after another, channels, frames, lines, columns."""
    c, h, w = planes.shape
    x = planes.reshape(c, h // (patch * merge), merge, patch, w // (patch * merge), merge, patch).transpose(1, 4, 2, 5, 0, 3, 6)
    x = np.repeat(x[:, :, :, :, :, None], times, axis=5)
    return torch.tensor(x.reshape(-1, c * times * patch * patch)), torch.tensor([[1, h // patch, w // patch]])


def features(out):
    rows = out.pooler_output if hasattr(out, "pooler_output") else out
    return torch.cat(list(rows)) if isinstance(rows, (list, tuple)) else rows.reshape(-1, rows.shape[-1])


def of_picture(model, planes):
    return features(model.model.get_image_features(pixel_values=torch.tensor(planes)[None], return_dict=True))


def gemma3():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 48, "patch_size": 6}
    config = transformers.Gemma3Config(text_config=TEXT, vision_config=vision, mm_tokens_per_image=16)
    return transformers.Gemma3ForConditionalGeneration(config), (48, 48), of_picture


def idefics3():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 48, "patch_size": 6}
    config = transformers.Idefics3Config(text_config={"model_type": "llama", **TEXT}, vision_config=vision, scale_factor=2)
    def rows(model, planes):
        return features(model.model.get_image_features(pixel_values=torch.tensor(planes)[None, None], return_dict=True))
    return transformers.Idefics3ForConditionalGeneration(config), (48, 48), rows


def of_grid(patch, merge):
    def rows(model, planes):
        flat, grid = patches(planes, patch, merge)
        out = model.model.visual(flat, grid_thw=grid, return_dict=True)
        deep = getattr(out, "deepstack_features", None) or []
        return torch.cat([features(out), *deep], dim=1)
    return rows


def qwen25():
    vision = {"hidden_size": 24, "intermediate_size": 40, "depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [1],
              "out_hidden_size": 40}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen2_5_VLForConditionalGeneration(config), (120, 128), of_grid(4, 2)


def qwen3vl():
    vision = {"hidden_size": 24, "intermediate_size": 40, "depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1],
              "out_hidden_size": 40}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen3VLForConditionalGeneration(config), (40, 24), of_grid(4, 2)


def qwen2vl():
    vision = {"embed_dim": 24, "hidden_size": 40, "mlp_ratio": 2, "depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}}
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision)
    return transformers.Qwen2VLForConditionalGeneration(config), (40, 24), of_grid(4, 2)


def glm4v():
    vision = {"hidden_size": 24, "intermediate_size": 48, "depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "image_size": 24, "out_hidden_size": 40}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}, "pad_token_id": 0}
    config = transformers.Glm4vConfig(text_config=text, vision_config=vision)
    return transformers.Glm4vForConditionalGeneration(config), (40, 24), of_grid(4, 2)


def glm_ocr():
    """The same type, with biases, norms of queries and keys, and no learned positions."""
    vision = {"hidden_size": 24, "intermediate_size": 48, "depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "image_size": 24, "out_hidden_size": 40}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}, "pad_token_id": 0}
    config = transformers.GlmOcrConfig(text_config=text, vision_config=vision)
    return transformers.GlmOcrForConditionalGeneration(config), (40, 24), of_grid(4, 2)


def pixtral_vision():
    return {"model_type": "pixtral", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 4, "head_dim": 12}


def mistral3():
    config = transformers.Mistral3Config(text_config={"model_type": "mistral", **TEXT}, vision_config=pixtral_vision(), spatial_merge_size=2, projector_hidden_act="gelu")
    def rows(model, planes):
        sizes = torch.tensor([planes.shape[1:]])
        return features(model.model.get_image_features(pixel_values=torch.tensor(planes)[None], image_sizes=sizes, return_dict=True))
    return transformers.Mistral3ForConditionalGeneration(config), (40, 24), rows


def pixtral():
    config = transformers.LlavaConfig(text_config={"model_type": "mistral", **TEXT}, vision_config=pixtral_vision(), projector_hidden_act="gelu", vision_feature_layer=-1,
                                      vision_feature_select_strategy="full")
    def rows(model, planes):
        sizes = torch.tensor([planes.shape[1:]])
        return features(model.model.get_image_features(pixel_values=torch.tensor(planes)[None], image_sizes=sizes, return_dict=True))
    return transformers.LlavaForConditionalGeneration(config), (40, 24), rows


def internvl(**more):
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": [48, 48], "patch_size": [6, 6], "layer_norm_eps": 1e-6}
    config = transformers.InternVLConfig(text_config={"model_type": "qwen2", **TEXT}, vision_config={**vision, "attention_bias": True, **more}, downsample_ratio=0.5)
    return transformers.InternVLForConditionalGeneration(config), (48, 48), of_picture


def internvl_rms():
    return internvl(norm_type="rms_norm", use_qk_norm=True, attention_bias=False)


def llava():
    vision = {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 6, "projection_dim": 32}
    config = transformers.LlavaConfig(text_config={"model_type": "llama", **TEXT}, vision_config=vision)
    return transformers.LlavaForConditionalGeneration(config), (48, 48), of_picture


def llava_next():
    """Of one tile: which tiles there are is for record_answers.py."""
    vision = {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 6, "projection_dim": 32}
    config = transformers.LlavaNextConfig(text_config={"model_type": "llama", **TEXT}, vision_config=vision, image_grid_pinpoints=LLAVA_GRIDS)
    def rows(model, planes):
        whole = torch.tensor(np.stack([planes] * 3))[None]
        return features(model.model.get_image_features(whole, torch.tensor([[40, 80]]), return_dict=True))[:64]
    return transformers.LlavaNextForConditionalGeneration(config), (48, 48), rows


def minicpmv(mode="16x"):
    """A table of 9 x 9 positions for pictures of any size."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 36, "patch_size": 4, "insert_layer_id": 1}
    text = {"model_type": "qwen3_5_text", **TEXT, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
    config = transformers.MiniCPMV4_6Config(text_config=text, vision_config=vision, insert_layer_id=1, downsample_mode=mode)
    def rows(model, planes):
        c, h, w = planes.shape
        flat = planes.reshape(c, h // 4, 4, w // 4, 4).transpose(0, 2, 1, 3, 4).reshape(1, c, 4, -1)
        return features(model.model.get_image_features(torch.tensor(flat), torch.tensor([[h // 4, w // 4]]), return_dict=True))
    return transformers.MiniCPMV4_6ForConditionalGeneration(config), (48, 80), rows


def minicpmv_4x():
    return minicpmv("4x")


class Resampler(torch.nn.Module):
    """MiniCPM-V 2.5 to 4.5, of which transformers has no class: Idefics 2's encoder, and what openbmb's resampler.py makes of it. Of its matrices one number in a hundred is not 0, so that files are small."""

    def __init__(self, vision, n, queries):
        super().__init__()
        self.vpm = transformers.models.idefics2.modeling_idefics2.Idefics2VisionTransformer(transformers.models.idefics2.configuration_idefics2.Idefics2VisionConfig(**vision))
        self.query, self.proj = torch.nn.Parameter(torch.zeros(queries, n)), torch.nn.Parameter(torch.zeros(n, n))
        self.kv_proj, self.attn = torch.nn.Linear(vision["hidden_size"], n, bias=False), torch.nn.MultiheadAttention(n, n // 128)
        self.ln_q, self.ln_kv, self.ln_post = (torch.nn.LayerNorm(n, eps=1e-6) for _ in range(3))
        self.config = transformers.PretrainedConfig(vision_config=vision, hidden_size=n, image_size=64, query_num=queries)

    def resampler(self):
        return {k: v for k, v in self.state_dict().items() if not k.startswith("vpm.")}

    def thin_out(self):
        g = torch.Generator().manual_seed(1)
        for k in ("proj", "attn.in_proj_weight", "attn.out_proj.weight", "kv_proj.weight"):
            w = self.get_parameter(k)
            w.mul_(5 * (torch.rand(w.shape, generator=g) < 0.01))

    def forward(self, planes):
        """Of one picture or slice."""
        self.thin_out() if self.proj.count_nonzero() > self.proj.numel() / 2 else None
        p, n = self.config.vision_config["patch_size"], self.proj.shape[0]
        lines, columns = planes.shape[1] // p, planes.shape[2] // p
        x = self.vpm(torch.tensor(planes)[None], patch_attention_mask=torch.ones(1, lines, columns, dtype=torch.bool)).last_hidden_state[0]
        v = self.ln_kv(self.kv_proj(x))
        place = [torch.outer(at.double(), 10000.0 ** (-torch.arange(n // 4).double() / (n // 4))) for at in (torch.arange(lines * columns) % columns, torch.arange(lines * columns) // columns)]
        k = v + torch.cat([wave(at) for at in place for wave in (torch.sin, torch.cos)], 1).float()
        return self.ln_post(self.attn(self.ln_q(self.query), k, v)[0]) @ self.proj


RESAMPLER_VISION = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 36, "patch_size": 4, "model_type": "siglip"}


def resampler():
    return Resampler(RESAMPLER_VISION, 256, 5), (48, 80), lambda model, planes: model(planes)


def llama4():
    vision = {"hidden_size": 24, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 6, "vision_output_dim": 32, "projector_input_dim": 32,
              "projector_output_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    text = {**TEXT, "intermediate_size_mlp": 48, "num_local_experts": 2}
    model = transformers.Llama4ForConditionalGeneration(transformers.Llama4Config(text_config=text, vision_config=vision))
    def rows(model, planes):
        out = model.get_image_features(torch.tensor(planes)[None], return_dict=True).last_hidden_state
        return features(model.multi_modal_projector(out))
    return model, (48, 48), rows


def of_lines(model, planes):
    """Of patches of 4, line by line."""
    c, h, w = planes.shape
    flat = planes.reshape(c, h // 4, 4, w // 4, 4).transpose(1, 3, 0, 2, 4).reshape(-1, c, 4, 4)
    return features(model.model.get_image_features(torch.tensor(flat), torch.tensor([[1, h // 4, w // 4]]), return_dict=True))


def kimik25():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 7, "pos_emb_width": 7}
    text = {"model_type": "deepseek_v3", **TEXT, "kv_lora_rank": 8, "q_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "n_routed_experts": 2, "n_group": 1,
            "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 24}
    config = transformers.Kimi_K25Config(text_config=text, vision_config=vision, projection_hidden_size=24, tie_word_embeddings=False)
    return transformers.Kimi_K25ForConditionalGeneration(config), (40, 24), of_lines


def kimivl():
    """transformers has no class of it. Its encoder is that of Kimi K2.5, which adds nothing to a picture alone; its file has other names."""
    return kimik25()


def paddleocr():
    """Its processor's sizes are those of large pictures; the table of positions is 6 x 6."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 4, "image_size": 24}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}}
    config = transformers.PaddleOCRVLConfig(text_config=text, vision_config=vision)
    return transformers.PaddleOCRVLForConditionalGeneration(config), (40, 24), of_lines


def lfm2():
    """Lines are fewer than the table's, which shrinks there. The converter knows patches of 16 alone."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 16, "num_patches": 36, "vision_use_head": False}
    config = transformers.Lfm2VlConfig(text_config={"model_type": "lfm2", **TEXT}, vision_config={"model_type": "siglip2_vision_model", **vision}, projector_hidden_size=56, tie_word_embeddings=True)
    def rows(model, planes):
        c, h, w = planes.shape
        flat = planes.reshape(c, h // 16, 16, w // 16, 16).transpose(1, 3, 2, 4, 0).reshape(1, -1, 16 * 16 * c)
        return features(model.model.get_image_features(torch.tensor(flat), torch.tensor([[h // 16, w // 16]]), torch.ones(flat.shape[:2], dtype=torch.long), return_dict=True))
    return transformers.Lfm2VlForConditionalGeneration(config), (64, 160), rows


def limit(model):
    """Bounds of what products read and make."""
    limits = {"input_min": -1.5, "input_max": 1.75, "output_min": -2.25, "output_max": 2}
    for name, value in model.named_buffers():
        value.copy_(torch.tensor(limits[name.split(".")[-1]])) if name.split(".")[-1] in limits else None


def gemma4():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12, "patch_size": 4, "pooling_kernel_size": 3,
              "position_embedding_size": 16, "standardize": True, "use_clipped_linears": True}
    config = transformers.Gemma4Config(text_config={**TEXT, "hidden_size_per_layer_input": 0}, vision_config=vision, audio_config=None)
    model = transformers.Gemma4ForConditionalGeneration(config)
    limit(model)
    at = model.model.vision_tower
    at.std_bias.copy_(torch.linspace(-1, 1, 24)), at.std_scale.copy_(torch.linspace(0.5, 1.5, 24))
    def rows(model, planes):
        c, h, w = planes.shape
        flat = torch.tensor(planes.reshape(c, h // 4, 4, w // 4, 4).transpose(1, 3, 2, 4, 0).reshape(1, -1, 48))
        y, x = np.divmod(np.arange(flat.shape[1]), w // 4)
        return features(model.model.get_image_features(flat, torch.tensor(np.stack([x, y], -1))[None], return_dict=True))
    return model, (36, 48), rows


def gemma4a():
    """Its sound: 67 frames, whose last row has three."""
    audio = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "subsampling_conv_channels": [16, 6], "output_proj_dims": 20, "input_feat_size": 16}
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12, "patch_size": 4, "pooling_kernel_size": 3, "position_embedding_size": 16}
    config = transformers.Gemma4Config(text_config={**TEXT, "hidden_size_per_layer_input": 0}, vision_config=vision, audio_config=audio)
    model = transformers.Gemma4ForConditionalGeneration(config)
    limit(model)
    def rows(model, planes):
        flat = torch.tensor(planes).transpose(1, 2)
        return features(model.model.get_audio_features(flat, torch.ones(flat.shape[:2], dtype=torch.bool), return_dict=True))
    return model, (16, 67), rows


def whisper(positions=24):
    return {"d_model": 24, "encoder_layers": 3, "encoder_attention_heads": 2, "encoder_ffn_dim": 40, "num_mel_bins": 16, "max_source_positions": positions}


def voxtral(positions=24):
    audio = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 96, "num_mel_bins": 16, "max_source_positions": positions}
    config = transformers.VoxtralConfig(text_config={"model_type": "llama", **TEXT}, audio_config=audio)
    def rows(model, planes):
        return features(model.get_audio_features(torch.tensor(planes), return_dict=True))
    return transformers.VoxtralForConditionalGeneration(config), (16, 48), rows


def qwen2audio(positions=24):
    config = transformers.Qwen2AudioConfig(text_config={"model_type": "qwen2", **TEXT}, audio_config=whisper(positions))
    def rows(model, planes):
        """Of a sound of 41 frames, and two more that are convolved with it."""
        seen = torch.where(torch.arange(positions) < 21, 0.0, -torch.inf).expand(1, 1, positions, positions)
        out = model.model.audio_tower(torch.tensor(pixels(1, 16, 2 * positions)), attention_mask=seen).last_hidden_state
        return features(model.model.multi_modal_projector(out[:, :10]))
    return transformers.Qwen2AudioForConditionalGeneration(config), (16, 43), rows


def qwen25omni():
    """Its sound: two whole chunks of 200 frames and one of 71."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "depth": 2, "num_heads": 2, "patch_size": 4, "fullatt_block_indexes": [1], "out_hidden_size": 40}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}}
    kind = transformers.models.qwen2_5_omni
    config = kind.configuration_qwen2_5_omni.Qwen2_5OmniThinkerConfig(audio_config={**whisper(1500), "output_dim": 40}, vision_config=vision, text_config=text)
    model = kind.modeling_qwen2_5_omni.Qwen2_5OmniThinkerForConditionalGeneration(config)
    return model, (16, 471), lambda model, planes: features(model.model.audio_tower(torch.tensor(planes[0]), feature_lens=torch.tensor([471]), return_dict=True))


def qwen3omni():
    """Its sound: three chunks of 100 frames and one of 71."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "depth": 2, "num_heads": 2, "patch_size": 4, "num_position_embeddings": 36, "deepstack_visual_indexes": [], "out_hidden_size": 40}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 24}
    kind = transformers.models.qwen3_omni_moe
    config = kind.configuration_qwen3_omni_moe.Qwen3OmniMoeThinkerConfig(audio_config={**whisper(1500), "output_dim": 40, "downsample_hidden_size": 6}, vision_config=vision, text_config=text)
    model = kind.modeling_qwen3_omni_moe.Qwen3OmniMoeThinkerForConditionalGeneration(config)
    return model, (16, 371), lambda model, planes: features(model.model.audio_tower(torch.tensor(planes[0]), feature_lens=torch.tensor([371]), return_dict=True))


MODELS = {f.__name__: f for f in (gemma3, idefics3, qwen25, qwen3vl, qwen2vl, glm4v, glm_ocr, mistral3, pixtral, internvl, internvl_rms, llava, llava_next, minicpmv, minicpmv_4x, resampler, llama4, kimik25, kimivl, paddleocr, lfm2, gemma4, gemma4a, voxtral, qwen2audio, qwen25omni, qwen3omni)}


KIMI = [("model.mm_projector", "mm_projector"), ("tower.encoder.patch_embed", "tower.patch_embed"), ("mm_projector.proj.0", "multi_modal_projector.linear_1"), ("mm_projector.proj.2", "multi_modal_projector.linear_2"), ("mm_projector", "multi_modal_projector")]
# The converter knows the names of files that were published before transformers 5: what is there now, and what it was.
NAMES = {"paddleocr": [("model.visual.", "visual."), ("model.projector.", "mlp_AR.")], "kimivl": KIMI, "kimik25": KIMI[:2], **dict.fromkeys(["gemma3", "lfm2"], [("vision_tower.", "vision_tower.vision_model.")]), **dict.fromkeys(["internvl", "internvl_rms"], [("vision_tower.", "model.vision_tower."), ("multi_modal_projector.", "model.multi_modal_projector.")])}


OMNI = {"qwen25omni": "Qwen2_5OmniModel", "qwen3omni": "Qwen3OmniMoeForConditionalGeneration"}

# What the model's own preprocessor_config.json has besides.
MORE = {"paddleocr": {"min_pixels": 16 * 64, "max_pixels": 64 * 64}, "minicpmv": {"scale_resolution": 64}, "minicpmv_4x": {"scale_resolution": 64, "downsample_mode": "4x"}}


def rename(name, folder):
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    for old, new in NAMES.get(name, []):
        tensors = {k if new in k and old in new else k.replace(old, new): v for k, v in tensors.items()}
    safetensors.torch.save_file(tensors, file, {"format": "pt"})


def convert(name, converter, folder, out, more=None):
    config = json.loads((folder / "config.json").read_text())
    vision = config["vision_config"] if "vision_config" in config else {}
    if "Intern" in config["architectures"][0]:       # the converter knows the names of the first release
        vision["architectures"] = ["InternVisionModel"]
    if "PaddleOCR" in config["architectures"][0]:
        vision["architectures"] = ["PaddleOCRVisionModel"]
    if "Thinker" in config["architectures"][0]:      # and the thinker inside a whole model
        config = {"architectures": [OMNI[name]], "model_type": config["model_type"].removesuffix("_thinker"), "thinker_config": config, "text_config": config["text_config"]}
    if "Kimi_" in config["architectures"][0]:        # and those of published files
        config["architectures"] = ["KimiVLForConditionalGeneration" if name == "kimivl" else "KimiK25ForConditionalGeneration"]
        vision["init_pos_emb_height"] = vision["init_pos_emb_width"] = vision["pos_emb_height"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": STD, "image_std": STD, "size": {"longest_edge": 96, "shortest_edge": 16}, "image_seq_length": 16, **(more or {})}))
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": (more or {}).get("image_break", 5), "content": "[IMG_BREAK]"}]}))
    (folder / "tokenizer_config.json").write_text("{}")
    done = subprocess.run([sys.executable, converter, folder, "--mmproj", "--outtype", "f32", "--outfile", out], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-3000:])


def convert_llava(converter, model, folder, out):
    """By the converter of those days, which takes CLIP and the projector apart."""
    script = Path(converter).parent / "tools" / "mtmd" / "legacy-models" / "convert_image_encoder_to_gguf.py"
    tower = model.model.vision_tower
    tower.save_pretrained(folder / "clip")
    parts = model.model.multi_modal_projector.state_dict().items()
    newline = {"model.image_newline": model.model.image_newline.detach()} if hasattr(model.model, "image_newline") else {}
    if newline:
        config = json.loads((folder / "clip" / "config.json").read_text())
        (folder / "clip" / "config.json").write_text(json.dumps({**config, "image_grid_pinpoints": LLAVA_GRIDS, "image_aspect_ratio": "anyres", "image_crop_resolution": 48, "image_split_resolution": 48,
                                                                 "mm_patch_merge_type": "spatial_unpad"}))
    torch.save({**newline, **{f"model.mm_projector.{0 if 'linear_1' in k else 2}.{k.split('.')[-1]}": v for k, v in parts}}, folder / "llava.projector")
    # CLIP as that script knows it, a module inside another one
    run = ("import runpy, sys, transformers; sys.argv = sys.argv[1:]; kind = transformers.CLIPVisionModel; plain = kind.state_dict;"
           "inner = lambda m: (setattr(m, 'state_dict', lambda: {'vision_model.' + k: v for k, v in plain(m).items()}), m)[1];"
           "kind.vision_model = property(inner); runpy.run_path(sys.argv[0], run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", run, script, "-m", folder / "clip", "--llava-projector", folder / "llava.projector", "--clip-model-is-vision", "--use-f32", "--output-dir", folder],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-3000:])
    (folder / "mmproj-model-f32.gguf").rename(out)


def without_sines(file, tensor, first):
    """Zeros in the place of rows that nobody reads, which do not compress."""
    data = bytearray(file.read_bytes())
    [t] = [t for t in gguf.GGUFReader(file).tensors if t.name == tensor]
    at, end = t.data_offset + first * int(t.shape[0]) * 4, t.data_offset + t.n_bytes
    data[at:end] = bytes(end - at)
    file.write_bytes(data)


def convert_resampler(converter, model, folder, out, version=6):
    """By the converter of those days, which takes the encoder and the resampler from two files."""
    script = Path(converter).parent / "tools" / "mtmd" / "legacy-models" / "minicpmv-convert-image-encoder-to-gguf.py"
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    torch.save(model.vpm.state_dict(), folder / "minicpmv.clip")
    torch.save({f"resampler.{k}": v for k, v in model.resampler().items()}, folder / "minicpmv.projector")
    done = subprocess.run([sys.executable, script, "-m", folder, "--clip-model-is-vision", "--use-f32", "--minicpmv_version", str(version)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-3000:])
    (folder / "mmproj-model-f32.gguf").rename(out)
    without_sines(out, "resampler.pos_embed_k", 0)


def convert_all(name, converter, model, folder, out, more=None):
    """The encoder's file of a model, by the converter that published files were made with."""
    if name.startswith("resampler"):
        return convert_resampler(converter, getattr(model, "eyes", model), folder, out, getattr(model, "version", 6))
    getattr(model, "thinker", model).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **(more or {})}))
    rename(name, folder)
    if name.startswith("llava"):
        return convert_llava(converter, model, folder, out)
    convert(name, converter, folder, out, more)
    if name in OMNI:
        without_sines(out, "a.position_embd.weight", 100)


def record(name, converter, out):
    model, (height, width), rows_of = MODELS[name]()
    model = model.eval().float()
    small_weights(model, sum(name.encode()))
    sound = name in OMNI or name == "gemma4a" or hasattr(model.config, "audio_config") and model.config.audio_config is not None and not getattr(model.config, "vision_config", None)
    planes = pixels(1 if sound else 3, height, width)
    with torch.no_grad():
        rows = rows_of(model, planes).numpy().astype(np.float64)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mmproj.gguf"
        convert_all(name, converter, model, Path(folder), file, MORE.get(name))
        packed = lzma.compress(file.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
    (out / f"{name}.gguf.xz").write_bytes(packed)
    some = sorted({0, 1, len(rows) // 2, len(rows) - 1})
    data = {"medium": "audio" if sound else "vision", "width": width, "height": height, "n_rows": len(rows), "n_embd": rows.shape[1],
            "rows": {i: [float(f"{v:.7g}") for v in rows[i]] for i in some}, "norms": [float(f"{v:.7g}") for v in np.linalg.norm(rows, axis=1)]}
    (out / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    print(name, rows.shape, len(packed), "bytes, norm", np.linalg.norm(rows) / len(rows) ** 0.5)


def record_named(one, names):
    """The command line: CONVERTER OUT_FOLDER [NAME ...]."""
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    for n in sys.argv[3:] or names:
        one(n, sys.argv[1], target)


if __name__ == "__main__":
    record_named(record, MODELS)
