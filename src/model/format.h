// format: the single table of the tensor types that a GGUF file can hold: id, name, elements and bytes of a block, and
// what rows have besides blocks. All code takes sizes and names of types from here; the expression that turns a block
// into numbers is in dequant.c under the same id. To add a format: one row here and, if it computes, one expression
// there.
//
// Invariant: ids and block layouts are those of ggml (from 133 on: of ik_llama.cpp, which has its own types there), so
// a row never changes once files of that type exist. A block of BF16_R16 is two of ik_llama.cpp's, since rows lie
// two numbers at a time.
#ifndef WEFT_FORMAT_H
#define WEFT_FORMAT_H
#include "base/base.h"

// F(id, name, elements of a block, bytes of a block, bytes before a row's blocks, rows together, computes)
#define FORMAT_TABLE(F) \
  F( 0, F32,       1,   4, 0, 1, true) \
  F( 1, F16,       1,   2, 0, 1, true) \
  F( 2, Q4_0,     32,  18, 0, 1, true) \
  F( 3, Q4_1,     32,  20, 0, 1, true) \
  F( 6, Q5_0,     32,  22, 0, 1, true) \
  F( 7, Q5_1,     32,  24, 0, 1, true) \
  F( 8, Q8_0,     32,  34, 0, 1, true) \
  F( 9, Q8_1,     32,  36, 0, 1, false) \
  F(10, Q2_K,    256,  84, 0, 1, true) \
  F(11, Q3_K,    256, 110, 0, 1, true) \
  F(12, Q4_K,    256, 144, 0, 1, true) \
  F(13, Q5_K,    256, 176, 0, 1, true) \
  F(14, Q6_K,    256, 210, 0, 1, true) \
  F(15, Q8_K,    256, 292, 0, 1, false) \
  F(16, IQ2_XXS, 256,  66, 0, 1, true) \
  F(17, IQ2_XS,  256,  74, 0, 1, true) \
  F(18, IQ3_XXS, 256,  98, 0, 1, true) \
  F(19, IQ1_S,   256,  50, 0, 1, true) \
  F(20, IQ4_NL,   32,  18, 0, 1, true) \
  F(21, IQ3_S,   256, 110, 0, 1, true) \
  F(22, IQ2_S,   256,  82, 0, 1, true) \
  F(23, IQ4_XS,  256, 136, 0, 1, true) \
  F(24, I8,        1,   1, 0, 1, false) \
  F(25, I16,       1,   2, 0, 1, false) \
  F(26, I32,       1,   4, 0, 1, false) \
  F(27, I64,       1,   8, 0, 1, false) \
  F(28, F64,       1,   8, 0, 1, false) \
  F(29, IQ1_M,   256,  56, 0, 1, true) \
  F(30, BF16,      1,   2, 0, 1, true) \
  F(34, TQ1_0,   256,  54, 0, 1, true) \
  F(35, TQ2_0,   256,  66, 0, 1, true) \
  F(39, MXFP4,    32,  17, 0, 1, true) \
  F(40, NVFP4,    64,  36, 0, 1, true) \
  F(41, Q1_0,    128,  18, 0, 1, true) \
  F(42, Q2_0,     64,  18, 0, 1, true) \
  F(133, Q6_0,    32,  26, 0, 1, true) \
  F(135, IQ2_BN,  64,  16, 4, 1, true) \
  F(137, IQ2_K,  256,  76, 0, 1, true) \
  F(138, IQ3_K,  256, 110, 0, 1, true) \
  F(139, IQ4_K,  256, 144, 0, 1, true) \
  F(140, IQ5_K,  256, 176, 0, 1, true) \
  F(141, IQ6_K,  256, 212, 0, 1, true) \
  F(144, IQ4_KS, 256, 136, 4, 1, true) \
  F(145, IQ2_KS, 256,  70, 2, 1, true) \
  F(146, IQ4_KSS, 256, 128, 4, 1, true) \
  F(151, Q8_KV,   32,  32, 8, 1, true) \
  F(152, IQ5_KS, 256, 168, 4, 1, true) \
  F(153, IQ2_KT, 256,  68, 4, 1, true) \
  F(154, IQ3_KT, 256, 100, 4, 1, true) \
  F(155, IQ4_KT, 256, 128, 4, 1, true) \
  F(156, IQ3_KS, 256, 102, 2, 1, true) \
  F(157, IQ2_KL, 256,  86, 2, 1, true) \
  F(158, IQ1_KT, 256,  56, 4, 1, true) \
  F(202, Q4_0_R8, 32, 18, 0, 8, true) \
  F(206, Q5_0_R4, 32, 22, 0, 4, true) \
  F(208, Q8_0_R8, 32, 34, 0, 8, true) \
  F(210, Q2_K_R4, 256, 84, 0, 4, true) \
  F(211, Q3_K_R4, 256, 110, 0, 4, true) \
  F(212, Q4_K_R4, 256, 144, 0, 4, true) \
  F(213, Q5_K_R4, 256, 176, 0, 4, true) \
  F(214, Q6_K_R4, 256, 210, 0, 4, true) \
  F(216, IQ2_XXS_R4, 256, 66, 0, 4, true) \
  F(217, IQ2_XS_R4, 256, 74, 0, 4, true) \
  F(218, IQ3_XXS_R4, 256, 98, 0, 4, true) \
  F(219, IQ1_S_R4, 32, 6, 2, 4, true) \
  F(220, IQ4_NL_R4, 32, 18, 0, 4, true) \
  F(221, IQ3_S_R4, 256, 110, 0, 4, true) \
  F(222, IQ2_S_R4, 256, 82, 0, 4, true) \
  F(223, IQ4_XS_R8, 256, 136, 0, 8, true) \
  F(229, IQ1_M_R4, 32, 7, 2, 4, true) \
  F(230, BF16_R16, 2, 4, 0, 16, true) \
  F(233, Q6_0_R4, 32, 26, 0, 4, true) \
  F(335, IQ2_BN_R4, 64, 16, 4, 4, true) \
  F(337, IQ2_K_R4, 256, 76, 0, 4, true) \
  F(338, IQ3_K_R4, 256, 110, 0, 4, true) \
  F(339, IQ4_K_R4, 256, 144, 0, 4, true) \
  F(340, IQ5_K_R4, 256, 176, 0, 4, true) \
  F(344, IQ4_KS_R4, 256, 136, 4, 4, true) \
  F(352, IQ5_KS_R4, 256, 168, 4, 4, true) \
  F(353, MXFP4_R8, 32, 17, 0, 8, true) \
  F(397, Q8_K_R16, 256, 258, 0, 16, true) \
  F(398, Q8_KV_R8, 32, 32, 4, 8, true) \
  F(399, Q8_K_R8, 256, 258, 0, 8, true)

