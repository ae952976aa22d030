// Private to model/: the description of a model and its layers, the list of tensors, and the building blocks of parts.
//
// A layer consists of two parts, a mixer (attention, a convolution, a recurrence) and a feed-forward, either of which
// may be missing. A part is a pair of functions: `load` reads the keys that it needs, asks for its tensors with want()
// and for its buffers with state(); `graph` makes the expression from those tensors alone: a tensor that was not asked
// for is not there, so check and graph cannot disagree. To add a kind: a file with a `part`, its tensors in the list
// below, and a row of arch.c whose `layer` function chooses it.
#ifndef WEFT_MODEL_IMPL_H
#define WEFT_MODEL_IMPL_H
#include "model/model.h"
#include "model/projector.h"

typedef struct layer layer;
typedef struct loader loader;
typedef struct build build;

// --- tensors ---------------------------------------------------------------------------------------------------------

// T(id, name): in layer i the file has "blk.i.name.weight", and optionally "blk.i.name.bias" and "blk.i.name.scale".
#define TENSORS(T) \
  /* tensors of the model */ \
  T(TOKEN_EMBD, "token_embd") T(OUTPUT_NORM, "output_norm") T(OUTPUT, "output") T(POSITION_EMBD, "position_embd") \
  T(TOKEN_EMBD_NORM, "token_embd_norm") T(ENC_OUTPUT_NORM, "enc.output_norm") \
  T(ENC_ATTN_REL_B, "enc.blk.0.attn_rel_b") T(DEC_ATTN_REL_B, "dec.blk.0.attn_rel_b") \
  T(DEC_OUTPUT_NORM, "dec.output_norm") \
  T(TOKEN_TYPES, "token_types") T(DENSE_2, "dense_2") T(DENSE_3, "dense_3") T(CLS, "cls") T(CLS_OUTPUT, "cls.output") \
  T(PER_LAYER_TOKEN_EMBD, "per_layer_token_embd") T(PER_LAYER_MODEL_PROJ, "per_layer_model_proj") \
  T(PER_LAYER_PROJ_NORM, "per_layer_proj_norm") \
  T(ALTUP_PROJ, "altup_proj") T(ALTUP_UNEMBD_PROJ, "altup_unembd_proj") \
  T(HRM_Z_L_INIT, "hrm.z_l_init") T(OUTPUT_RES_SCORE, "output_res_score") \
  T(ATTN_RES_SCORE, "attn_res_score") T(FFN_RES_SCORE, "ffn_res_score") \
  T(OUTPUT_HC_FN, "output_hc_fn") T(OUTPUT_HC_BASE, "output_hc_base") T(OUTPUT_HC_SCALE, "output_hc_scale") \
  T(HC_ATTN_FN, "hc_attn_fn") T(HC_ATTN_BASE, "hc_attn_base") T(HC_ATTN_SCALE, "hc_attn_scale") \
  T(HC_FFN_FN, "hc_ffn_fn") T(HC_FFN_BASE, "hc_ffn_base") T(HC_FFN_SCALE, "hc_ffn_scale") \
  T(OUTPUT_HC_NORM, "output_hc_norm") T(OUTPUT_HC_DOWN, "output_hc_down") T(OUTPUT_HC_UP, "output_hc_up") \
  T(HC_ATTN_NORM, "hc_attn_norm") T(HC_ATTN_DOWN, "hc_attn_down") T(HC_ATTN_UP, "hc_attn_up") \
  T(HC_ATTN_INJECT, "hc_attn_inject") T(HC_FFN_NORM, "hc_ffn_norm") T(HC_FFN_DOWN, "hc_ffn_down") \
  T(HC_FFN_UP, "hc_ffn_up") T(HC_FFN_INJECT, "hc_ffn_inject") \
  T(PLE_KEY, "ple_key") T(PLE_VALUE, "ple_value") T(PLE_NORM_KEY, "ple_norm_key") \
  T(PLE_NORM_QUERY, "ple_norm_query") T(PLE_NORM_CONV, "ple_norm_conv") T(PLE_CONV1D, "ple_conv1d") \
  T(FC, "fc") T(MARKOV_W1, "markov_w1") T(MARKOV_W2, "markov_w2") T(CONF_PROJ, "conf_proj") \
  T(ROPE_FREQS, "rope_freqs") T(ROPE_LONG, "rope_factors_long") T(ROPE_SHORT, "rope_factors_short") \
  /* norms of a layer */ \
  T(ATTN_NORM, "attn_norm") T(ATTN_NORM_2, "attn_norm_2") T(FFN_NORM, "ffn_norm") T(FFN_NORM_EXPS, "ffn_norm_exps") \
  T(POST_ATTENTION_NORM, "post_attention_norm") T(POST_FFW_NORM, "post_ffw_norm") \
  T(POST_FFW_NORM_1, "post_ffw_norm_1") T(PRE_FFW_NORM_2, "pre_ffw_norm_2") T(POST_FFW_NORM_2, "post_ffw_norm_2") \
  T(LAYER_OUTPUT_NORM, "layer_output_norm") \
  /* a layer's part of the per-layer embedding, and a factor of its output */ \
  T(INP_GATE, "inp_gate") T(PROJ, "proj") T(POST_NORM, "post_norm") T(LAYER_OUTPUT_SCALE, "layer_output_scale") \
  /* streams of several rows */ \
  T(ALTUP_ROUTER, "altup_router") T(ALTUP_ROUTER_NORM, "altup_router_norm") \
  T(ALTUP_PREDICT_COEF, "altup_predict_coef") T(ALTUP_CORRECT_COEF, "altup_correct_coef") \
  T(ALTUP_CORRECT_SCALE, "altup_correct_scale") T(LAUREL_L, "laurel_l") T(LAUREL_R, "laurel_r") \
  T(LAUREL_POST_NORM, "laurel_post_norm") \
  /* attention */ \
  T(ATTN_Q, "attn_q") T(ATTN_K, "attn_k") T(ATTN_V, "attn_v") T(ATTN_OUTPUT, "attn_output") \
  T(ATTN_Q_NORM, "attn_q_norm") T(ATTN_K_NORM, "attn_k_norm") \
  T(VIS_ATTN_QKV, "vis_attn_qkv") T(VIS_ATTN_OUTPUT, "vis_attn_output") \
  T(VIS_GATE, "vis_gate") T(VIS_UP, "vis_up") T(VIS_DOWN, "vis_down") \
  T(ATTN_QKV, "attn_qkv") T(ATTN_SINKS, "attn_sinks") T(ATTN_OUTPUT_NORM, "attn_output_norm") \
  T(ATTN_SUB_NORM, "attn_sub_norm") T(ATTN_O, "attn_o") T(ATTN_REL_B, "attn_rel_b") \
  T(CROSS_ATTN_NORM, "cross_attn_norm") T(CROSS_ATTN_REL_B, "cross_attn_rel_b") \
  T(CROSS_ATTN_Q, "cross_attn_q") T(CROSS_ATTN_K, "cross_attn_k") T(CROSS_ATTN_V, "cross_attn_v") \
  T(CROSS_ATTN_O, "cross_attn_o") \
  /* convolutions and recurrences */ \
  T(SHORTCONV, "shortconv.conv") T(SHORTCONV_IN, "shortconv.in_proj") T(SHORTCONV_OUT, "shortconv.out_proj") \
  T(ATTN_Q_A, "attn_q_a") T(ATTN_Q_A_NORM, "attn_q_a_norm") T(ATTN_Q_B, "attn_q_b") T(ATTN_KV_A_MQA, "attn_kv_a_mqa") \
  T(ATTN_KV_A_NORM, "attn_kv_a_norm") \
  T(ATTN_K_B, "attn_k_b") T(ATTN_V_B, "attn_v_b") T(ATTN_KV_B, "attn_kv_b") \
  T(INDEXER_K, "indexer.attn_k") T(INDEXER_K_NORM, "indexer.k_norm") T(INDEXER_PROJ, "indexer.proj") \
  T(INDEXER_Q_B, "indexer.attn_q_b") \
  T(ATTN_KV, "attn_kv") T(ATTN_OUTPUT_A, "attn_output_a") T(ATTN_OUTPUT_B, "attn_output_b") \
  T(ATTN_COMPRESSOR_KV, "attn_compressor_kv") T(ATTN_COMPRESSOR_GATE, "attn_compressor_gate") \
  T(ATTN_COMPRESSOR_APE, "attn_compressor_ape") T(ATTN_COMPRESSOR_NORM, "attn_compressor_norm") \
  T(INDEXER_COMPRESSOR_KV, "indexer_compressor_kv") T(INDEXER_COMPRESSOR_GATE, "indexer_compressor_gate") \
  T(INDEXER_COMPRESSOR_APE, "indexer_compressor_ape") T(INDEXER_COMPRESSOR_NORM, "indexer_compressor_norm") \
  T(INDEXER_Q_PROJ, "indexer.q_proj") T(INDEXER_K_PROJ, "indexer.k_proj") T(INDEXER_Q_NORM, "indexer.q_norm") \
  T(SSM_IN, "ssm_in") T(SSM_CONV1D, "ssm_conv1d") T(SSM_DT, "ssm_dt") T(SSM_A, "ssm_a") T(SSM_D, "ssm_d") \
  T(SSM_NORM, "ssm_norm") T(SSM_OUT, "ssm_out") \
  T(SSM_X, "ssm_x") T(SSM_DT_NORM, "ssm_dt_norm") T(SSM_B_NORM, "ssm_b_norm") T(SSM_C_NORM, "ssm_c_norm") \
  T(SSM_CONV1D_Q, "ssm_conv1d_q") T(SSM_CONV1D_K, "ssm_conv1d_k") T(SSM_CONV1D_V, "ssm_conv1d_v") \
  T(SSM_F_A, "ssm_f_a") T(SSM_F_B, "ssm_f_b") \
  T(SSM_G_A, "ssm_g_a") T(SSM_G_B, "ssm_g_b") T(SSM_G, "ssm_g") \
  T(TIME_MIX_LERP_FUSED, "time_mix_lerp_fused") T(TIME_MIX_W1, "time_mix_w1") T(TIME_MIX_W2, "time_mix_w2") \
  T(TIME_MIX_A1, "time_mix_a1") T(TIME_MIX_A2, "time_mix_a2") \
  T(TIME_MIX_V1, "time_mix_v1") T(TIME_MIX_V2, "time_mix_v2") T(TIME_MIX_G1, "time_mix_g1") \
  T(TIME_MIX_G2, "time_mix_g2") \
  T(TIME_MIX_W0, "time_mix_w0") T(TIME_MIX_A0, "time_mix_a0") T(TIME_MIX_V0, "time_mix_v0") \
  T(TIME_MIX_R_K, "time_mix_r_k") T(TIME_MIX_K_K, "time_mix_k_k") T(TIME_MIX_K_A, "time_mix_k_a") \
  T(TIME_MIX_RECEPTANCE, "time_mix_receptance") T(TIME_MIX_KEY, "time_mix_key") T(TIME_MIX_VALUE, "time_mix_value") \
  T(TIME_MIX_OUTPUT, "time_mix_output") T(TIME_MIX_LN, "time_mix_ln") \
  T(TIME_MIX_LERP_X, "time_mix_lerp_x") T(TIME_MIX_FIRST, "time_mix_first") T(TIME_MIX_DECAY, "time_mix_decay") \
  T(TIME_MIX_DECAY_W1, "time_mix_decay_w1") \
  T(TIME_MIX_DECAY_W2, "time_mix_decay_w2") T(TIME_MIX_GATE, "time_mix_gate") \
  T(CHANNEL_MIX_LERP_R, "channel_mix_lerp_r") T(CHANNEL_MIX_RECEPTANCE, "channel_mix_receptance") \
  T(CHANNEL_MIX_LERP_K, "channel_mix_lerp_k") T(CHANNEL_MIX_KEY, "channel_mix_key") \
  T(CHANNEL_MIX_VALUE, "channel_mix_value") \
  T(SSM_BA, "ssm_ba") T(SSM_BETA, "ssm_beta") T(SSM_ALPHA, "ssm_alpha") T(ATTN_GATE, "attn_gate") \
  /* feed-forward */ \
  T(FFN_GATE, "ffn_gate") T(FFN_UP, "ffn_up") T(FFN_DOWN, "ffn_down") T(FFN_SUB_NORM, "ffn_sub_norm") \
  /* experts: the router, the matrices of all experts, and the shared expert */ \
  T(FFN_GATE_INP, "ffn_gate_inp") T(EXP_PROBS_B, "exp_probs_b") T(EXP_PROBS_B_VL, "exp_probs_b_vl") \
  T(FFN_GATE_TID2EID, "ffn_gate_tid2eid") \
  T(FFN_LATENT_DOWN, "ffn_latent_down") \
  T(FFN_LATENT_UP, "ffn_latent_up") \
  T(FFN_ROUTED_DOWN, "ffn_routed_down") T(FFN_ROUTED_UP, "ffn_routed_up") T(FFN_ROUTED_NORM, "ffn_routed_norm") \
  T(FFN_GATE_EXPS, "ffn_gate_exps") T(FFN_UP_EXPS, "ffn_up_exps") T(FFN_GATE_UP_EXPS, "ffn_gate_up_exps") \
  T(FFN_DOWN_EXPS, "ffn_down_exps") \
  T(FFN_EXPS_BIAS, "ffn_exps.bias") \
  T(FFN_GATE_CHEXPS, "ffn_gate_chexps") T(FFN_UP_CHEXPS, "ffn_up_chexps") T(FFN_DOWN_CHEXPS, "ffn_down_chexps") \
  T(FFN_GATE_INP_SHEXP, "ffn_gate_inp_shexp") T(FFN_GATE_SHEXP, "ffn_gate_shexp") T(FFN_UP_SHEXP, "ffn_up_shexp") \
  T(FFN_DOWN_SHEXP, "ffn_down_shexp") \
  /* image and sound encoders (vit.c), in files with the prefix "v." or "a."; projectors: without a prefix */ \
  T(PATCH_EMBD, "patch_embd.weight") T(PATCH_EMBD_1, "patch_embd.weight.1") T(PATCH_BIAS, "patch_embd.bias") \
  T(CLASS_EMBD, "class_embd") T(PRE_LN, "pre_ln") T(POST_LN, "post_ln") \
  T(CONV1D_1, "conv1d.1.weight") T(CONV1D_1_BIAS, "conv1d.1.bias") T(CONV1D_2, "conv1d.2.weight") \
  T(CONV1D_2_BIAS, "conv1d.2.bias") T(CONV2D_1, "conv2d.1.weight") T(CONV2D_1_BIAS, "conv2d.1.bias") \
  T(CONV2D_2, "conv2d.2.weight") T(CONV2D_2_BIAS, "conv2d.2.bias") T(CONV2D_3, "conv2d.3.weight") \
  T(CONV2D_3_BIAS, "conv2d.3.bias") T(CONV_OUT, "conv_out") \
  T(CONV1D_0, "conv1d.0.weight") T(CONV1D_0_NORM, "conv1d.0.norm") T(CONV1D_1_NORM, "conv1d.1.norm") \
  T(INPUT_PROJECTION, "input_projection") T(PRE_ENCODE_OUT, "pre_encode.out") \
  T(ATTN_PRE_NORM, "attn_pre_norm") T(ATTN_K_REL, "attn_k_rel") T(PER_DIM_SCALE, "per_dim_scale") \
  T(NORM_CONV, "norm_conv") T(CONV_PW1, "conv_pw1") T(CONV_DW, "conv_dw") T(CONV_NORM, "conv_norm") \
  T(CONV_PW2, "conv_pw2") T(FFN_NORM_1, "ffn_norm_1") T(FFN_UP_1, "ffn_up_1") T(FFN_DOWN_1, "ffn_down_1") \
  T(FFN_POST_NORM_1, "ffn_post_norm_1") \
  T(CONV_STEM, "conv_stem.conv.weight") T(CONV_STEM_NORM, "conv_stem.bn") T(CONV_STEM_BIAS, "conv_stem.conv.bias") \
  T(CONV_EXP, "conv_exp.weight") T(CONV_EXP_NORM, "bn1") T(CONV_PWL, "conv_pwl.weight") T(CONV_PWL_NORM, "bn2") \
  T(DW_START, "dw_start.conv.weight") T(DW_START_NORM, "dw_start.bn") \
  T(DW_MID, "dw_mid.conv.weight") T(DW_MID_NORM, "dw_mid.bn") \
  T(PW_EXP, "pw_exp.conv.weight") T(PW_EXP_NORM, "pw_exp.bn") \
  T(PW_PROJ, "pw_proj.conv.weight") T(PW_PROJ_NORM, "pw_proj.bn") T(LAYER_GAMMA, "layer_scale.gamma") \
  T(MQ_NORM, "norm") T(MQ_Q, "attn.query.proj.weight") T(MQ_OUT, "attn.output.proj.weight") \
  T(MQ_K, "attn.key.proj.weight") T(MQ_K_DOWN, "attn.key.down_conv.weight") T(MQ_K_NORM, "attn.key.norm") \
  T(MQ_V, "attn.value.proj.weight") T(MQ_V_DOWN, "attn.value.down_conv.weight") T(MQ_V_NORM, "attn.value.norm") \
  T(MSFA_EXP, "msfa.ffn.pw_exp.conv.weight") T(MSFA_EXP_NORM, "msfa.ffn.pw_exp.bn") \
  T(MSFA_PROJ, "msfa.ffn.pw_proj.conv.weight") T(MSFA_PROJ_NORM, "msfa.ffn.pw_proj.bn") T(MSFA_NORM, "msfa.norm") \
  T(LN1, "ln1") T(LN2, "ln2") T(ATTN_POST_NORM, "attn_post_norm") T(FFN_POST_NORM, "ffn_post_norm") \
  T(NORM_EMBD, "norm_embd") T(STD_BIAS, "std_bias") T(STD_SCALE, "std_scale") \
  T(ATTN_OUT, "attn_out") T(LS1, "ls1") T(LS2, "ls2") \
  T(DS_LN, "ds_ln") T(DS_FFN_UP, "ds_ffn_up") T(DS_FFN_DOWN, "ds_ffn_down") \
  T(MM_0, "mm.0") T(MM_1, "mm.1") T(MM_2, "mm.2") T(MM_FC, "mm.model.fc") \
  T(MM_INPUT_PROJECTION, "mm.input_projection") T(MM_SOFT_EMB_NORM, "mm.soft_emb_norm") \
  T(MM_EMBEDDING, "mm.embedding") T(MM_HARD_EMB_NORM, "mm.hard_emb_norm") \
  T(MM_A_MLP_1, "mm.a.mlp.1") T(MM_A_MLP_2, "mm.a.mlp.2") T(MM_A_FC, "mm.a.fc") \
  T(MM_A_INPUT_PROJECTION, "mm.a.input_projection") \
  T(MM_INPUT_NORM, "mm.input_norm") T(MM_PATCH_MERGER, "mm.patch_merger") \
  T(MM_MERGER_KERNEL, "mm.patch_merger.weight") T(MM_MERGER_BIAS, "mm.patch_merger.bias") \
  T(MM_UP, "mm.up") T(MM_GATE, "mm.gate") T(MM_DOWN, "mm.down") T(MM_POST_NORM, "mm.post_norm") \
  T(IMG_BREAK, "token_embd.img_break") T(IMAGE_NEWLINE, "model.image_newline") \
  T(MM_MLP_0, "mm.model.mlp.0") T(MM_MLP_1, "mm.model.mlp.1") T(MM_MLP_2, "mm.model.mlp.2") \
  T(MM_MLP_3, "mm.model.mlp.3") \
  T(MM_A_NORM_PRE, "mm.a.norm_pre") T(MM_A_NORM_MID, "mm.a.norm_mid") \
  T(RS_QUERY, "resampler.query") T(RS_KV, "resampler.kv") T(RS_Q, "resampler.attn.q") T(RS_K, "resampler.attn.k") \
  T(RS_V, "resampler.attn.v") T(RS_OUT, "resampler.attn.out") T(RS_LN_Q, "resampler.ln_q") \
  T(RS_LN_KV, "resampler.ln_kv") T(RS_LN_POST, "resampler.ln_post") T(RS_PROJ, "resampler.proj") \
  T(RS_PLACES, "resampler.pos_embed_k") \
  /* adapters of the file itself: switch.c */ \
  T(ATTN_Q_LORA_A, "attn_q.lora_a") T(ATTN_Q_LORA_B, "attn_q.lora_b") \
  T(ATTN_K_LORA_A, "attn_k.lora_a") T(ATTN_K_LORA_B, "attn_k.lora_b") \
  T(ATTN_V_LORA_A, "attn_v.lora_a") T(ATTN_V_LORA_B, "attn_v.lora_b") \
  T(ATTN_OUTPUT_LORA_A, "attn_output.lora_a") T(ATTN_OUTPUT_LORA_B, "attn_output.lora_b") \
  T(FFN_GATE_LORA_A, "ffn_gate.lora_a") T(FFN_GATE_LORA_B, "ffn_gate.lora_b") \
  T(FFN_UP_LORA_A, "ffn_up.lora_a") T(FFN_UP_LORA_B, "ffn_up.lora_b") \
  T(FFN_DOWN_LORA_A, "ffn_down.lora_a") T(FFN_DOWN_LORA_B, "ffn_down.lora_b") \
  /* the block that predicts the token after the next one */ \
  T(NEXTN_EH_PROJ, "nextn.eh_proj") T(NEXTN_ENORM, "nextn.enorm") T(NEXTN_HNORM, "nextn.hnorm") \
  T(NEXTN_EMBED_TOKENS, "nextn.embed_tokens") T(NEXTN_SHARED_HEAD_NORM, "nextn.shared_head_norm") \
  T(NEXTN_SHARED_HEAD_HEAD, "nextn.shared_head_head") \
  /* encoder layers that pass rows to layers of the language model; #: the layer's number */ \
  T(DEEP_NORM, "deepstack.#.norm") T(DEEP_FC1, "deepstack.#.fc1") T(DEEP_FC2, "deepstack.#.fc2")
