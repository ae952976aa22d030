// Tiles of a matrix product that 32 work-items compute together (OP_MMA): see mma.c.
#ifndef WEFT_MMA_H
#define WEFT_MMA_H
#include "codegen/opt.h"

// The ranges of a tile of 16 rows and 8 columns. Row 8 i + g, column 2 t + j; 8 steps of g and 4 of t (LOCAL), two of i
// and two of j (UPCAST): a work-item has rows g and g + 8 and columns 2 t and 2 t + 1.
enum { MMA_ITEMS = 32, MMA_COLUMNS = 8 };
typedef struct mma_ranges { uop *g, *t, *i, *j; } mma_ranges;

// Finds these ranges in a kernel, as the OptOps LOCAL(row, 8), UPCAST(row, 2), UPCAST(column, 2), LOCAL(column, 4)
// leave them.
bool mma_find(const uop *store, mma_ranges *out);
// Can this sum, with `inner` of 16 or 32 steps among its ranges, be computed by such tiles? half: the range of two
// steps that continues where inner ends, for 32 products; NULL if there is none.
bool mma_fits(const uop *reduce, const mma_ranges *m, const uop *inner, uop **half);
// The check for F16 and BF16 products, with `inner` of 8 steps: the elements of a row that a work-item has. outer: the
// range whose four steps go to four work-items.
bool mma_fits_halves(const uop *reduce, const mma_ranges *m, const uop *inner, uop **outer);
// The type (F16 or BF16) of the products that this sum adds; DT_VOID for other types.
enum dtype mma_halves(const uop *reduce);
bool mma_has(const uop *ast);                                    // is there such a sum?
bool mma_sound(uop *ast);                                         // do all such sums still have operands that fit?
uop *expand_mma(graph *g, uop *ast);                             // converts sums over MMA ranges to MMAs
#endif
