// What the files of model/ share: the description of a model and its layers, the list of tensors, and what parts are
// made of. Nobody else includes it.
//
// A layer is two parts, a mixer (attention, a convolution, a recurrence) and a feed-forward, either of which may be
// missing. A part is a pair of functions: `load` reads the keys it needs, asks for its tensors with want() and for its
// buffers with state(); `graph` makes the expression, from those tensors alone: what was not asked for is not there, so
// that check and graph cannot disagree. To add a kind: a file with a `part`, its tensors in the list below, and a row
// of arch.c whose `layer` function chooses it.
#ifndef WEFT_MODEL_IMPL_H
#define WEFT_MODEL_IMPL_H
#include "model/model.h"
#include "model/projector.h"

typedef struct layer layer;
typedef struct loader loader;
typedef struct build build;

// --- tensors ---------------------------------------------------------------------------------------------------------

// T(id, name): in layer i the file has "blk.i.name.weight", and perhaps "blk.i.name.bias" and "blk.i.name.scale".
#define TENSORS(T) \
  /* of the model */ \
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
  T(ROPE_FREQS, "rope_freqs") T(ROPE_LONG, "rope_factors_long") T(ROPE_SHORT, "rope_factors_short") \
  /* norms of a layer */ \
  T(ATTN_NORM, "attn_norm") T(ATTN_NORM_2, "attn_norm_2") T(FFN_NORM, "ffn_norm") T(FFN_NORM_EXPS, "ffn_norm_exps") \
  T(POST_ATTENTION_NORM, "post_attention_norm") T(POST_FFW_NORM, "post_ffw_norm") \
  T(POST_FFW_NORM_1, "post_ffw_norm_1") T(PRE_FFW_NORM_2, "pre_ffw_norm_2") T(POST_FFW_NORM_2, "post_ffw_norm_2") \
  T(LAYER_OUTPUT_NORM, "layer_output_norm") \
  /* what a layer adds of its own embedding, and a factor of all that leaves it */ \
  T(INP_GATE, "inp_gate") T(PROJ, "proj") T(POST_NORM, "post_norm") T(LAYER_OUTPUT_SCALE, "layer_output_scale") \
  /* of a stream of several rows */ \
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
  /* experts: the router, all experts' matrices one after another, and those that every token goes through */ \
  T(FFN_GATE_INP, "ffn_gate_inp") T(EXP_PROBS_B, "exp_probs_b") T(EXP_PROBS_B_VL, "exp_probs_b_vl") \
  T(FFN_GATE_TID2EID, "ffn_gate_tid2eid") \
  T(FFN_LATENT_DOWN, "ffn_latent_down") \
  T(FFN_LATENT_UP, "ffn_latent_up") \
  T(FFN_ROUTED_DOWN, "ffn_routed_down") T(FFN_ROUTED_UP, "ffn_routed_up") T(FFN_ROUTED_NORM, "ffn_routed_norm") \
  T(FFN_GATE_EXPS, "ffn_gate_exps") T(FFN_UP_EXPS, "ffn_up_exps") T(FFN_GATE_UP_EXPS, "ffn_gate_up_exps") \
  T(FFN_DOWN_EXPS, "ffn_down_exps") \
  T(FFN_GATE_CHEXPS, "ffn_gate_chexps") T(FFN_UP_CHEXPS, "ffn_up_chexps") T(FFN_DOWN_CHEXPS, "ffn_down_chexps") \
  T(FFN_GATE_INP_SHEXP, "ffn_gate_inp_shexp") T(FFN_GATE_SHEXP, "ffn_gate_shexp") T(FFN_UP_SHEXP, "ffn_up_shexp") \
  T(FFN_DOWN_SHEXP, "ffn_down_shexp") \
  /* of encoders of pictures and sound (vit.c): in files behind "v." or "a."; of projectors: as they stand */ \
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
  /* of the block that predicts the token after the next one */ \
  T(NEXTN_EH_PROJ, "nextn.eh_proj") T(NEXTN_ENORM, "nextn.enorm") T(NEXTN_HNORM, "nextn.hnorm") \
  T(NEXTN_EMBED_TOKENS, "nextn.embed_tokens") T(NEXTN_SHARED_HEAD_NORM, "nextn.shared_head_norm") \
  T(NEXTN_SHARED_HEAD_HEAD, "nextn.shared_head_head") \
  /* of layers of an encoder that give rows to those of the language model; #: their number */ \
  T(DEEP_NORM, "deepstack.#.norm") T(DEEP_FC1, "deepstack.#.fc1") T(DEEP_FC2, "deepstack.#.fc2")
enum tensor_id {
  W_NONE,
#define T(id, name) W_##id,
  TENSORS(T)
#undef T
  W_COUNT
};

// weight, bias, scale: index in the file plus one, 0: not there. Whether a weight or a bias is a vector or a matrix is
// what the part asked for: in a file a matrix of one row has one dimension, too.
// clip: see arch.clipped
typedef struct tensor_ref { int weight, bias, scale, clip[4]; bool weight_is_vector, bias_is_vector; } tensor_ref;
typedef tensor_ref tensor_refs[W_COUNT];

// --- the description -------------------------------------------------------------------------------------------------