enum tensor_id {
  W_NONE,
#define T(id, name) W_##id,
  TENSORS(T)
#undef T
  W_COUNT
};

// weight, bias, scale: index in the file plus one, 0: none. Whether a weight or a bias is a vector or a matrix is what
// the part asked for: in a file, a matrix of one row has one dimension as well. clip: see arch.clipped
typedef struct tensor_ref { int weight, bias, scale, clip[4]; bool weight_is_vector, bias_is_vector; } tensor_ref;
typedef tensor_ref tensor_refs[W_COUNT];

// --- the description -------------------------------------------------------------------------------------------------

enum arch_flags {
  ARCH_NEOX = 1 << 0,             // rope pairs halves, not neighbours
  ARCH_QK_NORM = 1 << 1,          // each head of q and k is normed
  ARCH_QK_NORM_ALL = 1 << 2,      // q and k are normed, all heads as one
  ARCH_QK_NORM_EACH = 1 << 3,     // each head of q and k has a norm of its own if the file has weights for it
  ARCH_SINKS = 1 << 4,            // the softmax of each head has an additional term without a value
  ARCH_LAYER_NORM = 1 << 5,       // norms subtract the mean; otherwise they are RMS norms
  ARCH_NO_PRE_NORMS = 1 << 6,     // the inputs of attention and feed-forward are not normed
  ARCH_POST_NORMS = 1 << 7,       // their outputs are normed
  ARCH_FFN_NORM_LATE = 1 << 8,    // the norm before the feed-forward is called post_attention_norm
  ARCH_PARALLEL = 1 << 9,         // attention and feed-forward both read the layer's input
  ARCH_PLAIN_FFN = 1 << 10,       // down(act(up x)), without a gate
  ARCH_POSITIONS = 1 << 11,       // learned positions instead of rope
  ARCH_SWA_PLAIN_ROPE = 1 << 12,  // layers with a window rotate without scaling
  ARCH_LOGITS_DIVIDED = 1 << 13,  // divided by logit_scale; otherwise multiplied
  ARCH_GLOBAL_NO_ROPE = 1 << 14,  // if some layers have windows, the others do not rotate
  ARCH_GATED_Q = 1 << 15,         // attn_q also makes a gate per query, for the output of attention
  ARCH_QK_NORM_MAYBE = 1 << 16,   // each head of q and k is normed if the file has weights for it
  ARCH_DELTA_NEIGHBOURS = 1 << 17,// heads of a delta net that share a key are adjacent
  ARCH_QK_NORM_LATE = 1 << 19,    // those norms follow the rotation
  // rope may have sections for image positions; text has the same position in all, and halves rotate
  ARCH_SECTIONS = 1 << 18,
  ARCH_BARE_NORMS = 1 << 20,      // norms of the stream have no weights
  ARCH_GLOBAL_FIRST = 1 << 21,    // of a period, the first layer has no window, not the last
  ARCH_OUT_GATE = 1 << 22,        // attn_gate makes a gate from the stream, for the output of attention
  ARCH_EMBD_NORM = 1 << 23,       // the embedding is normed
  ARCH_EARLY_ROUTER = 1 << 24,    // the router reads the layer's input
  ARCH_SHARED_KV = 1 << 26,       // the last layers may read the keys and values of earlier ones
  ARCH_V_NORM = 1 << 27,          // each head of v is normed, without weights
  ARCH_V_MAYBE_K = 1 << 28,       // without attn_v, values are the output of attn_k; not in layers with a window
  ARCH_LAYER_SCALE = 1 << 29,     // layers may have a factor
  // a window is the aligned chunk of the position, from its first position on; layers without a window do not rotate,
  // and their queries grow with the position (scaled_by_position)
  ARCH_CHUNKS = 1 << 30,
  ARCH_DENSE_ROPE = 1 << 25,      // with ARCH_GLOBAL_NO_ROPE: layers without experts rotate all the same
};
// Tensors that must be there in files of this kind and may be missing in others. Tensors that no flag names are
// requested by a part, if that part needs them.
enum arch_has {
  HAS_HEAD = 1 << 0,              // output.weight; otherwise the embedding may take its place
  HAS_NORM_BIAS = 1 << 1,
  HAS_QKV_BIAS = 1 << 2,
  HAS_QKV_BIAS_MAYBE = 1 << 3,    // all three or none
  HAS_BARE_KEYS = 1 << 16,        // with HAS_QKV_BIAS: keys have none
  HAS_OUT_BIAS = 1 << 4,          // of attn_output
  HAS_FFN_BIAS = 1 << 5,
  HAS_EXPERT_BIAS = 1 << 6,       // of the router, too
  HAS_HEAD_BIAS = 1 << 7,
  HAS_PROBS_BIAS = 1 << 8,        // added to experts' probabilities for the choice only
  HAS_SHARED_GATE = 1 << 9,       // of the shared expert
  HAS_CONV_BIAS = 1 << 10,
  HAS_ROPE_FREQS = 1 << 11,
  // as ARCH_SINKS, in all layers with a window or in none, and in all without or in none
  HAS_SINKS_MAYBE = 1 << 15,
  HAS_SUB_NORMS = 1 << 13,        // of attention's output and of the gated product, before the last product
  HAS_SSM_NORMS = 1 << 14,        // of the vectors that mamba makes from its input
  HAS_ROUTER_SCALE = 1 << 12,     // the router reads the stream normed without weights, times a vector of its own
  HAS_RMS_KEY = 1 << 17,          // norms subtract the mean, but files name their epsilon as that of RMS norms
  HAS_Q_GAIN = 1 << 19,           // a factor per head for its normed queries
  HAS_PART_SCALES = 1 << 20,      // a factor for the output of each part
  HAS_MIXED_SECTIONS = 1 << 21,   // with ARCH_SECTIONS: pairs of the three sections take turns
  HAS_GATE_MAYBE = 1 << 22,       // without ffn_gate, the dense feed-forward is as with ARCH_PLAIN_FFN
  HAS_MTP = 1 << 18,              // files may have a block after the last layer that predicts a further token: mtp.c
  HAS_BIASES = HAS_NORM_BIAS | HAS_QKV_BIAS | HAS_OUT_BIAS | HAS_FFN_BIAS,
};
enum activation { ACT_SILU, ACT_GELU, ACT_RELU2, ACT_RELU, ACT_XIELU, ACT_SITU, ACT_GELU_ERF, ACT_GELU_QUICK };
enum period { PERIOD_ALL = -1 /* all layers have it */, PERIOD_LISTED = -2 /* those that the file lists */ };
typedef struct arch {
  const char *name;
  unsigned flags, has;       // enum arch_flags, enum arch_has
  const char *blocks;        // prefix of the names of layers' tensors, before "blk."; NULL: none
  enum activation act;
  bool yarn_exact;           // YaRN's ramp begins and ends within pairs, unless files say otherwise: rope.c
  bool yarn_bare;            // YaRN does not scale the rotated elements
  double post_eps;           // epsilon of the norms of ARCH_POST_NORMS; 0: that of the others
  bool bare_embd_norm;       // the norm of ARCH_EMBD_NORM has no weights
  bool softplus_gate;        // the gate of ARCH_OUT_GATE is log(1 + e^x), not a sigmoid
  // with HAS_MTP: the block reads the last layer's output before the model's norm
  bool mtp_bare;
  bool mtp_centred;          // with HAS_MTP: the norm before the head subtracts the mean
  bool centred_heads;        // norms of single heads subtract the mean, and have an epsilon of their own
  // the stream goes on from the norms of parts' inputs, times residual_scale; otherwise parts' outputs are scaled
  bool carries_norms;
  bool rotated_key_norm;     // part_mla: the rotated part of a key is normed before it rotates
  bool skips;                // adds the embedding, times the layer's factor, to each layer's output
  // inputs and outputs of products are clipped to limits beside the weight: .input_min, .input_max, .output_min,
  // .output_max
  bool clipped;
  bool halves_apart;         // each half of a head rotates separately; for an image patch, the first one by its column
  bool encoder;              // each position sees the whole text: encoder.c
  bool denoises;             // an encoder with a head: logits of a position are for its own token
  // a file of such a kind only drafts tokens for another model: draft.c; the blocks of masks are filled at once
  enum { DRAFTS_NOT, DRAFTS_CHAIN, DRAFTS_BLOCK } drafts;
  bool has_source;           // a decoder reads the output of an encoder, whose layers follow its own: cross.c
  // with a sliding window: all layers but every period-th have it, or an enum period; 0: no windows in files of this
  // kind
  int period;
  int (*keys)(loader *l);  // further keys and fixed values of this kind, after the common keys; may be NULL
  // chooses the parts of a layer, which by default has attention and a dense feed-forward; may be NULL
  int (*layer)(loader *l, layer *y);
} arch;
const arch *arch_find(const char *name, size_t n);             // NULL: unknown
const arch *arch_at(size_t i);                                 // the table; NULL past its end

