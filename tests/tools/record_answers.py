#!/usr/bin/env python3
"""record_answers.py: small pairs of language model and projector, and what transformers answers to a prompt with a picture, for tests/records/pictures.

    record_answers.py CONVERTER OUT_FOLDER [NAME ...]       default: all names

Needs what record_projectors.py needs. The picture is `picture` below, which the test makes again; the model's own processor cuts and resizes it and writes what the prompt has around it. The
vocabulary is the 256 bytes and the control tokens that the processor asks for. NAME.json has the prompt with <__media__> in the place of the picture, its number of tokens, the greedy ids, and
the log-probabilities of the likeliest tokens at each step.
"""
import argparse
import json
import lzma
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import record_projectors as projectors
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

STEPS, TOP = 8, 20
TEXT = {**projectors.TEXT, "vocab_size": 264, "num_hidden_layers": 2, "max_position_embeddings": 2048}


def picture(width, height):
    """Bytes of RGB: soft slopes, an edge, and a pattern."""
    y, x = np.mgrid[:height, :width]
    planes = [x * 255 // (width - 1), y * 255 // (height - 1), (x * 7 + y * 13 + x * y % 11) % 256]
    return np.stack([np.where((x + y) % 40 < 20, p, 255 - p) for p in planes], -1).astype(np.uint8)


def tokenizer(special):
    """Bytes, and control tokens by the names under which the processor asks for them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(["<pad>", *special.values()])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", extra_special_tokens=special)


def resized_by_pillow(images, how):
    """A processor that resizes with torchvision, which differs by 1 of 255 here and there."""
    def resize(stack, size, **_):
        return torch.stack([torch.tensor(np.asarray(Image.fromarray(p.permute(1, 2, 0).numpy()).resize((size.width, size.height), how))).permute(2, 0, 1) for p in stack])
    images.resize = resize
    return images


def internvl():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 2, "image_size": [48, 48], "patch_size": [6, 6], "layer_norm_eps": 1e-6,
              "attention_bias": True}
    t = tokenizer({"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"})
    config = transformers.InternVLConfig(text_config={"model_type": "qwen2", **TEXT}, vision_config=vision, downsample_ratio=0.5, image_token_id=t.context_image_token_id)
    images = transformers.GotOcr2ImageProcessorPil(size={"height": 48, "width": 48}, image_mean=projectors.STD, image_std=projectors.STD, max_patches=6, min_patches=1)
    processor = transformers.InternVLProcessor(images, t, transformers.InternVLVideoProcessor(), image_seq_length=16)
    return transformers.InternVLForConditionalGeneration(config), processor, t.context_image_token, transformers.Qwen2ForCausalLM, {"max_dynamic_patch": 6}


def gemma4(**more):
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12, "patch_size": 4, "pooling_kernel_size": 3,
              "position_embedding_size": 64}
    t = tokenizer({"image_token": "<|image|>", "boi_token": "<|image>", "eoi_token": "<image|>", "audio_token": "<|audio|>", "boa_token": "<|audio>", "eoa_token": "<audio|>"})
    text = {**TEXT, "hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision", "sliding_window": 64, "num_hidden_layers": 3,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "global_head_dim": 40, "num_kv_shared_layers": 0, **more}
    config = transformers.Gemma4Config(text_config=text, vision_config=vision, audio_config=None, image_token_id=t.image_token_id, boi_token_id=t.boi_token_id, eoi_token_id=t.eoi_token_id)
    images = transformers.Gemma4ImageProcessorPil(patch_size=4, max_soft_tokens=70)
    processor = transformers.Gemma4Processor(transformers.Gemma4AudioFeatureExtractor(), images, t, transformers.Gemma4VideoProcessor())
    return transformers.Gemma4ForConditionalGeneration(config), processor, t.image_token, transformers.Gemma4ForCausalLM, {"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}



def gemma4_small():
    return gemma4(hidden_size_per_layer_input=8, vocab_size_per_layer_input=TEXT["vocab_size"], use_bidirectional_attention=None)



def gemma4a():
    """Its sound."""
    audio = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "subsampling_conv_channels": [16, 6], "output_proj_dims": 20, "input_feat_size": 16}
    model, processor, *_ = gemma4()
    t = processor.tokenizer
    ids = {f"{name}_token_id": t.convert_tokens_to_ids(getattr(t, f"{name}_token")) for name in ("audio", "boa", "eoa")}
    config = transformers.Gemma4Config(**{**model.config.to_dict(), "audio_config": audio, **ids, "eoa_token_index": ids["eoa_token_id"]})
    features = transformers.Gemma4AudioFeatureExtractor(feature_size=16)
    processor = transformers.Gemma4Processor(features, processor.image_processor, t, processor.video_processor)
    model = transformers.Gemma4ForConditionalGeneration(config)
    projectors.limit(model)
    def inputs(text, images, return_tensors):
        return processor(text=text, audio=[images], sampling_rate=16000, return_tensors=return_tensors)
    inputs.tokenizer = t
    return model, inputs, t.audio_token, transformers.Gemma4ForCausalLM, {"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}


def gemma3n():
    """Tokens from 260 on have embeddings of their own kind in the encoder of pictures, and the model's inputs of layers have none of them."""
    import record_mobilenet as mobilenet
    import timm
    net, _ = mobilenet.small_ones()
    timm.create_model = lambda *_, **more: net
    t = tokenizer({"boi_token": "<start_of_image>", "boa_token": "<start_of_audio>", "pad3": "<pad3>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>", "audio_token": "<audio_soft_token>",
                   "eoa_token": "<end_of_audio>"})
    text = {**TEXT, "num_hidden_layers": 5, "num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 64, "vocab_size_per_layer_input": 260, "hidden_size_per_layer_input": 8, "laurel_rank": 64, "activation_sparsity_pattern": [0.95, 0.95, 0.0, 0.0, 0.0], "pad_token_id": 0}
    vision = {"hidden_size": mobilenet.WIDTH, "vocab_size": 2, "vocab_offset": 260}
    audio = {"hidden_size": 16, "conf_num_hidden_layers": 1, "conf_num_attention_heads": 2, "input_feat_size": 128, "vocab_size": 2, "vocab_offset": 262}
    ids = {f"{name}_token_id": t.convert_tokens_to_ids(getattr(t, f"{name}_token")) for name in ("boi", "eoi", "image", "boa", "eoa", "audio")}
    config = transformers.Gemma3nConfig(text_config=text, vision_config=vision, audio_config=audio, **ids)
    images = transformers.SiglipImageProcessorPil(size={"height": mobilenet.SIDE, "width": mobilenet.SIDE}, resample=Image.BILINEAR, do_normalize=False)
    processor = transformers.Gemma3nProcessor(transformers.Gemma3nAudioFeatureExtractor(), images, t)
    more = {"size": {"height": mobilenet.SIDE, "width": mobilenet.SIDE}, "image_seq_length": 256}
    model = transformers.Gemma3nForConditionalGeneration(config)
    model.model.audio_tower = torch.nn.Identity()      # whose names the converter does not know
    return model, processor, t.image_token, None, more


def glm4v():
    vision = {"hidden_size": 24, "intermediate_size": 48, "depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "image_size": 24, "out_hidden_size": 40}
    t = tokenizer({"image_token": "<|image|>", "begin": "<|begin_of_image|>", "end": "<|end_of_image|>", "video_token": "<|video|>", "begin_video": "<|begin_of_video|>",
                   "end_video": "<|end_of_video|>"})
    ids = {f"{kind}_token_id": t.convert_tokens_to_ids(f"<|{name}|>") for kind, name in (("image", "image"), ("image_start", "begin_of_image"), ("image_end", "end_of_image"), ("video", "video"),
                                                                                         ("video_start", "begin_of_video"), ("video_end", "end_of_video"))}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1], "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "pad_token_id": 0}
    config = transformers.Glm4vConfig(text_config=text, vision_config=vision, **ids)
    images = transformers.Glm4vImageProcessorPil(patch_size=4, size={"shortest_edge": 12544, "longest_edge": 4 * 1024 * 4})
    processor = transformers.Glm4vProcessor(images, t, transformers.Glm4vVideoProcessor())
    clip = {"image_mean": images.image_mean, "image_std": images.image_std}
    return transformers.Glm4vForConditionalGeneration(config), processor, "<|begin_of_image|><|image|><|end_of_image|>", None, clip



def glm_ocr():
    """Of the family of GLM 4V, with another language model and no learned positions."""
    vision = {"hidden_size": 24, "intermediate_size": 48, "depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "image_size": 24, "out_hidden_size": 40}
    _, processor, marker, _, clip = glm4v()
    t = processor.tokenizer
    ids = {f"{kind}_token_id": t.convert_tokens_to_ids(f"<|{name}|>") for kind, name in (("image", "image"), ("image_start", "begin_of_image"), ("image_end", "end_of_image"), ("video", "video"),
                                                                                         ("video_start", "begin_of_video"), ("video_end", "end_of_video"))}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1], "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "pad_token_id": 0}
    return transformers.GlmOcrForConditionalGeneration(transformers.GlmOcrConfig(text_config=text, vision_config=vision, **ids)), processor, marker, None, clip


def llava():
    vision = {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 6, "projection_dim": 32}
    t = tokenizer({"image_token": "<image>"})
    config = transformers.LlavaConfig(text_config={"model_type": "llama", **TEXT}, vision_config=vision, image_token_id=t.image_token_id)
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48})
    processor = transformers.LlavaProcessor(images, t, patch_size=6, vision_feature_select_strategy="default", num_additional_image_tokens=1)
    return transformers.LlavaForConditionalGeneration(config), processor, t.image_token, transformers.LlamaForCausalLM, {}