enum arch_flags {
  ARCH_NEOX = 1 << 0,             // rope rotates halves, not neighbours
  ARCH_QK_NORM = 1 << 1,          // each head of q and k is normed
  ARCH_QK_NORM_ALL = 1 << 2,      // q and k are normed, all heads as one
  ARCH_QK_NORM_EACH = 1 << 3,     // each head of q and k has a norm of its own where the file has weights for it
  ARCH_SINKS = 1 << 4,            // the softmax of each head has one more term, without a value
  ARCH_LAYER_NORM = 1 << 5,       // norms subtract the mean; otherwise they are RMS norms
  ARCH_NO_PRE_NORMS = 1 << 6,     // what goes into attention and feed-forward is not normed
  ARCH_POST_NORMS = 1 << 7,       // what comes out of them is
  ARCH_FFN_NORM_LATE = 1 << 8,    // the norm before the feed-forward is called post_attention_norm
  ARCH_PARALLEL = 1 << 9,         // attention and feed-forward both read the stream as it enters the layer
  ARCH_PLAIN_FFN = 1 << 10,       // down(act(up x)), without a gate
  ARCH_POSITIONS = 1 << 11,       // learned positions instead of rope
  ARCH_SWA_PLAIN_ROPE = 1 << 12,  // layers with a window rotate without scaling
  ARCH_LOGITS_DIVIDED = 1 << 13,  // by logit_scale; otherwise multiplied
  ARCH_GLOBAL_NO_ROPE = 1 << 14,  // where layers have windows, those without do not rotate
  ARCH_GATED_Q = 1 << 15,         // attn_q makes a gate beside each query, for what attention returns
  ARCH_QK_NORM_MAYBE = 1 << 16,   // each head of q and k is normed where the file has weights for it
  ARCH_DELTA_NEIGHBOURS = 1 << 17,// heads of a delta net that share a key lie side by side
  ARCH_QK_NORM_LATE = 1 << 19,    // those norms come after rotation
  // rope may have sections for places in images; text has one position in all, and halves rotate
  ARCH_SECTIONS = 1 << 18,
  ARCH_BARE_NORMS = 1 << 20,      // norms of the stream have no weights
  ARCH_GLOBAL_FIRST = 1 << 21,    // of a period, the first layer has no window, not the last
  ARCH_OUT_GATE = 1 << 22,        // attn_gate makes a gate of the stream, for what attention returns
  ARCH_EMBD_NORM = 1 << 23,       // what is embedded is normed
  ARCH_EARLY_ROUTER = 1 << 24,    // the router reads the stream as it enters the layer
  ARCH_SHARED_KV = 1 << 26,       // the last layers may read the keys and values of earlier ones
  ARCH_V_NORM = 1 << 27,          // each head of v is normed, without weights
  ARCH_V_MAYBE_K = 1 << 28,       // without attn_v, values are what attn_k makes; not where there is a window
  ARCH_LAYER_SCALE = 1 << 29,     // layers may have a factor
  // a window is the chunk that a position lies in, from its first position on; layers without rotate not, and are
  // warmed
  ARCH_CHUNKS = 1 << 30,
  ARCH_DENSE_ROPE = 1 << 25,      // with ARCH_GLOBAL_NO_ROPE: layers without experts rotate nevertheless
};
// Tensors that must be there, while files of other kinds may lack them. What no row names is asked for by a part: there
// if the part says so.
enum arch_has {
  HAS_HEAD = 1 << 0,              // output.weight: otherwise the embedding may take its place
  HAS_NORM_BIAS = 1 << 1,
  HAS_QKV_BIAS = 1 << 2,
  HAS_QKV_BIAS_MAYBE = 1 << 3,    // all three or none
  HAS_BARE_KEYS = 1 << 16,        // with HAS_QKV_BIAS: keys have none
  HAS_OUT_BIAS = 1 << 4,          // of attn_output
  HAS_FFN_BIAS = 1 << 5,
  HAS_EXPERT_BIAS = 1 << 6,       // of the router, too
  HAS_HEAD_BIAS = 1 << 7,
  HAS_PROBS_BIAS = 1 << 8,        // what is added to experts' probabilities to choose among them
  HAS_SHARED_GATE = 1 << 9,       // of the expert that every token goes through
  HAS_CONV_BIAS = 1 << 10,
  HAS_ROPE_FREQS = 1 << 11,
  // what ARCH_SINKS says, in all layers with a window or in none, and in all without or in none
  HAS_SINKS_MAYBE = 1 << 15,
  HAS_SUB_NORMS = 1 << 13,        // of what attention returns and of what is gated, before the last product
  HAS_SSM_NORMS = 1 << 14,        // of what mamba makes of its input
  HAS_ROUTER_SCALE = 1 << 12,     // the router reads the stream normed without weights, times a vector of its own
  HAS_RMS_KEY = 1 << 17,          // its norms subtract the mean, and files call their epsilon that of others
  HAS_Q_GAIN = 1 << 19,           // a number for each head that its queries, normed, are multiplied with
  HAS_PART_SCALES = 1 << 20,      // a factor of what each part makes
  HAS_MIXED_SECTIONS = 1 << 21,   // with ARCH_SECTIONS: pairs of the three sections take turns
  HAS_GATE_MAYBE = 1 << 22,       // without ffn_gate, the dense feed-forward is as ARCH_PLAIN_FFN says
  HAS_MTP = 1 << 18,              // files may have a block behind the last layer that predicts a further token: mtp.c
  HAS_BIASES = HAS_NORM_BIAS | HAS_QKV_BIAS | HAS_OUT_BIAS | HAS_FFN_BIAS,
};
enum activation { ACT_SILU, ACT_GELU, ACT_RELU2, ACT_RELU, ACT_XIELU, ACT_SITU, ACT_GELU_ERF, ACT_GELU_QUICK };
enum period { PERIOD_ALL = -1 /* all layers have the window */, PERIOD_LISTED = -2 /* those that the file lists */ };
typedef struct arch {
  const char *name;
  unsigned flags, has;       // enum arch_flags, enum arch_has
  const char *blocks;        // what names of layers' tensors begin with, before "blk."; NULL: nothing
  enum activation act;
  bool yarn_exact;           // YaRN's ramp begins and ends within pairs, where files do not say otherwise: rope.c
  bool yarn_bare;            // YaRN leaves the size of what turns as it is
  double post_eps;           // epsilon of the norms that ARCH_POST_NORMS says; 0: that of the others
  bool bare_embd_norm;       // what ARCH_EMBD_NORM says has no weights
  bool softplus_gate;        // the gate that ARCH_OUT_GATE says is log(1 + e^x), not a sigmoid
  // with HAS_MTP: the block reads what leaves the last layer as it is, before the model's norm
  bool mtp_bare;
  bool mtp_centred;          // with HAS_MTP: the norm before the head subtracts the mean
  bool centred_heads;        // norms of single heads subtract the mean, and have an epsilon of their own
  bool skips;                // to what leaves a layer, what is embedded is added, times the factor of the layer
  // what a product reads and makes lies within numbers beside the weight: .input_min, .input_max, .output_min,
  // .output_max
  bool clipped;
  bool halves_apart;         // each half of a head turns by itself; of a picture's patch, the first one by its column
  bool encoder;              // each position sees the whole text: encoder.c
  bool denoises;             // of these, there is a head: logits of a position are of its own token
  bool has_source;           // a decoder reads what an encoder, the layers behind its own, makes of a text: cross.c
  // with a sliding window: all layers but every period-th have it, or an enum period; 0: files of this kind have none
  int period;
  int (*keys)(loader *l);                // what else this kind reads or fixes, after the keys of all kinds; may be NULL
  // chooses the parts of a layer, which has attention and a dense feed-forward; NULL: leaves it at that
  int (*layer)(loader *l, layer *y);
} arch;
const arch *arch_find(const char *name, size_t n);             // NULL: not known
const arch *arch_at(size_t i);                                 // the table; NULL past its end