// R(id, name): types that ggml has withdrawn; they no longer have a layout.
#define FORMAT_REMOVED(R) \
  R( 4, Q4_2) R( 5, Q4_3) \
  R(31, Q4_0_4_4) R(32, Q4_0_4_8) R(33, Q4_0_8_8) \
  R(36, IQ4_NL_4_4) R(37, IQ4_NL_4_8) R(38, IQ4_NL_8_8)

enum format_id {
#define F(id, name, block, bytes, head, rows, computes) FORMAT_##name = id,
  FORMAT_TABLE(F)
#undef F
  FORMAT_IDS                   // larger than all ids
};

struct format {
  uint32_t id;         // ggml's number, as stored in the file
  const char *name;    // ggml's name: "Q4_0"
  uint32_t block;      // elements of a block; the rows of a tensor are whole blocks
  uint32_t bytes;      // bytes of a block
  uint32_t head;       // bytes of a row before its blocks: a scale of the whole row
  uint32_t rows;       // rows that are stored together, interleaved: heads of all, then first blocks of all, ...; or 1
  bool computes;       // whether dequant.c has its expression
};

const struct format *format_by_id(uint32_t id);            // NULL: unknown or removed
const struct format *format_by_name(const char *name);     // case-insensitive ("q4_0"); NULL: unknown
// The name of the mixture of types that a file was made with (general.file_type): "Q4_K_M"; NULL: unknown number.
const char *format_recipe_name(uint32_t file_type);
const char *format_removed_name(uint32_t id);              // the name of a withdrawn type; NULL: not one
// Bytes of a row of n elements. Returns false if n is not a multiple of the block or the size overflows. Rows that are
// stored together have `rows` times as many.
bool format_row_bytes(const struct format *f, uint64_t n, uint64_t *out);
#endif
