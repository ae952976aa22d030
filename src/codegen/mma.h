// Tiles of a matrix product that 32 items compute together (OP_MMA): see mma.c.
#ifndef WEFT_MMA_H
#define WEFT_MMA_H
#include "codegen/opt.h"

// Of a tile of 16 rows and 8 columns an item has rows g and g + 8 and columns 2 t and 2 t + 1: row 8 i + g, column
// 2 t + j, of 8 g and 4 t (LOCAL), two i and two j (UPCAST).
enum { MMA_ITEMS = 32, MMA_COLUMNS = 8 };
typedef struct mma_ranges { uop *g, *t, *i, *j; } mma_ranges;

// Those of a kernel that has them, as the OptOps LOCAL(row, 8), UPCAST(row, 2), UPCAST(column, 2), LOCAL(column, 4)
// leave them.
bool mma_find(const uop *store, mma_ranges *out);
// Can this sum, with `inner` of 16 or 32 steps among its ranges, be one of such tiles? half: the range of two steps
// that counts on where inner ends, so that there are 32 products; NULL: there is none.
bool mma_fits(const uop *reduce, const mma_ranges *m, const uop *inner, uop **half);
// The same of a sum of products of halves, with `inner` of 8 steps: what an item has of a row. outer: the range of
// which four steps go to four items.
bool mma_fits_halves(const uop *reduce, const mma_ranges *m, const uop *inner, uop **outer);
// The type of halves whose products this sum adds up; DT_VOID: it adds up others.
enum dtype mma_halves(const uop *reduce);
bool mma_has(const uop *ast);                                    // is there such a sum?
bool mma_sound(uop *ast);                                         // do all such sums still have operands that fit?
uop *expand_mma(graph *g, uop *ast);                             // sums over MMA ranges become MMAs
#endif