typedef struct part {
  int (*load)(loader *l, layer *y);                            // 0, or -1 and an error
  tensor *(*graph)(build *b, const layer *y, tensor *x);       // x {T, n_embd}, normed, to what is added to the stream
} part;
extern const part part_attention, part_encoder_attention, part_t5_attention, part_t5_decoder, part_cross_attention,
  part_shared_attention,
  part_attention_and_mamba2, part_mla, part_short_conv, part_mamba, part_mamba2, part_plamo_mamba, part_delta_net,
  part_linear, part_dense, part_moe, part_dense_and_moe, part_dense_with_moe, part_dense_and_early_moe,
  part_moe_in_groups, part_moe_by_token, part_near, part_sparse_entries, part_entries, part_kda, part_rwkv7, part_rwkv6,
  part_channel_mix, part_vit_attention, part_vit_dense;

// Frequency of pair i: base^(-2i/dim), over the file's factors. scale: what positions are divided by; with YaRN slow
// pairs are, quick ones are not, and between `low` and `high` there is a ramp of weight `ramp` (0: no YaRN). attn:
// factor of cos and sin.
typedef struct rope { int dim; double base, scale, low, high, ramp, attn; } rope;
enum rope_id { ROPE_GLOBAL, ROPE_SLIDING, ROPE_COUNT, ROPE_NONE = -1 };

// What a router makes of its logits, and who is chosen: moe.c.
enum gating {
  GATING_NONE,
  GATING_SOFTMAX,
  GATING_SIGMOID,
  GATING_SOFTMAX_CHOSEN /* over the chosen alone */,
  GATING_SQRT_SOFTPLUS,
  GATING_COUNT,
  GATING_NEAR /* no file says it: over those nearly as good, each time */
};
typedef struct experts {
  // ff: rows of an expert's gate; shared_ff: of the shared expert's, 0: none
  int n, used, ff, shared_ff, groups, groups_used;
  // experts read and write vectors of this length, made of the stream; 0: the stream
  int latent;
  bool latent_normed;        // what they return is normed before it becomes a part of the stream
  enum gating gating;
  bool norm;                                                   // the weights of the chosen are divided by their sum
  // gate and up are cut off, and the gated value is up + 1 times
  bool clamped;
  double cap;                                                  // of the router's logits: see soft_cap; 0: none
  double limit, shared_limit;                                  // of what is gated: see gated() in moe.c; 0: none
  bool limit_first;                                            // a gate is cut before its activation, not behind it
  // the weights multiply what the experts read; otherwise what they return
  bool weighted_in;
  // how many neighbours share a small expert, the rows of its gate, and its weight in the sum; 0: no such experts
  int in_group, group_ff;
  double group_scale;
  // experts that every token goes through, where no key says how many
  int shared;
  // of the chosen and the shared expert together; otherwise they are added
  bool averaged;
  double scale;                                                // and multiplied by this
} experts;

enum { MAX_STREAM_ROWS = 8 };
typedef struct xielu { double negative, positive, slope, edge; } xielu;       // see activate