typedef struct part {
  int (*load)(loader *l, layer *y);                            // 0, or -1 and an error
  tensor *(*graph)(build *b, const layer *y, tensor *x);  // x {T, n_embd}, normed; returns what is added to the stream
} part;
extern const part part_attention, part_encoder_attention, part_t5_attention, part_t5_decoder, part_cross_attention,
  part_shared_attention, part_attention_and_mamba2, part_mla, part_window_mla, part_short_conv, part_mamba, part_mamba2,
  part_plamo_mamba, part_delta_net, part_delta_net_ngrams, part_linear, part_dense, part_moe, part_dense_and_moe,
  part_dense_with_moe, part_dense_and_early_moe, part_moe_in_groups, part_moe_by_token, part_near, part_sparse_entries,
  part_entries, part_kda, part_rwkv7, part_rwkv6, part_channel_mix, part_lightning, part_switched_attention,
  part_switched_dense, part_vit_attention, part_vit_dense, part_draft_attention;

// The frequency of pair i is base^(-2i/dim), divided by the file's factors. scale: what positions are divided by. With
// YaRN only slow pairs are divided, fast ones are not, with a ramp between `low` and `high` of weight `ramp` (0: no
// YaRN). attn: factor of cos and sin.
typedef struct rope { int dim; double base, scale, low, high, ramp, attn; } rope;
enum rope_id { ROPE_GLOBAL, ROPE_SLIDING, ROPE_COUNT, ROPE_NONE = -1 };