def llava_next():
    vision = {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 6, "projection_dim": 32}
    t = tokenizer({"image_token": "<image>"})
    config = transformers.LlavaNextConfig(text_config={"model_type": "llama", **TEXT}, vision_config=vision, image_token_id=t.image_token_id, image_grid_pinpoints=projectors.LLAVA_GRIDS)
    images = transformers.LlavaNextImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}, image_grid_pinpoints=projectors.LLAVA_GRIDS)
    processor = transformers.LlavaNextProcessor(images, t, patch_size=6, vision_feature_select_strategy="default", num_additional_image_tokens=1)
    return transformers.LlavaNextForConditionalGeneration(config), processor, t.image_token, transformers.LlamaForCausalLM, {}


def qwen2vl():
    vision = {"embed_dim": 24, "hidden_size": 40, "mlp_ratio": 4, "depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2}
    t = tokenizer({"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"})
    ids = {f"{name}_token_id": getattr(t, f"{name}_token_id") for name in ("image", "video", "vision_start", "vision_end")}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}, "pad_token_id": 0}
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **ids)
    images = transformers.Qwen2VLImageProcessorPil(patch_size=4, size={"shortest_edge": 50 * 64, "longest_edge": 100 * 64}, image_mean=projectors.STD, image_std=projectors.STD)
    processor = transformers.Qwen2VLProcessor(images, t, transformers.Qwen2VLVideoProcessor())
    return transformers.Qwen2VLForConditionalGeneration(config), processor, "<|vision_start|><|image_pad|><|vision_end|>", None, {}