// indexer.c: heads, and elements of each (heads 0: the layer has none); turns_halves: as ARCH_NEOX says of others
// turns_last: its last elements turn, not its first ones; eps: of the norm of its keys, 0: as no file says it
typedef struct indexer { int heads, n; bool turns_halves, turns_last; double eps; } indexer;
// mla.c: elements of c, of a head's parts that stay and that turn, of its value; of scores
typedef struct mla { int latent, nope, rope, v; double scale; } mla;
// compressed.c: positions that an entry stands for (0: the layer has none), and the parts that what attention returns
// is cut into, each of which becomes `rank` elements; states of the layer: numbers that entries are made of, of an
// indexer's, and entries with the indexer's behind them
typedef struct compressed { int ratio, groups, rank, made_of, index_made_of, entries; } compressed;
// of recurrent.c; inner: elements of all heads; normed: see mamba
typedef struct ssm { int inner, state, heads, groups; bool normed; } ssm;

struct layer {
  // block: of the file, which has its tensors; several layers may share one (see model.n_block)
  int index, block;
  int within;                // its number in a block of several layers, from 1 on; 0: it is alone
  const part *mixer, *ff;                                      // NULL: none
  const part *cross;         // between them, with a norm of its own (cross.c); NULL: none
  const char *blocks;        // what names of its tensors begin with, before "blk."; NULL: as the architecture says
  enum tensor_id mixer_norm, mixer_post, ff_norm, ff_post;     // norms before and after them; W_NONE: none
  enum tensor_id mixer_last, ff_last;                          // of the stream, when what they make is in it
  // of that and the stream as it entered the layer, together
  enum tensor_id mixer_again;
  enum tensor_id leaves;                                       // of the stream as it leaves: a norm of the model
  int n_head, n_kv, head_dim, v_dim, n_ff;
  bool head_gates;           // a gate that ARCH_OUT_GATE says is a number for each head, not for each of its elements
  int taps;                                                    // of its convolution
  // attention sees this many positions, its own included; 0: all
  int window;
  // the layer whose keys, values or choice of positions it reads besides its own; itself: of none
  int kv_from;
  enum rope_id rope;
  mla mla;
  compressed compressed;
  int every;                 // its caches have a row for so many positions; 0: for each
  indexer indexer;
  ssm ssm;
  experts moe;
  xielu xielu;
  // of part_kda: no decay is below the exponential of least_decay; decays and gates are one product each; the gate is
  bool safe_decay, full_products, full_gate;
  double least_decay;
  // of the gate only what is above mean + cut standard deviations is left; -infinity: all
  double cut;
  bool halved;                                                 // what leaves it
  // its first state, others follow; which of them is its feed-forward's
  int state, ff_state;
  tensor_refs w;
};

// adapter.c; rank 0: none
typedef struct adapted { int rank; float *a, *b; int64_t n_a, n_b, matrices; bool used; } adapted;
// per_position or fixed is 0; window: of the layer, 0: none; every: positions that per_position elements are for
typedef struct state_kind { enum dtype dtype; int64_t per_position, fixed; int window, every; } state_kind;

// of stacks.c: layers of a stack, and how often the low one is gone through before the high one
typedef struct stacks { int n, low; } stacks;

struct projector_kind;
// of hyper.c: rows of the stream; what is added to their factors, and the largest one of what a part makes; how often
// rows and columns of what mixes them are divided by their sums, 0: they do not mix
typedef struct hyper { int n, rounds; double eps, magnitude; } hyper;

struct model {
  const gguf *file;
  const arch *arch;
  const struct projector_kind *projector;                      // of an encoder of pictures or sound; NULL: of text
  projector_facts eye;                                         // then: projector.h
  int n_rows;                // of the stream (altup.c); 0: one
  stacks stacks;             // stacks.c; n 0: one after the other
  hyper hyper;               // hyper.c; n 0: the stream is one row
  int bank_every;            // layers: residual_bank.c; 0: nothing is banked
  double situ, situ_up;      // of ACT_SITU: how large a gate becomes, and what it is multiplied with; 0: any size
  // layers in which rows of floats see each other both ways, where their span asks for it: all, those with a window
  enum both_ways { BOTH_ALL, BOTH_WINDOWS, BOTH_NONE } both_ways;
  // pairs of a head that turn by the positions of time, row and column (rope.c); all 0: by one position.
  // sections_mixed: they take turns
  int sections[3];
  bool sections_mixed;
  int n_deep;                // layers behind which rows of floats have more to add
  int n_own;                 // elements of the embedding that a token has for each layer (per_layer.c); 0: none
  // n_block: blocks of the file: layers, and blocks that are left out; fewer than layers where blocks are gone through
  // several times. n_ctx_rope: what the model knew before its context was stretched
  int n_block, n_layer, n_embd, n_vocab, n_ctx_train, n_ctx_rope;
  double eps, embedding_scale, residual_scale, logit_scale;    // factors; 1: none
  double attention_scale, attention_cap, logit_cap;            // 0: 1/sqrt(head_dim), no soft cap
  int unsaid_from, unsaid_to;                                  // tokens that no text has: their logits are the least
  double value_scale;                                          // of what attention returns; 1: none
  // elements of queries, keys and values lie within it; 0: anywhere
  double qkv_limit;
  // scores fall with the distance: see attention.c; 0: they do not
  double alibi;
  int n_near;                // ranges of distances that tables of distances have rows for: encoder.c; 0: none
  int n_encoder;             // layers of an encoder, behind all others: cross.c; 0: none
  int starts;                // then: the token that a decoder begins with
  // of layers that slide, where the file does not say, and the base of their rope; 0: none, that of the others
  int window;
  // base_alpha: every base grows by base_alpha^(dim / (dim - 2)); 0: none does
  double base_swa, base_alpha;
  const char *base_key;      // of layers without a window; NULL: rope.freq_base
  rope rope[ROPE_COUNT];
  double temperature;        // queries grow by it times the logarithm of position / temperature_length; 0: they do not
  int temperature_length;    // 0: n_ctx_rope
  int temperature_from;      // added to the position
  bool half_turns;           // where there is no window, half as many elements rotate as a file says
  bool bare_qk_norm;         // layers that rotate norm queries and keys behind it, without weights
  int n_ctx_max;             // positions that it can have; 0: any number
  int top_k;                 // positions that a token reads where an indexer chooses; 0: none does
  int block_size;            // it chooses blocks of so many positions, top_k of them; 0: positions
  int local_blocks;          // of which the last ones are always read: so many
  int pooling, n_embd_out;   // see model_pooling
  enum activation act;       // of the feed-forward
  model_kv kv;
  bool recurrent, no_rope, parallel, neox;                     // neox: rope rotates halves, not neighbours
  int block;                 // see model_block; 0: none
  enum tensor_id output_norm;
  tensor_refs w;
  layer *layers;
  bool mtp;                  // layers[n_layer] predicts a further token: mtp.c
  int mtp_before;            // the state that it reads what leaves the model from
  VEC(state_kind) states;
  int n_groups, group_window[MODEL_GROUPS];                    // see model_n_groups
  adapted *adapted;          // of each adapter, of each tensor of the file
  float *adapter_scales;
  int n_adapters;
  float *control;            // {n_layer, n_embd}: control.c; NULL: nothing is added to any layer
  bool *controlled;          // whether something is, to each
  bool *fits_bf16;           // of each tensor: halves that are all numbers of BF16 (projector.c); NULL: nobody asked
};