// The gating function of a router's logits, and how experts are chosen: moe.c.
enum gating {
  GATING_NONE,
  GATING_SOFTMAX,
  GATING_SIGMOID,
  GATING_SOFTMAX_CHOSEN /* softmax over the chosen experts */,
  GATING_SQRT_SOFTPLUS,
  GATING_COUNT,
  GATING_NEAR /* no key: a softmax over nearly equal experts for each choice */
};
typedef struct experts {
  // ff: rows of an expert's gate; shared_ff: rows of the shared expert's gate, 0: none
  int n, used, ff, shared_ff, groups, groups_used;
  // experts read and write vectors of this length, projected from the stream; 0: the stream
  int latent;
  bool latent_normed;        // their output is normed before it is projected back
  enum gating gating;
  bool norm;                                                   // the weights of the chosen are divided by their sum
  // gate and up are clamped, and the gated value is multiplied by up + 1
  bool clamped;
  double cap;                                                  // of the router's logits: see soft_cap; 0: none
  double limit, shared_limit;                                  // of the gated product: see gated() in moe.c; 0: none
  bool limit_first;                                            // a gate is clamped before its activation, not after it
  // the weights multiply the inputs of the experts; otherwise their outputs
  bool weighted_in;
  // the number of neighbours that share a small expert, the rows of its gate, and its weight in the sum; 0: none
  int in_group, group_ff;
  double group_scale;
  // the number of shared experts, unless a key says it
  int shared;
  // the chosen and the shared expert are averaged; otherwise they are added
  bool averaged;
  double scale;                                                // factor of the chosen experts' weights
} experts;