def qwen3vl():
    """Two layers of the encoder pass rows to the two layers of the language model."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "num_position_embeddings": 36, "deepstack_visual_indexes": [0, 1],
              "out_hidden_size": 40}
    t = tokenizer({"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"})
    ids = {f"{name}_token_id": getattr(t, f"{name}_token_id") for name in ("image", "video", "vision_start", "vision_end")}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "mrope_interleaved": True, "rope_theta": 10000.0}, "pad_token_id": 0}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **ids)
    images = transformers.Qwen2VLImageProcessorPil(patch_size=4, size={"shortest_edge": 50 * 64, "longest_edge": 100 * 64}, image_mean=projectors.STD, image_std=projectors.STD)
    processor = transformers.Qwen3VLProcessor(images, t, transformers.Qwen3VLVideoProcessor())
    return transformers.Qwen3VLForConditionalGeneration(config), processor, "<|vision_start|><|image_pad|><|vision_end|>", None, {}


def qwen35():
    """The encoder of Qwen3-VL without additions, a language model with a recurrent layer, and a block that predicts a further token (MTP), of which transformers reads nothing."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "depth": 3, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "num_position_embeddings": 36, "out_hidden_size": 40}
    _, processor, marker, *_ = qwen3vl()
    ids = {f"{name}_token_id": getattr(processor.tokenizer, f"{name}_token_id") for name in ("image", "video", "vision_start", "vision_end")}
    text = {**TEXT, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1], "mrope_interleaved": True, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, "pad_token_id": 0}
    return transformers.Qwen3_5ForConditionalGeneration(transformers.Qwen3_5Config(text_config=text, vision_config=vision, **ids)), processor, marker, None, {}