// --- loading ---------------------------------------------------------------------------------------------------------

// What shape would be asked for if a whole number of the file were another one: see keys_behind in model.c.
typedef struct trial { const char *key, *name; int64_t more, ne[3]; bool asked; } trial;

struct loader {
  const gguf *f;
  model *m;
  error *err;
  char key[160];
  bool *claimed;             // tensors that somebody wants
  const char **uses;         // of each key of the file: see model_key_uses
  trial *trial;              // NULL: none
  const char *prefix;        // of names of tensors but projectors' ("mm."); NULL: none
  int (*all)(loader *l);     // reads all of it
};

// model_keys.c: values of keys under the architecture's name, within limits; 0, or -1 and an error that names key and
// value. "llama.rest", in l->key; from here on this key counts as read
const char *key(loader *l, const char *rest);
// the same for a name of its own, not under the architecture's
const char *file_key(loader *l, const char *name);
bool has_key(loader *l, const char *rest);
bool equals_text(gguf_string s, const char *text);
int key_count(loader *l, const char *rest, uint32_t lo, uint32_t hi, int *out);
int key_count_or(loader *l, const char *rest, uint32_t fallback, uint32_t lo, uint32_t hi, int *out);
// one number for all layers, or one for each
int key_counts(loader *l, const char *rest, uint32_t lo, uint32_t hi, uint32_t each[MODEL_MAX_LAYERS]);
// the number of layer i, where there is one for all layers or one for each
int key_count_at(loader *l, const char *rest, int i, uint32_t lo, uint32_t hi, int *out);
// an array of a number or a truth value for each layer
int key_flags(loader *l, const char *rest, uint32_t each[MODEL_MAX_LAYERS]);
int key_number(loader *l, const char *rest, double lo, double hi, double *out);
int key_number_or(loader *l, const char *rest, double fallback, double lo, double hi, double *out);
int number_at(loader *l, const char *name, int i, double lo, double hi,
              double *out);  // name: from key() or file_key(); one number, or the i-th of an array
// unread_keys.c: whether all keys under the architecture's name were read, or are harmless; -1 and an error that names
// one that is neither.
int check_keys(loader *l);

// model.c: asks for a tensor of the model (y NULL) or of a layer; w[id] says afterwards what there is. Shape {ne0, ne1,
// ne2} in the file's order, 1 for axes it does not have. The bias of a matrix has ne1 elements (and ne2 rows), that of
// a vector ne0.
enum want_flags {
  WANT_OPTIONAL = 1,
  WANT_BIAS = 2 /* must be there; otherwise it may be */,
  WANT_BARE = 4 /* its name ends here */,
  WANT_VECTOR = 8,
  WANT_FOURTH = 32 /* its last axis may be the fourth of a file, whose third has one element */,
  WANT_KERNEL = 64 /* of a convolution of pictures: {width, height x channels, outputs}; four axes in a file */,
  WANT_EACH = 256 /* of its shape is its bias, too */,
  WANT_INTEGERS = 128 /* may be of 32 bits, which products cannot be made with */,
  WANT_SCALE = 16 /* of what it is multiplied with, and must be there; otherwise that of the product */
};
int want(loader *l, layer *y, enum tensor_id id, int64_t ne0, int64_t ne1, int64_t ne2, unsigned flags);
int want_scale(loader *l, const layer *y, enum tensor_id id);  // an error where a weight that was asked for has none
int want_heads(loader *l, const layer *y);             // of a layer with attention: an error where it has none
static inline int want_matrix(loader *l, layer *y, enum tensor_id id, int64_t in, int64_t out, unsigned flags) {
  return want(l, y, id, in, out, 1, flags);
}
static inline int want_vector(loader *l, layer *y, enum tensor_id id, int64_t n, unsigned flags) {
  return want(l, y, id, n, 1, 1, flags | WANT_VECTOR);
}
static inline unsigned bias_if(const loader *l, enum arch_has what) { return l->m->arch->has & what ? WANT_BIAS : 0; }
// A state of so many elements for each position (or each y->every), or (0) of a fixed number; its number. A part with
// several asks for them one after the other in `load`.
int state(loader *l, layer *y, enum dtype dt, int64_t per_position, int64_t fixed);