enum { MAX_STREAM_ROWS = 8 };
typedef struct xielu { double negative, positive, slope, edge; } xielu;       // see activate

// indexer.c: heads, and elements per head (heads 0: the layer has none); turns_halves: as ARCH_NEOX; turns_last: its
// last elements rotate, not the first ones; eps: of the norm of its keys, 0: the default
typedef struct indexer { int heads, n; bool turns_halves, turns_last; double eps; } indexer;
// mla.c: elements of c, of a head's unrotated and rotated parts, of its value; scale: of scores
typedef struct mla { int latent, nope, rope, v; double scale; } mla;
// compressed.c: positions per entry (0: the layer has none), and the parts that attention's output is cut into, each of
// which becomes `rank` elements. Then states of the layer: the numbers that entries are made of, the same for an
// indexer, and the entries, followed by the indexer's
typedef struct compressed { int ratio, groups, rank, made_of, index_made_of, entries; } compressed;
// recurrent.c; inner: elements of all heads; normed: see mamba; sigmoid_gate: a delta net's output has a gate that is a
// sigmoid
typedef struct ssm { int inner, state, heads, groups; bool normed, sigmoid_gate; } ssm;

struct layer {
  // block: the block of the file that has its tensors; several layers may share one (see model.n_block)
  int index, block;
  int within;                // its number among several layers of one block, from 1 on; 0: the only one
  const part *mixer, *ff;                                      // NULL: none
  const part *cross;         // between mixer and ff, with a norm of its own (cross.c); NULL: none
  const char *blocks;        // prefix of its tensors' names, before "blk."; NULL: that of the architecture
  enum tensor_id mixer_norm, mixer_post, ff_norm, ff_post;     // norms before and after them; W_NONE: none
  enum tensor_id mixer_last, ff_last;                          // norms of the stream after the part's output was added
  // a norm of that sum together with the layer's input
  enum tensor_id mixer_again;
  enum tensor_id leaves;                                       // a model's norm of the layer's output
  int n_head, n_kv, head_dim, v_dim, n_ff;
  bool head_gates;           // the gate of ARCH_OUT_GATE is a number per head, not per element
  int taps;                                                    // of its convolution
  // attention sees this many positions, its own included; 0: all
  int window;
  // the layer whose keys, values or choice of positions it also reads; its own index: none
  int kv_from;
  enum rope_id rope;
  mla mla;
  compressed compressed;
  int every;                 // its caches have a row per this many positions; 0: per position
  indexer indexer;
  ssm ssm;
  experts moe;
  xielu xielu;
  // part_kda. safe_decay: decays are at least exp(least_decay). negated: then files have the negative of the numbers
  // that their logarithms are multiplied by. full_products: decays and gates have one matrix each instead of two thin
  // ones. full_gate: gates have one matrix
  bool safe_decay, negated, full_products, full_gate;
  double least_decay;
  // only the part of the gate above mean + cut standard deviations remains; -infinity: all
  double cut;
  bool halved;                                                 // halves the layer's output
  // its first state, which the others follow; which of them is its feed-forward's
  int state, ff_state;
  int ngram_state;                                             // which of them is the first of ngram.c
  tensor_refs w;
};

// adapter.c; rank 0: none
typedef struct adapted { int rank; float *a, *b; int64_t n_a, n_b, matrices; bool used; } adapted;
// either per_position or fixed is 0; window: of the layer, 0: none; every: positions per per_position elements
typedef struct state_kind { enum dtype dtype; int64_t per_position, fixed; int window, every; } state_kind;

// stacks.c: layers per stack, and how often the low one runs before the high one
typedef struct stacks { int n, low; } stacks;

// switch.c: adapters of the file and the rank of their matrices (n 0: none); tokens that activate them, and the tokens
// that these are embedded as; see there for gain
enum { SWITCH_MOST = 256 };
typedef struct switcher { int n, rank; double gain; uint32_t token[SWITCH_MOST], substitute[SWITCH_MOST]; } switcher;

struct projector_kind;
// hyper.c: rows of the stream; eps is added to their factors; magnitude: the largest factor of a part's output; rounds:
// how often rows and columns of the mixing matrix are divided by their sums, 0: rows are not mixed; averaged: the head
// reads the mean of the rows; low_rank: of the factors per element that take the place of sums by a factor per row, 0:
// there are none
typedef struct hyper { int n, rounds, low_rank; double eps, magnitude; bool averaged; } hyper;

// ngram.c: tokens of the longest sequence that is hashed (0: the model has none), heads per length, taps, elements of a
// row, the token that ends a text, the layer; then the numbers of the hashes
enum { NGRAM_SIZE = 8, NGRAM_HEADS = 64 };
typedef struct ngram {
  int size, per_size, taps, width, eos, layer;
  int64_t factor[NGRAM_SIZE], offset[NGRAM_HEADS], rows[NGRAM_HEADS];
} ngram;

// draft.c: of a draft file. reads: the layers of the target whose inputs it reads, or their number for what leaves the
// last one; target_embd: their length, 0: unsaid. block: tokens that are filled at once (0: one after the other), with
// `mask` where nothing is known. from_first: the row of the drawn token drafts, too. markov: numbers by which a token
// changes the logits after it, 0: it does not. rows: the state with the fused inputs. ids: the target's id of each row
// of the head; NULL: the same
enum { DRAFT_READS = 16 };
typedef struct drafter {
  int n_reads, reads[DRAFT_READS], target_embd, block, mask, markov, markov_rows, rows, embd_rows;
  bool residual_normed, reads_normed, causal, from_first;
  int32_t *ids;
} drafter;