def qwen35_foresees():
    """Its block is the model itself, whose first layer adds nothing, since the norm of embeddings changes no token: it is right if it reads what the model read, the picture as well."""
    return qwen35()


def add_mtp(name, folder):
    """The block has the weights of the last layer. It reads a token's embedding and the model's rows in equal parts, or only the first."""
    tensors = projectors.safetensors.torch.load_file(folder / "model.safetensors")
    alone, one = name == "qwen35_foresees", torch.eye(TEXT["hidden_size"])
    layer, norm = "model.language_model.layers.1.", tensors["model.language_model.norm.weight"]
    tensors |= {"mtp.layers.0." + k.removeprefix(layer): v.clone() for k, v in tensors.items() if k.startswith(layer)}
    tensors |= {f"mtp.pre_fc_norm_{k}.weight": norm * (not alone) for k in ("embedding", "hidden")} | {"mtp.norm.weight": norm.clone(), "mtp.fc.weight": torch.cat([one, one * (not alone)], 1)}
    projectors.safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["mtp_num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config))


def of_lines(kind, merge, causal):
    """Pixtral and Mistral Small 3.1: a token between the lines of a picture."""
    model = projectors.MODELS[kind]()[0]
    t = tokenizer({"image_token": "[IMG]", "break": "[IMG_BREAK]", "end": "[IMG_END]"})
    config = type(model.config)(**{**model.config.to_dict(), "text_config": {"model_type": "mistral", **TEXT}, "vision_config": {**projectors.pixtral_vision(), "image_size": 48 * merge},
                                   "image_token_index": t.image_token_id, "image_token_id": t.image_token_id})
    images = transformers.PixtralImageProcessorPil(size={"longest_edge": 48 * merge})
    processor = transformers.PixtralProcessor(images, t, patch_size=4, spatial_merge_size=merge)
    more = {"image_mean": images.image_mean, "image_std": images.image_std, "image_break": t.convert_tokens_to_ids("[IMG_BREAK]")}
    return type(model)(config), processor, t.image_token, causal, more


def pixtral():
    return of_lines("pixtral", 1, transformers.MistralForCausalLM)


def mistral3():
    return of_lines("mistral3", 2, transformers.MistralForCausalLM)


def minicpmv():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 36, "patch_size": 4, "insert_layer_id": 1}
    t = tokenizer({f"{name}_token": f"<{text}>" for name, text in (("image", "|image_pad|"), ("video", "pad"), ("image_start", "image"), ("image_end", "/image"), ("slice_start", "slice"),
                                                                   ("slice_end", "/slice"), ("image_id_start", "image_id"), ("image_id_end", "/image_id"))})
    text = {**TEXT, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1], "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}
    config = transformers.MiniCPMV4_6Config(text_config={"model_type": "qwen3_5_text", **text}, vision_config=vision, insert_layer_id=1, image_token_id=t.image_token_id)
    images = transformers.MiniCPMV4_6ImageProcessorPil(scale_resolution=48, patch_size=4)
    processor = transformers.MiniCPMV4_6Processor(images, transformers.MiniCPMV4_6VideoProcessor(), t)
    return transformers.MiniCPMV4_6ForConditionalGeneration(config), processor, t.image_token, None, {"scale_resolution": 48}