// model.c: what the names of a layer's tensors begin with, before "blk."
const char *before_blocks(const loader *l, const layer *y);
int load_layers(loader *l);                                    // model.c: the tensors of all layers' parts
// model.c: whether what was asked for is all there is, of tensors and keys, and alike in layers of the same parts
int check_all(loader *l);
// model.c: a file opened by `all`, which fills l->m
int open_by(int (*all)(loader *l), const gguf *file, model_kv kv, const char **uses, model **out, error *err);
int rope_load(loader *l, int head_dim);                        // rope.c
int attention_weights(loader *l, layer *y);                    // attention.c: the tensors of attention
int heads_weights(loader *l, layer *y);                        // those of them that make its heads
int layers_slide(loader *l);                                   // attention.c: which layers have windows
int layers_share(loader *l);                                   // and which read the keys and values of others
int per_layer_load(loader *l);                                 // per_layer.c
int altup_load(loader *l);                                     // altup.c
int stacks_load(loader *l);                                    // stacks.c
int hyper_keys(loader *l);                                     // hyper.c: rows of the stream, if the file has several
int hyper_load(loader *l);
int mtp_find(loader *l);                                       // mtp.c: whether there is one; what else is left out
int mtp_load(loader *l);                                       // after its layer
int encoder_load_ends(loader *l);                              // encoder.c: what it has besides embedding and norms
int distances_load(loader *l);                                 // encoder.c: in how many ranges they fall
// encoder.c: the table of distances of a layer or, if blocks have none of their own, of the first block (id)
int distances_table(loader *l, layer *y, enum tensor_id id);
// cross.c: how many layers, and what a decoder begins with
int source_keys(loader *l);
int source_load_ends(loader *l);                               // cross.c: the norm behind the encoder
// model.c: the group of pages for layers with this window; n_groups: there is none
int window_group(const model *m, int window);
int ranking_load(loader *l);                                   // encoder.c: what makes scores of vectors
tensor *ranking(const build *b, tensor *x);
int want_norm(loader *l, layer *y, enum tensor_id id);         // model.c: of the stream; nothing for W_NONE

// --- building --------------------------------------------------------------------------------------------------------

typedef VEC(uop *) effects;
struct build {
  const model *m;
  const model_shape *s;
  graph *g;
  uop *T;                    // tokens of this run
  // of a run over one sequence: positions seen when it has ended, position of its first token
  uop *C, *pos;
  uop *n_pages;              // of a run over several: pages that are looked at
  tensor *at;                // {T}: places in the sequence
  tensor *turns[3];          // {T}: positions that rope turns by, where the model has sections
  tensor *scales;            // {T, adapters}: of the tokens that go on; NULL: nothing is adapted
  tensor *last;              // {T}: the last place that each token sees; NULL: its own
  tensor *source;            // {T}: how many places before each token its source has; NULL: there are no sources
  tensor *is_floats, *floats;          // {T, 1}, {T, n_floats}: tokens that are rows of floats; NULL: there are none
  tensor *pages;             // {groups, table} or {T, groups, table}: pages of the sequence, or of each
  tensor *slot;              // {1}: where the sequence's fixed states lie
  // of each group: {T}, where keys and values go, as numbers of positions in all pages
  tensor *rows[MODEL_GROUPS];
  tensor *table, *entry;     // of cache_rows: all of BUF_PAGES, and (several sequences) {T} where each token's begin
  tensor *cos[ROPE_COUNT], *sin[ROPE_COUNT];      // {T, 1, rope dim / 2}
  tensor *entered;           // the stream as it entered this layer
  tensor *router_in;         // what the router reads; NULL: what the experts do
  tensor *embedded;          // what the first layer read
  tensor *bank[MODEL_MAX_LAYERS + 1], *bank_score[MODEL_MAX_LAYERS + 1];   // residual_bank.c
  int n_bank;
  tensor *own;               // {T, layers, n_own}: see per_layer.c
  tensor *deep;              // {rows, ..}: what layers of an encoder give to those of the language model; NULL: nothing
  tensor *window;            // {rows of whole pages}: of a picture's patches, the window that each lies in
  struct kept { tensor *K, *V, *chosen; } *kept;  // of each layer, for those that share them
  effects *effects;
};

#define DIMS(...) (int)COUNT(((uop *[]){__VA_ARGS__})), (uop *[]){__VA_ARGS__}
static inline uop *n_(const build *b, int64_t v) { return uop_idx(b->g, v); }