struct model {
  const gguf *file;
  const arch *arch;
  const struct projector_kind *projector;                      // of an image or sound encoder; NULL: a text model
  projector_facts eye;                                         // for a projector: projector.h
  int n_rows;                // rows of the stream (altup.c); 0: one
  stacks stacks;             // stacks.c; n 0: layers run once, in order
  hyper hyper;               // hyper.c; n 0: the stream is one row
  switcher switcher;         // switch.c
  ngram ngram;               // ngram.c
  int bank_every;            // layers: residual_bank.c; 0: no bank
  double situ, situ_up;      // ACT_SITU: the soft caps of a gate and of what it multiplies; 0: none
  // the layers in which rows of floats see each other in both directions if their span says so: all, those with a
  // window
  enum both_ways { BOTH_ALL, BOTH_WINDOWS, BOTH_NONE } both_ways;
  // pairs of a head that rotate by the positions of time, row and column (rope.c); all 0: by one position.
  // sections_mixed: the sections are interleaved
  int sections[3];
  bool sections_mixed;
  int n_deep;                // layers to whose output rows of floats add something (deepstack)
  int n_own;                 // elements of a token's per-layer embedding (per_layer.c); 0: none
  // n_block: blocks of the file: layers, and blocks that are left out; fewer than layers if blocks run several times.
  // n_ctx_rope: the context before it was stretched
  int n_block, n_layer, n_embd, n_vocab, n_ctx_train, n_ctx_rope;
  bool rms_norms;            // although the architecture's norms subtract the mean (ARCH_LAYER_NORM)
  double eps, embedding_scale, residual_scale, logit_scale;    // factors; 1: none
  double attention_scale, attention_cap, logit_cap;            // 0: 1/sqrt(head_dim), no soft cap
  int banned_from, banned_to;  // tokens that cannot appear in text: their logits are the least
  double value_scale;                                          // factor of attention's output; 1: none
  // elements of queries, keys and values are clamped to it; 0: not clamped
  double qkv_limit;
  // scores fall with the distance: see attention.c; 0: they do not
  double alibi;
  int n_near;                // ranges in tables of distances: encoder.c; 0: none
  int n_encoder;             // layers of an encoder, after all others: cross.c; 0: none
  int starts;                // for such a model: the token that a decoder begins with
  // the window of layers that have one, unless the file says it, and the base of their rope; 0: none, that of the
  // others
  int window;
  // base_alpha: every base is multiplied by base_alpha^(dim / (dim - 2)); 0: not
  double base_swa, base_alpha;
  const char *base_key;      // the key for layers without a window; NULL: rope.freq_base
  rope rope[ROPE_COUNT];
  double temperature;        // queries grow by it times the logarithm of position / temperature_length; 0: they do not
  int temperature_length;    // 0: n_ctx_rope
  int temperature_from;      // added to the position
  bool half_turns;           // without a window, half as many elements rotate as a file says
  bool bare_qk_norm;         // layers that rotate norm queries and keys after it, without weights
  int n_ctx_max;             // the most positions that it can have; 0: unlimited
  int top_k;                 // positions that a token reads if an indexer chooses; 0: no indexer
  int block_size;            // it chooses top_k blocks of this many positions; 0: positions
  int local_blocks;          // the last blocks, which are always read: how many
  int pooling, n_embd_out;   // see model_pooling
  enum activation act;       // of the feed-forward
  model_kv kv;
  bool recurrent, no_rope, parallel, neox;                     // neox: rope pairs halves, not neighbours
  int block;                 // see model_block; 0: none
  enum tensor_id output_norm;
  tensor_refs w;
  layer *layers;
  drafter drafter;           // of a draft file
  model *draft;              // the draft file's model that is used with this one: draft.c; NULL: none
  int unseen;                // the first positions that no later one sees
  bool mtp;                  // layers[n_layer] predicts a further token: mtp.c
  int mtp_before;            // the state with the model's outputs that the block reads
  VEC(state_kind) states;
  int n_groups, group_window[MODEL_GROUPS];                    // see model_n_groups
  adapted *adapted;          // per adapter and tensor of the file
  float *adapter_scales;
  struct invocation { int32_t *ids; size_t n; } *invocations;          // per adapter: activation tokens; n 0: none
  int n_adapters;
  float *control;            // {n_layer, n_embd}: control.c; NULL: no control vector
  bool *controlled;          // per layer: whether it has one
  bool *fits_bf16;           // per tensor: F16 values that are all exact in BF16 (projector.c); NULL: not examined
};

// --- loading ---------------------------------------------------------------------------------------------------------

// The shape that would be requested if an integer key had another value: see keys_behind in model.c.
typedef struct trial { const char *key, *name; int64_t more, ne[3]; bool asked; } trial;

struct loader {
  const gguf *f;
  model *m;
  error *err;
  char key[160];
  bool *claimed;             // tensors that a part has claimed
  const char **uses;         // per key of the file: see model_key_uses
  trial *trial;              // NULL: none
  const char *prefix;        // prefix of tensor names except the projectors' ("mm."); NULL: none
  int (*all)(loader *l);     // reads the whole file
};

// model_keys.c: values of keys under the architecture's name, within limits; 0, or -1 and an error that names key and
// value. key: "llama.rest", in l->key; from here on this key counts as read
const char *key(loader *l, const char *rest);
// key() for a full name, not under the architecture's
const char *file_key(loader *l, const char *name);
bool has_key(loader *l, const char *rest);
bool equals_text(gguf_string s, const char *text);
int key_count(loader *l, const char *rest, uint32_t lo, uint32_t hi, int *out);
int key_count_or(loader *l, const char *rest, uint32_t fallback, uint32_t lo, uint32_t hi, int *out);
// one number for all layers, or one for each
int key_counts(loader *l, const char *rest, uint32_t lo, uint32_t hi, uint32_t each[MODEL_MAX_LAYERS]);
// the number of layer i, from one number for all layers or one for each
int key_count_at(loader *l, const char *rest, int i, uint32_t lo, uint32_t hi, int *out);
// an array of one number or truth value per layer
int key_flags(loader *l, const char *rest, uint32_t each[MODEL_MAX_LAYERS]);
int key_number(loader *l, const char *rest, double lo, double hi, double *out);
int key_number_or(loader *l, const char *rest, double fallback, double lo, double hi, double *out);
int number_at(loader *l, const char *name, int i, double lo, double hi,
              double *out);  // name: from key() or file_key(); one number, or the i-th of an array
// unread_keys.c: whether all keys under the architecture's name were read or are harmless; -1 and an error that names
// another one.
int check_keys(loader *l);

// model.c: asks for a tensor of the model (y NULL) or of a layer; afterwards w[id] has its place. Shape {ne0, ne1, ne2}
// in the file's order, 1 for missing axes. The bias of a matrix has ne1 elements (and ne2 rows), that of a vector ne0.
enum want_flags {
  WANT_OPTIONAL = 1,
  WANT_BIAS = 2 /* required; otherwise optional */,
  WANT_BARE = 4 /* the name has no ".weight" suffix */,
  WANT_VECTOR = 8,
  WANT_FOURTH = 32 /* the file may have four axes, the third of size 1 */,
  WANT_KERNEL = 64 /* an image convolution {width, height x channels, outputs}; four axes in files */,
  WANT_EACH = 256 /* the bias has the shape of the weight */,
  WANT_INTEGERS = 128 /* may be I32, which products cannot read */,
  WANT_SCALE = 16 /* required, and scales the input; otherwise it scales the output */
};
int want(loader *l, layer *y, enum tensor_id id, int64_t ne0, int64_t ne1, int64_t ne2, unsigned flags);
int want_scale(loader *l, const layer *y, enum tensor_id id);  // an error if the weight has none
int want_heads(loader *l, const layer *y);             // for a layer with attention: an error if it has no heads
static inline int want_matrix(loader *l, layer *y, enum tensor_id id, int64_t in, int64_t out, unsigned flags) {
  return want(l, y, id, in, out, 1, flags);
}
static inline int want_vector(loader *l, layer *y, enum tensor_id id, int64_t n, unsigned flags) {
  return want(l, y, id, n, 1, 1, flags | WANT_VECTOR);
}
static inline unsigned bias_if(const loader *l, enum arch_has what) { return l->m->arch->has & what ? WANT_BIAS : 0; }
// Adds a state with this many elements per position (or per y->every positions), or (0) with a fixed number of
// elements; returns its number. A part with several asks for them one after the other in `load`.
int state(loader *l, layer *y, enum dtype dt, int64_t per_position, int64_t fixed);

// model.c: the prefix of a layer's tensors, before "blk."
const char *before_blocks(const loader *l, const layer *y);
int load_layers(loader *l);                                    // model.c: the tensors of all layers' parts
// model.c: whether all tensors and keys of the file were asked for, and layers of the same parts have the same tensors
int check_all(loader *l);
// model.c: opens a file with `all`, which fills l->m
int open_by(int (*all)(loader *l), const gguf *file, model_kv kv, const char **uses, model **out, error *err);
int rope_load(loader *l, int head_dim);                        // rope.c
int attention_weights(loader *l, layer *y);                    // attention.c: the tensors of attention
int heads_weights(loader *l, layer *y);                        // those of them that make its heads
int layers_slide(loader *l);                                   // attention.c: which layers have windows
int layers_share(loader *l);                                   // which layers read the keys and values of others
int per_layer_load(loader *l);                                 // per_layer.c
int altup_load(loader *l);                                     // altup.c
int stacks_load(loader *l);                                    // stacks.c
int hyper_keys(loader *l);                                     // hyper.c: rows of the stream, if the file has several
int hyper_load(loader *l);
int mtp_find(loader *l);  // mtp.c: whether there is such a block; which others are left out
int mtp_load(loader *l);                                       // after its layer
int draft_keys(loader *l);                                     // draft.c: keys of a draft file
int draft_load_ends(loader *l);                                // draft.c: its tensors outside layers
int draft_layer(loader *l, layer *y);
int encoder_load_ends(loader *l);                              // encoder.c: tensors other than embedding and norms
int distances_load(loader *l);                                 // encoder.c: the number of ranges of distances
// encoder.c: the table of distances of a layer or, if blocks have none of their own, of the first block (id)
int distances_table(loader *l, layer *y, enum tensor_id id);
// cross.c: the number of layers, and the token that a decoder begins with
int source_keys(loader *l);
int source_load_ends(loader *l);                               // cross.c: the norm after the encoder
// model.c: the group of pages for layers with this window; n_groups: none
int window_group(const model *m, int window);
int ranking_load(loader *l);                                   // encoder.c: the tensors that make scores of vectors
tensor *ranking(const build *b, tensor *x);
int want_norm(loader *l, layer *y, enum tensor_id id);         // model.c: a norm of the stream; nothing for W_NONE