def llama4():
    vision = {"hidden_size": 24, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 6, "vision_output_dim": 32, "projector_input_dim": 32,
              "projector_output_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    t = tokenizer({name: f"<|{name}|>" for name in ("image", "image_start", "image_end", "patch", "tile_x_separator", "tile_y_separator")})
    text = {**TEXT, "intermediate_size_mlp": 48, "num_local_experts": 2, "attention_chunk_size": 8192, "pad_token_id": 256}
    config = transformers.Llama4Config(text_config=text, vision_config=vision, image_token_index=t.convert_tokens_to_ids("<|patch|>"))
    images = resized_by_pillow(transformers.Llama4ImageProcessor(size={"height": 48, "width": 48}), Image.BILINEAR)
    processor = transformers.Llama4Processor(images, t, patch_size=6)
    def inputs(**more):
        out = processor(**more)
        return {**out, "pixel_values": out["pixel_values"].float()}
    inputs.tokenizer = t
    transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None       # which 5.24 asks for
    return transformers.Llama4ForConditionalGeneration(config), inputs, "<|image|>", None, {}


def kimik25(limit=200, begin="media_begin"):
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 7, "pos_emb_width": 7}
    t = tokenizer({name: f"<|{name}|>" for name in (begin, "media_content", "media_pad", "media_end")})
    text = {"model_type": "deepseek_v3", **TEXT, "head_dim": 8, "num_key_value_heads": 2, "kv_lora_rank": 8, "q_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10,
            "n_routed_experts": 2, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1, "pad_token_id": 256}
    config = transformers.Kimi_K25Config(text_config=text, vision_config=vision, projection_hidden_size=24, tie_word_embeddings=False, image_token_id=t.convert_tokens_to_ids("<|media_pad|>"))
    images = resized_by_pillow(transformers.Kimi_K25ImageProcessor(patch_size=4, max_patches=limit), Image.BICUBIC)
    processor = transformers.Kimi_K25Processor(images, t, transformers.Kimi_K25VideoProcessor())
    return transformers.Kimi_K25ForConditionalGeneration(config), processor, f"<|{begin}|>image<|media_content|><|media_pad|><|media_end|>", transformers.DeepseekV3ForCausalLM, {"in_patch_limit": limit}


def kimivl():
    """transformers has no class of it: the encoder and the rule of pictures are those of Kimi K2.5, the files have other names, and the text begins a picture by another token."""
    model, processor, marker, causal, _ = kimik25(4096, "media_start")
    return model, processor, marker, causal, {}


def paddleocr():
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 4, "image_size": 24}
    t = tokenizer({"image_token": "<|IMAGE_PLACEHOLDER|>", "begin": "<|IMAGE_START|>", "end": "<|IMAGE_END|>", "video_token": "<|VIDEO_PLACEHOLDER|>"})
    ids = {f"{kind}_token_id": t.convert_tokens_to_ids(f"<|{name}|>") for kind, name in (("image", "IMAGE_PLACEHOLDER"), ("video", "VIDEO_PLACEHOLDER"), ("vision_start", "IMAGE_START"),
                                                                                         ("vision_end", "IMAGE_END"))}
    text = {**TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [4, 3, 3], "rope_theta": 10000.0}, "pad_token_id": 0}
    config = transformers.PaddleOCRVLConfig(text_config=text, vision_config=vision, **ids)
    limits = {"min_pixels": 16 * 64, "max_pixels": 100 * 64}
    images = transformers.PaddleOCRVLImageProcessorPil(patch_size=4, **limits)
    clip = {"image_mean": images.image_mean, "image_std": images.image_std, **limits}
    return transformers.PaddleOCRVLForConditionalGeneration(config), transformers.PaddleOCRVLProcessor(images, t), "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", None, clip