// model_graph.c. y NULL: a tensor of the model. NULL where there is none.
tensor *weight(const build *b, const layer *y, enum tensor_id id);                  // {rows, columns} or {n}, in F32
tensor *bias(const build *b, const layer *y, enum tensor_id id);                    // {n}, or {matrices, n}
tensor *scale(const build *b, const layer *y, enum tensor_id id);                   // {matrices}
tensor *linear(const build *b, const layer *y, enum tensor_id id, tensor *x);       // with its bias and scale
// of a tensor (as in tensor_ref), for model_shape.sums; which: 0 sums, 1 counts
void store_sums(const build *b, int weight, int which, tensor *sums);
tensor *norm(const build *b, const layer *y, enum tensor_id id, tensor *x);         // over the last axis; x for W_NONE
tensor *norm_by(const build *b, const layer *y, enum tensor_id id, tensor *x, double eps);       // with its own epsilon
tensor *soft_cap(const build *b, tensor *x, double cap);                            // cap * tanh(x / cap); x for 0
tensor *through(build *b, const layer *y, tensor *x);                               // a layer; altup.c for some
tensor *cache_rows(const build *b, tensor *at, int group);                          // as build.rows, of {T} positions
tensor *token_ids(const build *b);                                                  // {T}
tensor *embedding(const build *b, const layer *y, enum tensor_id id, tensor *ids);  // of them, by this matrix
enum tensor_id head_of(const model *m);
// logits of x, what the head reads of the tokens whose logits are wanted, where they are stored
tensor *logits_of(const build *b, const layer *y, enum tensor_id head, tensor *x);
// mtp.c: x, what leaves the last layer, becomes what the block's cache has of these tokens; then its own graph
void mtp_keep(build *b, tensor *x);
void mtp_predict(build *b);
// feed_forward.c: the architecture's activation
tensor *activate(const build *b, const layer *y, tensor *x);
tensor *gelu_erf(graph *g, tensor *x);
// the layer's i-th: all its pages or slots
tensor *state_buffer(const build *b, const layer *y, int i);
tensor *state_slot(const build *b, const layer *y, int i, tensor *all);             // this sequence's of the latter

// adapter.c: out, the product of a tensor (as in tensor_ref) with x, as adapters change it
tensor *adapt(const build *b, int weight, tensor *x, tensor *out);
// Which experts are evaluated on what: x {A, B, columns} times w[which], where which is {A, B} (one expert for each) or
// {A} (one for B rows of x). token {A, B}: whose row it is; NULL: A are the tokens
typedef struct choice { tensor *which, *token; uop *a, *b; } choice;
// the same of chosen experts: x {A, 1 or B, 1, columns}, out {A, B, rows}
tensor *adapt_experts(const build *b, int weight, const choice *c, tensor *x, tensor *out);
// the same for the rows that were looked up there for tokens; a head that has the same weight goes without
tensor *adapt_rows(const build *b, int weight, tensor *ids, tensor *out);
void adapters_free(model *m);
// control.c: what leaves a layer, with what control vectors add to it
tensor *controlled(const build *b, const layer *y, tensor *x);
void control_free(model *m);
// per_layer.c: makes b->own; then what a layer adds to the stream
void per_layer_enter(build *b, tensor *ids, tensor *x);
tensor *per_layer_adds(build *b, const layer *y, tensor *x);
// altup.c: a stream of several rows {T, rows, n_embd}, made of what is embedded, through a layer, and as the head reads
// it
tensor *altup_enter(build *b, tensor *x);
tensor *altup_through(build *b, const layer *y, tensor *x);
tensor *altup_leave(const build *b, tensor *x);
// hyper.c: a stream of several rows {T, rows, n_embd}, made of what is embedded, through a layer, and as the head reads
// it
tensor *hyper_enter(const build *b, tensor *x);
tensor *hyper_through(build *b, const layer *y, tensor *x);
tensor *hyper_leave(const build *b, tensor *x);
// residual_bank.c: its keys and tensors; through a layer, and as the head reads it
int residual_bank_load(loader *l);
tensor *residual_bank_through(build *b, const layer *y, tensor *x);
tensor *residual_bank_leave(build *b, tensor *x);
// stacks.c: x, what is embedded, through two stacks of layers in turns: what the head reads
tensor *stacks_through(build *b, tensor *x);
// moe.c: act(gate) up, with up within -limit..limit and act(gate), or gate (limit_first), not above it; 0: no limit
tensor *gated(const build *b, const layer *y, tensor *gate, tensor *up, double limit);
// moe.c: sigmoid(x); recurrent.c: log(1 + e^x)
tensor *sigmoid(graph *g, tensor *x);
tensor *softplus(graph *g, tensor *x);
// recurrent.c: the layer's next i-th state, each element of which may hang on the same element of the old one and on
// nothing else of it.
void state_store(build *b, const layer *y, int i, tensor *value);

// convolution.c: a state of the last rows {D}, of which a run needs so many, and MODEL_BACK more to go back by
void ring_state(loader *l, layer *y, int64_t needed, int64_t width);
// x {T, D} convolved with `taps` rows of weight {D, taps} and its bias; state i has the rows before x: ring_state of
// taps - 1.
tensor *causal_conv(build *b, const layer *y, int i, enum tensor_id id, int64_t taps, tensor *x);
// of each row of x {T, D}; state i is a ring_state of 1
tensor *row_before(build *b, const layer *y, int i, tensor *x);