// --- building --------------------------------------------------------------------------------------------------------

typedef VEC(uop *) effects;
struct build {
  const model *m;
  const model_shape *s;
  graph *g;
  uop *T;                    // tokens of this run
  // for a run of one sequence: the number of positions when it has ended, and the position of its first token
  uop *C, *pos;
  uop *n_pages;              // for a run of several sequences: the number of pages that are read
  tensor *at;                // {T}: places in the sequence
  tensor *turns[3];          // {T}: positions for rope, if the model has sections
  tensor *scales;            // {T, adapters}: per token; NULL: no adapters
  tensor *last;              // {T}: the last place that each token sees; NULL: its own
  tensor *source;            // {T}: the number of source positions before each token; NULL: no sources
  tensor *is_floats, *floats;          // {T, 1}, {T, n_floats}: tokens that are rows of floats; NULL: none
  tensor *pages;             // {groups, table} or {T, groups, table}: pages of the sequence, or of each
  tensor *slot;              // {1}: the slot of the sequence's fixed states
  // per group: {T}, where keys and values are written, as numbers of positions in all pages
  tensor *rows[MODEL_GROUPS];
  tensor *table, *entry;  // for cache_rows: all of BUF_PAGES, and (several sequences) {T} the first entry of each token
  tensor *cos[ROPE_COUNT], *sin[ROPE_COUNT];      // {T, 1, rope dim / 2}
  tensor *entered;           // the input of this layer
  tensor *router_in;         // the input of the router; NULL: that of the experts
  tensor *embedded;          // the input of the first layer
  tensor *bank[MODEL_MAX_LAYERS + 1], *bank_score[MODEL_MAX_LAYERS + 1];   // residual_bank.c
  int n_bank;
  tensor *own;               // {T, layers, n_own}: see per_layer.c
  tensor *deep;              // {rows, ..}: what encoder layers pass to layers of the language model; NULL: nothing
  tensor *window;            // {rows of whole pages}: the window of each image patch
  tensor *adapter;           // {T, 1}: the adapter of the file that is active at each token (switch.c)
  struct kept { tensor *K, *V, *chosen; } *kept;  // of each layer, for layers that share them
  tensor *reads[DRAFT_READS];  // what a draft file reads of this run: draft.c
  effects *effects;
};

#define DIMS(...) (int)COUNT(((uop *[]){__VA_ARGS__})), (uop *[]){__VA_ARGS__}
static inline uop *n_(const build *b, int64_t v) { return uop_idx(b->g, v); }

// model_graph.c. y NULL: a tensor of the model. NULL: no such tensor.
tensor *weight(const build *b, const layer *y, enum tensor_id id);                  // {rows, columns} or {n}, in F32
tensor *bias(const build *b, const layer *y, enum tensor_id id);                    // {n}, or {matrices, n}
tensor *scale(const build *b, const layer *y, enum tensor_id id);                   // {matrices}
tensor *linear(const build *b, const layer *y, enum tensor_id id, tensor *x);       // with its bias and scale
// the sums of a tensor (as in tensor_ref) for model_shape.sums; which: 0 sums, 1 counts
void store_sums(const build *b, int weight, int which, tensor *sums);
tensor *norm(const build *b, const layer *y, enum tensor_id id, tensor *x);         // over the last axis; x for W_NONE
tensor *norm_by(const build *b, const layer *y, enum tensor_id id, tensor *x, double eps);       // with its own epsilon
tensor *soft_cap(const build *b, tensor *x, double cap);                            // cap * tanh(x / cap); x for 0
tensor *through(build *b, const layer *y, tensor *x);                               // a layer; altup.c for some
tensor *cache_rows(const build *b, tensor *at, int group);                          // as build.rows, of {T} positions
tensor *token_ids(const build *b);                                                  // {T}
tensor *embedding(const build *b, const layer *y, enum tensor_id id, tensor *ids);  // their rows of this matrix
tensor *with_floats(const build *b, tensor *x);  // where a token is a row of floats, that row
enum tensor_id head_of(const model *m);
// logits of x, the head's input at the tokens whose logits are wanted, where they are stored
tensor *logits_of(const build *b, const layer *y, enum tensor_id head, tensor *x);
// mtp.c: writes the block's cache entries of these tokens from x, the last layer's output; then its own graph
void mtp_keep(build *b, tensor *x);
void mtp_predict(build *b);
// draft.c: notes x, the input of layer i (the number of layers: what leaves the last one); writes the draft's cache
// entries of these tokens; then its own graph
void draft_read(build *b, int i, tensor *x);
void draft_keep(build *b);
void draft_predict(build *b);
// feed_forward.c: the architecture's activation
tensor *activate(const build *b, const layer *y, tensor *x);
tensor *gelu_erf(graph *g, tensor *x);
// all pages or slots of the layer's i-th state
tensor *state_buffer(const build *b, const layer *y, int i);
tensor *state_slot(const build *b, const layer *y, int i, tensor *all);             // the slot of this sequence

// adapter.c: out, the product of a tensor (as in tensor_ref) with x, plus the adapters' outputs
tensor *adapt(const build *b, int weight, tensor *x, tensor *out);
// Which experts are evaluated on which rows: x {A, B, columns} times w[which], where which is {A, B} (one expert per
// row) or {A} (one for B rows of x). token {A, B}: the token of each row; NULL: the tokens are A
typedef struct choice { tensor *which, *token; uop *a, *b; } choice;
// adapt() for chosen experts: x {A, 1 or B, 1, columns}, out {A, B, rows}
tensor *adapt_experts(const build *b, int weight, const choice *c, tensor *x, tensor *out);
// adapt() for rows that were looked up for tokens; a head with the same weight is not adapted
tensor *adapt_rows(const build *b, int weight, tensor *ids, tensor *out);
void adapters_free(model *m);
// control.c: a layer's output with its control vectors added
tensor *controlled(const build *b, const layer *y, tensor *x);
void control_free(model *m);
// per_layer.c: makes b->own; then what a layer adds to the stream
void per_layer_enter(build *b, tensor *ids, tensor *x);
tensor *per_layer_adds(build *b, const layer *y, tensor *x);
// altup.c: a stream of several rows {T, rows, n_embd}: made from the embedding, through a layer, and as the head's
// input
tensor *altup_enter(build *b, tensor *x);
tensor *altup_through(build *b, const layer *y, tensor *x);
tensor *altup_leave(const build *b, tensor *x);
// hyper.c: a stream of several rows {T, rows, n_embd}: made from the embedding, through a layer, and as the head's
// input
tensor *hyper_enter(const build *b, tensor *x);
tensor *hyper_through(build *b, const layer *y, tensor *x);
tensor *hyper_leave(const build *b, tensor *x);
// ngram.c: its keys; whether a layer has it; then the stream {T, rows, n_embd} with what is added to it
int ngram_keys(loader *l);
bool ngram_in(const model *m, const layer *y);
tensor *ngram_through(build *b, const layer *y, tensor *x);
// residual_bank.c: its keys and tensors; through a layer, and as the head's input
int residual_bank_load(loader *l);
tensor *residual_bank_through(build *b, const layer *y, tensor *x);
tensor *residual_bank_leave(build *b, tensor *x);
// switch.c: its keys; ids with activating tokens replaced; and out, a layer's product with x, with the additions of the
// adapters that are active
int switch_keys(loader *l);
tensor *switch_ids(const build *b, tensor *ids);
tensor *switch_adds(const build *b, const layer *y, enum tensor_id id, tensor *x, tensor *out);
// stacks.c: x, the embedding, through two alternating stacks of layers: the head's input
tensor *stacks_through(build *b, tensor *x);
// moe.c: act(gate) up, with up clamped to -limit..limit and act(gate), or gate (limit_first), to at most limit; 0: none
tensor *gated(const build *b, const layer *y, tensor *gate, tensor *up, double limit);
// moe.c: sigmoid(x); recurrent.c: log(1 + e^x)
tensor *sigmoid(graph *g, tensor *x);
tensor *softplus(graph *g, tensor *x);
// recurrent.c: stores the next value of the layer's i-th state. Each element may depend on the same element of the old
// state, and on no other.
void state_store(build *b, const layer *y, int i, tensor *value);