def lfm2():
    """Tiles and the whole picture; the converter knows patches of 16 alone."""
    vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "patch_size": 16, "num_patches": 36, "vision_use_head": False}
    t = tokenizer({"image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>", "image_thumbnail_token": "<|img_thumbnail|>",
                   **{f"at_{x}": f"<|img_row_1_col_{x}|>" for x in (1, 2)}})
    text = {**TEXT, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
    config = transformers.Lfm2VlConfig(text_config={"model_type": "lfm2", **text}, vision_config={"model_type": "siglip2_vision_model", **vision}, projector_hidden_size=56,
                                       image_token_id=t.image_token_id, tie_word_embeddings=True)
    images = resized_by_pillow(transformers.Lfm2VlImageProcessor(), Image.BILINEAR)
    return transformers.Lfm2VlForConditionalGeneration(config), transformers.Lfm2VlProcessor(images, t), "<image>", transformers.Lfm2ForCausalLM, {}


class Seeing(torch.nn.Module):
    """A language model that reads rows of record_projectors' Resampler in the place of <unk>, and its processor: slices are those of transformers' MiniCPM-V 4.6, whose rule is the same for squares
    of one patch, and the text is as openbmb's processor writes it."""

    def __init__(self, version):
        super().__init__()
        self.version, self.lm = version, transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**{**TEXT, "hidden_size": 128}))
        self.eyes = projectors.Resampler({**projectors.RESAMPLER_VISION, "image_size": 280}, 128, 5)
        self.model, self.lm_head, self.config = argparse.Namespace(language_model=self.lm.model), self.lm.lm_head, argparse.Namespace(text_config=self.lm.config)
        self.eyes.config.image_size = 48
        names = ["image", "/image", "slice", "/slice", "image_id", "/image_id", "unk"]
        self.tokenizer = tokenizer({f"of{i}": f"<{name}>" for i, name in enumerate(names)})
        self.images = transformers.MiniCPMV4_6ImageProcessorPil(scale_resolution=48, patch_size=1)

    def __call__(self, text, images, return_tensors):
        planes = []
        for number, image in enumerate(images):
            out = self.images([image], return_tensors="np")
            parts = np.split(out["pixel_values"][0], np.cumsum(np.prod(out["target_sizes"], 1))[:-1], -1)
            planes += [part.reshape(3, *size) for part, size in zip(parts, out["target_sizes"], strict=True)]
            rows, columns = out["grids"][0]
            seen, tile = "<unk>" * 5, "slice" if self.version > 2 else "image"
            around = f"<image_id>{number}</image_id>" if self.version > 2 else ""
            tiles = "\n".join([f"<{tile}>{seen}</{tile}>" * columns] * rows)
            text = text.replace("(<image>./</image>)", f"{around}<image>{seen}</image>{tiles if self.version > 2 else f'<slice>{tiles}</slice>'}", 1)
        return {"input_ids": torch.tensor([self.tokenizer(text)["input_ids"]]), "planes": planes}

    def generate(self, input_ids, planes, **more):
        x = self.lm.model.embed_tokens(input_ids)
        x[input_ids == self.tokenizer.convert_tokens_to_ids("<unk>")] = torch.cat([self.eyes(p) for p in planes])
        return self.lm.generate(inputs_embeds=x, **more)


def resampler(version=6):
    model = Seeing(version)
    return model, model, "(<image>./</image>)", transformers.Qwen2ForCausalLM, {}


class Hearing(torch.nn.Module):
    """A language model that reads the rows of an encoder of sound in the place of <unk>; the spectrogram is that of the processor."""

    def __init__(self, name, before, after, **padding):
        super().__init__()
        self.thinker, self.lm, self.padding = projectors.MODELS[name]()[0], transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TEXT)), padding
        self.model, self.lm_head, self.config = argparse.Namespace(language_model=self.lm.model), self.lm.lm_head, argparse.Namespace(text_config=self.lm.config)
        self.tokenizer, self.around = tokenizer({k: v for k, v in {"before": before, "after": after, "unk": "<unk>"}.items() if v}), f"{before}%s{after}"
        self.features = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=300)

    def __call__(self, text, images, return_tensors):
        out = self.features(images, sampling_rate=16000, return_attention_mask=True, return_tensors="pt", **self.padding)
        mel = out["input_features"][0][:, out["attention_mask"][0].bool()]
        with torch.no_grad():
            rows = self.thinker.model.audio_tower(mel, feature_lens=torch.tensor([mel.shape[1]]), return_dict=True).last_hidden_state
        return {"input_ids": torch.tensor([self.tokenizer(text.replace("<sound>", self.around % ("<unk>" * len(rows))))["input_ids"]]), "rows": rows}

    def generate(self, input_ids, rows, **more):
        x = self.lm.model.embed_tokens(input_ids)
        x[input_ids == self.tokenizer.convert_tokens_to_ids("<unk>")] = rows
        return self.lm.generate(inputs_embeds=x, **more)


def qwen25omni():
    model = Hearing("qwen25omni", "<|audio_bos|>", "<|audio_eos|>")
    return model, model, "<sound>", transformers.Qwen2ForCausalLM, {}


def qwen3omni():
    model = Hearing("qwen3omni", "<|audio_start|>", "<|audio_end|>", padding=True, truncation=False)
    return model, model, "<sound>", transformers.Qwen2ForCausalLM, {}