// kv.c: the caches of keys and values of a layer, which are its first states. Adds the states of one; how many both
// have; whether it has one state of floats
enum kv { KV_KEYS, KV_VALUES, KV_INDEX /* an indexer's keys: one head, behind the others' */ };
int kv_load(loader *l, layer *y, enum kv kv);
int kv_states(const model *m);
// y as its indexer's keys see it, which are of one head, behind keys and values
layer kv_index_layer(const model *m, const layer *y);
bool kv_is_float(const model *m, enum kv kv);
// Stores x {T, kv, d} of this run's positions, and returns all that its tokens see, as F32: keys {sequences, kv, d,
// seen}, values {sequences, kv, seen, d}.
tensor *kv_store(build *b, const layer *y, enum kv kv, tensor *x);
// Queries or keys {T, heads, d} turned as the cache wants them: both, or neither, since a product of a query and a key
// stays the same.
tensor *kv_turned(const build *b, tensor *x, int64_t d);
// keys of floats, as rope_pairs gives them
tensor *kv_store_pairs(build *b, const layer *y, tensor *pairs);
// of a run over several, with a window: {T}, the first page that each token reads; NULL: 0 for all
tensor *first_page_apart(const build *b, int window);
// how many positions are seen, and which: {1 or T, 1, 1, 1, seen}
uop *kv_seen(const build *b, const layer *y);
tensor *kv_seen_at(const build *b, const layer *y);

// mla.c: x {T, groups, n} times w {groups, rows, n}, each by its own: {T, groups, rows}
tensor *heads_product(const build *b, tensor *x, tensor *w);
// attention.c. Scores {T, kv, heads / kv, 1, C} of q {T, heads, n}, scaled, with K {kv, n, C} of the positions so far;
// then what they make of V {C, kv, v_dim}: {T, heads * v_dim}. Both in the layer's numbers.
tensor *scores(build *b, const layer *y, tensor *q, tensor *K);
tensor *own_at(const build *b);                                // positions of this run's tokens, {T, 1, 1, 1, 1}
tensor *attend(build *b, const layer *y, tensor *scores, tensor *V);
// What is looked at together: scores, masked; V {sequences, kv, n, v_dim} or, as_keys, {sequences, kv, v_dim, n};
// there {1 or T, 1, 1, n, 1}: whether V has something; NULL: everywhere
typedef struct sight { tensor *scores, *V, *there; bool as_keys; } sight;
sight seen_positions(build *b, const layer *y, tensor *scores, tensor *V);      // of the layer's window, or all
tensor *attend_to(build *b, const layer *y, const sight *of, int n);            // one softmax over all of them
tensor *alibi_slopes(const build *b, const layer *y);
// q {T, heads, n}, larger where positions are far; q without a temperature
tensor *warmed(build *b, const layer *y, tensor *q);

// indexer.c: its keys and tensors; whether there is something to choose in a context of so many positions; what tokens
// read, {T, 1, 1, 1, seen}, of x, as the layer's norm leaves it, and of q, which queries are made of
int indexer_load(loader *l, layer *y);
int block_indexer_load(loader *l, layer *y);
bool indexer_chooses(const model *m, int64_t n_ctx);
tensor *indexer_choice(build *b, const layer *y, tensor *x, tensor *q);
// Of other keys than those of positions: K {sequences, 1, n, pages x page}, whose numbers are `at` {.., pages x page};
// those behind `last` {T, ..} are not read. by {T, heads}: weights
typedef struct index_keys { tensor *q, *K, *by, *at, *last; uop *pages; int64_t page; } index_keys;
tensor *indexer_best(build *b, const layer *y, const index_keys *k);
// of one that chooses blocks, for each head of keys: {T, kv, 1, 1, seen}
tensor *block_indexer_choice(build *b, const layer *y, tensor *x);

// Rows of one number see each other alone. They follow each other, and there are `most` of them at most; aligned: a
// group begins at each multiple of `most`. number {rows of whole pages}
typedef struct row_groups { tensor *number; int64_t most; bool aligned; } row_groups;
// encoder.c. What heads make of x, each row of which reads all others, or those of its group: {T, heads * v_dim}. of
// (NULL: none): the groups.
tensor *see_all(build *b, const layer *y, tensor *x, const row_groups *of);
// s {T, kv, heads / kv, 1, positions}, with the numbers that a layer has for the ranges of distances. away {T, 1, 1, 1,
// positions}; both: of positions before and behind a token, or (away: how far before it) before it alone. none: the
// table of layers that have none of their own
typedef struct ranges { tensor *away; bool both; enum tensor_id none; } ranges;
tensor *by_range(const build *b, const layer *y, tensor *s, const ranges *of);
// cross.c: x {T, n_embd}, what is embedded, through the encoder; what all layers cache of a source
tensor *source_through(build *b, tensor *x);
void source_keep(build *b);
// The same of queries {T, heads, d}, scaled, that read other rows: keys {n, kv, d}, values {n, kv, v_dim}.
tensor *see_rows(build *b, const layer *y, tensor *q, tensor *k, tensor *v, const row_groups *of);

// vit.c: keys and tensors of an encoder's layers; then x {T, n_embd} through them
int vit_load(loader *l);
tensor *vit(build *b, tensor *x);

// rope.c. x {T, heads, d}: pairs of its first elements turn by their angles, the rest stays; nothing turns where the
// layer has no rope.
void rope_tables(build *b);
bool rope_whole(const build *b, const layer *y, int64_t d);                                    // all of d turns
tensor *rope_turn(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d);        // {T, heads, d}
// the same, by halves or by neighbours
tensor *rope_turn_as(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves);
// the same of its last elements, where not all turn
tensor *rope_turn_last(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d, bool halves);
void rope_at(build *b, enum rope_id id, tensor *at);           // the tables of one, of these places {T}
// where all of d turns: {T, heads, d/2, 2}, pairs wherever they lie in a head
tensor *rope_pairs(const build *b, const layer *y, tensor *x, int64_t heads, int64_t d);
#endif