// convolution.c: a state of the last rows {D}: as many as a run needs, and MODEL_BACK more for going back
void ring_state(loader *l, layer *y, int64_t needed, int64_t width);
// x {T, D} convolved with `taps` rows of weight {D, taps} and its bias; state i has the rows before x: ring_state of
// taps - 1.
tensor *causal_conv(build *b, const layer *y, int i, enum tensor_id id, int64_t taps, tensor *x);
// for each row of x {T, D} the row `before` rows earlier, of state i, a ring_state of `needed` (before <= needed);
// then, after all of them, writes x into the state
tensor *ring_earlier(build *b, const layer *y, int i, int64_t needed, int64_t before, tensor *x);
void ring_keep(build *b, const layer *y, int i, int64_t needed, tensor *x);
// for each row of x {T, D} the row before it; state i is a ring_state of 1
tensor *row_before(build *b, const layer *y, int i, tensor *x);

// kv.c: the caches of a layer's keys and values, which are its first states. kv_load adds the states of one; kv_states:
// the number of states of both; kv_is_float: whether a cache is one state of floats
enum kv { KV_KEYS, KV_VALUES, KV_INDEX /* an indexer's keys: one head, after the others */ };
int kv_load(loader *l, layer *y, enum kv kv);
int kv_states(const model *m);
// y as its indexer's keys see it: one head, whose states follow keys and values
layer kv_index_layer(const model *m, const layer *y);
bool kv_is_float(const model *m, enum kv kv);
// Stores x {T, kv, d} of this run's positions, and returns all positions that its tokens see, as F32: keys {sequences,
// kv, d, seen}, values {sequences, kv, seen, d}.
tensor *kv_store(build *b, const layer *y, enum kv kv, tensor *x);
// Queries or keys {T, heads, d} multiplied by the Hadamard matrix if the cache needs it: both or neither, which keeps
// their products the same.
tensor *kv_turned(const build *b, tensor *x, int64_t d);
// kv_store for keys in floats, as rope_pairs returns them
tensor *kv_store_pairs(build *b, const layer *y, tensor *pairs);
// for a run of several sequences, with a window: {T}, the first page that each token reads; NULL: 0 for all
tensor *first_page_apart(const build *b, int window);
// the number of visible positions, and which they are: {1 or T, 1, 1, 1, seen}
uop *kv_seen(const build *b, const layer *y);
tensor *kv_seen_at(const build *b, const layer *y);

// mla.c: x {T, groups, n} times w {groups, rows, n}, group by group: {T, groups, rows}
tensor *heads_product(const build *b, tensor *x, tensor *w);
// attention.c. Scores {T, kv, heads / kv, 1, C} of q {T, heads, n}, scaled, with K {kv, n, C} of the positions so far;
// then the weighted sum of V {C, kv, v_dim}: {T, heads * v_dim}. Both with the layer's sizes.
tensor *scores(build *b, const layer *y, tensor *q, tensor *K);
tensor *own_at(const build *b);                                // positions of this run's tokens, {T, 1, 1, 1, 1}
tensor *attend(build *b, const layer *y, tensor *scores, tensor *V);
// Positions that are read together: scores, masked; V {sequences, kv, n, v_dim} or, as_keys, {sequences, kv, v_dim, n};
// there {1 or T, 1, 1, n, 1}: whether V has a row; NULL: everywhere
typedef struct sight { tensor *scores, *V, *there; bool as_keys; } sight;
sight seen_positions(build *b, const layer *y, tensor *scores, tensor *V);      // of the layer's window, or all
tensor *attend_to(build *b, const layer *y, const sight *of, int n);            // one softmax over all of them
tensor *alibi_slopes(const build *b, const layer *y);
// q {T, heads, n}, multiplied by a factor that grows with the position; q itself without a temperature
tensor *scaled_by_position(build *b, const layer *y, tensor *q);

// indexer.c: its keys and tensors; whether a context of this length needs a choice; the positions that tokens read, {T,
// 1, 1, 1, seen}, from x, the normed input of the layer, and q, which queries are made from
int indexer_sizes(loader *l, indexer *i);                  // heads and elements; a head is at least what turns of it
bool indexer_is_there(const loader *l, const layer *y);     // whether the file has its tensors
// Whether a layer has an indexer of its own, by attention.indexer.types, or by its tensors if that lists the layers
// without the block after them (mtp.c).
int indexer_is_own(loader *l, const layer *y, bool *own);
int indexer_load(loader *l, layer *y);
int block_indexer_load(loader *l, layer *y);
bool indexer_chooses(const model *m, int64_t n_ctx);
tensor *indexer_choice(build *b, const layer *y, tensor *x, tensor *q);
// indexer_choice for keys other than those of positions: K {sequences, 1, n, pages x page}, numbered by `at` {.., pages
// x page}; those after `last` {T, ..} are not read. by {T, heads}: weights, NULL: all are 1
typedef struct index_keys { tensor *q, *K, *by, *at, *last; uop *pages; int64_t page; } index_keys;
tensor *indexer_best(build *b, const layer *y, const index_keys *k);
// compressed.c: indexer_load and indexer_choice for an indexer that chooses pools of block_size positions (GLM 5,
// Qwen4)
int pool_indexer_load(loader *l, layer *y);
int pool_indexer_weights(loader *l, layer *y);                 // its tensors alone
tensor *pool_indexer_choice(build *b, const layer *y, tensor *x, tensor *q);
// for an indexer that chooses blocks, for each key head: {T, kv, 1, 1, seen}
tensor *block_indexer_choice(build *b, const layer *y, tensor *x);

// Rows with the same number only see each other. They are contiguous, `most` of them at most; aligned: a group begins
// at each multiple of `most`. number {rows of whole pages}
typedef struct row_groups { tensor *number; int64_t most; bool aligned; } row_groups;
// encoder.c. Attention over x, each row of which reads all others or those of its group: {T, heads * v_dim}. of: the
// groups; NULL: none.
tensor *see_all(build *b, const layer *y, tensor *x, const row_groups *of);
// s {T, kv, heads / kv, 1, positions} plus a layer's bias for each range of distances. away {T, 1, 1, 1, positions};
// both: positions before and after a token; otherwise only before it, and `away` says how far. none: the table of
// layers without one of their own
typedef struct ranges { tensor *away; bool both; enum tensor_id none; } ranges;
tensor *by_range(const build *b, const layer *y, tensor *s, const ranges *of);
// cross.c: x {T, n_embd}, the embedding, through the encoder; then the cache entries of a source in all layers
tensor *source_through(build *b, tensor *x);
void source_keep(build *b);
// see_all for queries {T, heads, d}, scaled, that read other rows: keys {n, kv, d}, values {n, kv, v_dim}.
tensor *attend_rows(build *b, const layer *y, tensor *q, tensor *k, tensor *v, const row_groups *of);

// vit.c: keys and tensors of an encoder's layers; then x {T, n_embd} through them
int vit_load(loader *l);
tensor *vit(build *b, tensor *x);

// rope.c. x {T, heads, d}: pairs of its first elements are rotated by their angles, the other elements stay; nothing
// rotates if the layer has no rope.
void rope_tables(build *b);
bool rope_whole(const build *b, const layer *y, int64_t d);                                    // all of d rotates
tensor *rope_turn(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d);        // {T, heads, d}
// rope_turn, pairing halves or neighbours
tensor *rope_turn_as(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves);
// rope_turn_as for the last elements, if not all rotate
tensor *rope_turn_last(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves);
void rope_at(build *b, enum rope_id id, tensor *at);           // the tables of one rope, for these places {T}
// if all of d rotates: {T, heads, d/2, 2}, as pairs whatever their places in a head
tensor *rope_pairs(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d);
#endif