class Listening(Hearing):
    """A sound is filled up to 30 seconds."""

    def __init__(self, name, before, after):
        super().__init__(name, before, after)
        self.thinker, self.features = projectors.MODELS[name](1500)[0], transformers.WhisperFeatureExtractor(feature_size=16)

    def __call__(self, text, images, return_tensors):
        mel = self.features(images, sampling_rate=16000, return_tensors="pt")["input_features"]
        with torch.no_grad():
            rows = projectors.features(self.thinker.get_audio_features(mel, return_dict=True))
        return {"input_ids": torch.tensor([self.tokenizer(text.replace("<sound>", self.around % ("<unk>" * len(rows))))["input_ids"]]), "rows": rows}


def voxtral():
    model = Listening("voxtral", "[BEGIN_AUDIO]", "")
    return model, model, "<sound>", transformers.Qwen2ForCausalLM, {}


def qwen2audio():
    """A sound is filled up to 30 seconds, and what was added is not looked at."""
    t = tokenizer({"audio_token": "<|AUDIO|>", "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>"})
    config = transformers.Qwen2AudioConfig(text_config={"model_type": "qwen2", **TEXT}, audio_config=projectors.whisper(1500), audio_token_index=t.audio_token_id, audio_token_id=t.audio_token_id)
    processor = transformers.Qwen2AudioProcessor(transformers.WhisperFeatureExtractor(feature_size=16), t)
    def inputs(text, images, return_tensors):
        return processor(text=text, audio=images, sampling_rate=16000, return_tensors=return_tensors)
    inputs.tokenizer = t
    return transformers.Qwen2AudioForConditionalGeneration(config), inputs, "<|audio_bos|><|AUDIO|><|audio_eos|>", transformers.Qwen2ForCausalLM, {}


def sound(samples):
    """Of 16 bits, at 16,000 a second."""
    i = np.arange(samples)
    return ((i * i // 97 % 2001 - 1000) * 16).astype(np.int16)


SOUNDS = dict.fromkeys(["gemma4a", "qwen25omni", "qwen3omni", "voxtral", "qwen2audio"], 145637)
# What the processor adds around a picture that is no control token.
AROUND = {"gemma3n": "\n\n%s\n\n"}
# Tokens from there on have no embeddings but the encoder's, and are not said.
UNSAID = {"gemma3n": 260}
MTP = ["qwen35", "qwen35_foresees"]
TWICE = ["minicpmv", "resampler"]             # the prompt has the picture twice: they are numbered
MODELS = {f.__name__: f for f in (internvl, gemma3n, gemma4, gemma4_small, gemma4a, glm4v, glm_ocr, llava, llava_next, minicpmv, resampler, llama4, kimik25, kimivl, paddleocr, lfm2, qwen2vl, qwen3vl, qwen35, qwen35_foresees, pixtral, mistral3, qwen25omni, qwen3omni, voxtral, qwen2audio)}
# Other pictures for the files of a model: of this one no line of the tiles' rows shows anything of the picture.
SIZES = {"lfm2_tiles": ("lfm2", (1100, 520)), "llava_next_wide": ("llava_next", (2000, 20)), "resampler_25": ("resampler", (150, 70))}
# Their files with another clip.minicpmv_version, which says how the text around a picture is.
VERSIONS = {"resampler_25": 2}
OPTIONS = {"lfm2_tiles": ["-c", "1024"]} | dict.fromkeys(["gemma4", "gemma4_small"], ["--image-max-tokens", "70"]) | dict.fromkeys(["glm4v", "glm_ocr"], ["--image-min-tokens", "98", "--image-max-tokens", "128"]) | dict.fromkeys(["qwen2vl", "qwen3vl", *MTP], ["--image-min-tokens", "50", "--image-max-tokens", "100"])      # as the processor was made


def convert_text():
    """In a process of its own: the converter with our vocabulary in the place of those that it knows."""
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    import conversion

    def set_vocab(self):
        t = transformers.AutoTokenizer.from_pretrained(self.dir_model)
        names = [t.convert_ids_to_tokens(i) if i < len(t) else f"[unused{i}]" for i in range(TEXT["vocab_size"])]
        self.gguf_writer.add_tokenizer_model("gpt2")
        self.gguf_writer.add_tokenizer_pre("gpt-2")
        self.gguf_writer.add_token_list(names)
        self.gguf_writer.add_token_types([1 if i < 256 else 3 for i in range(len(names))])
        self.gguf_writer.add_token_merges(["a b"])
        self.gguf_writer.add_add_bos_token(False)

    conversion.load_all_models()
    kinds = [conversion.TextModel]
    for kind in kinds:
        kind.set_vocab = set_vocab
        kinds += kind.__subclasses__()
    runpy.run_path(sys.argv[0], run_name="__main__")


def text_file(name, model, causal, processor, converter, folder):
    """The language model alone, as a file of its own kind; causal None: as the converter takes it out of the whole. qwen3_5 has a block for the token after the next one if MTP says so."""
    lm = causal(model.config.text_config) if causal else model
    if causal:
        lm.model.load_state_dict(model.model.language_model.state_dict())
        lm.lm_head.load_state_dict(model.lm_head.state_dict())
    lm.save_pretrained(folder)
    processor.tokenizer.save_pretrained(folder)
    run = f"import sys; sys.argv = sys.argv[1:]; sys.path.insert(0, {str(Path(__file__).parent)!r}); import record_answers; record_answers.convert_text()"
    more = ["--no-mtp"] if "qwen3_5" in model.config.text_config.model_type and name not in MTP else []
    if name in MTP:
        add_mtp(name, folder)
    done = subprocess.run([sys.executable, "-c", run, converter, folder, "--outtype", "f32", "--outfile", folder / "model.gguf", *more], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-3000:])
    return folder / "model.gguf"


def answer(model, inputs):
    with torch.no_grad():
        done = model.generate(**inputs, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=None, pad_token_id=256)
    return done.sequences[0, -STEPS:].tolist(), torch.log_softmax(torch.cat(done.logits).double(), -1)


def record(name, converter, out):
    files, size = SIZES.get(name, (name, (150, 70)))
    version = {"version": VERSIONS[name]} if name in VERSIONS else {}
    model, processor, marker, causal, more = MODELS[files](**version)
    model = model.eval().float()
    projectors.small_weights(model, sum(files.encode()))
    if name == "qwen35_foresees":
        model.get_input_embeddings().weight.data.sub_(0.01).sign_()
        first = model.model.language_model.layers[0]
        first.linear_attn.out_proj.weight.data[:] = first.mlp.down_proj.weight.data[:] = 0
    if name in UNSAID:
        model.get_input_embeddings().weight.data[UNSAID[name]:] = 0
    prompt = f"Look at {marker} and say what it is." if name not in TWICE else f"Look at {marker} and {marker}."
    def of(pixels):
        if name in SOUNDS:
            return processor(text=prompt, images=pixels.astype(np.float32) / 32768, return_tensors="pt")
        return processor(text=prompt, images=[Image.fromarray(pixels)] * prompt.count(marker), return_tensors="pt")
    medium = sound(SOUNDS[name]) if name in SOUNDS else picture(*size)
    inputs = of(medium)
    ids, steps = answer(model, inputs)
    _, others = answer(model, of(medium[::-1].copy()))
    matters = float((steps[0].exp() * (steps[0] - others[0])).sum())
    assert matters > 1e-3, matters
    for kind in ("mmproj", "model") if files == name else ():
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            if kind == "mmproj":
                file = folder / "mmproj.gguf"
                projectors.convert_all(name, converter, model, folder, file, more)
            else:
                file = text_file(name, model, causal, processor, converter, folder)
            (out / f"{name}-{kind}.gguf.xz").write_bytes(lzma.compress(file.read_bytes(), preset=9 | lzma.PRESET_EXTREME))
    data = {**({"files": files} if files != name else {}), **version, "prompt": prompt.replace(marker, AROUND.get(name, "%s") % "<__media__>"), **({"sound": SOUNDS[name]} if name in SOUNDS else {"picture": size}), "options": OPTIONS.get(name, []), "n_tokens": inputs["input_ids"].shape[1], "greedy": ids,
            "steps": [[[int(i), float(f"{s[i]:.7g}")] for i in s.topk(TOP).indices] for s in steps], "picture_matters_kl": float(f"{matters:.3g}")}
    (out / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    print(name, data["n_tokens"], "tokens", ids, "the picture matters:", matters)


if __name__ == "__main__":
    projectors.record_named(record, [*MODELS, *SIZES])
