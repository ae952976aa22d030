// Marks the values that are stored whatever the cost model says, from ops, shapes and readers in the tensor graph. The
// cost model (fuse.c) counts evaluations of a value; each rule here states a reason that counts do not show. Storing
// decides where a kernel rounds, so no rule depends on sizes: one token and many tokens get equal bits.
#include "schedule/store.h"

typedef struct reader { struct reader *next; uop *by; } reader;
// Facts about a node. constant: depends on weights only; counted: has an unstored sum or gather below it; summed: has
// an unstored sum below it; data: has memory below it; stored, rows_stored: the decision of the rules for it and for
// the tensor in which it looks up rows; looked_up: has an unstored look-up of rows of a weight below it; stack: the
// STACK to which all its uses lead, without a sum or a store between them; meet: the first node to which all its uses
// lead in this way
typedef struct fact {
  uop *u, *stack;
  struct fact *meet;
  reader *readers;
  bool constant, counted, summed, looked_up, data, stored, rows_stored;
} fact;
typedef struct values { graph *g; arena *mem; map facts; fact *at; size_t n; } values;

static fact *known_of(const values *v, const uop *u) { return map_ptr(&v->facts, u); }
static bool only_moves(const uop *u) { return op_flags((enum op)u->op) & OPF_MOVEMENT; }
static bool lies_stored(const uop *u) { return u->op == OP_BUFFER || u->op == OP_AFTER || u->op == OP_CONTIGUOUS; }

static bool has_readers(const values *v, const uop *u) {
  const reader *r = known_of(v, u)->readers;
  return r && r->next;
}

// The only reader of u; NULL if there are several.
static uop *only_reader(const values *v, const uop *u) {
  const reader *r = known_of(v, u)->readers;
  return r && !r->next ? r->by : NULL;
}

static uop *before_moves(uop *u) {
  while (only_moves(u)) u = u->src[0];
  return u;
}

// Is u only a view of stored memory?
static bool is_shown(const uop *u) {
  while (is_view(u)) u = u->src[0];
  return lies_stored(u);
}

// Does u read rows of a weight by numbers of the input, such as tokens?
static bool looks_up_rows(const values *v, const uop *u) {
  const fact *rows = known_of(v, u->src[0]), *ids = known_of(v, u->src[1]);
  return rows->constant && dtype_is_float((enum dtype)u->dt) && ids->data && !ids->counted;
}

static void note_fact(values *v, fact *f) {
  const uop *u = f->u;
  size_t n = u->op == OP_GATHER || only_moves(u) ? 1 : u->nsrc;
  f->constant = u->op == OP_BUFFER
                  ? u->memory == MEMORY_WEIGHT
                  : u->op != OP_VAR && u->op != OP_ASSIGN && u->op != OP_AFTER && u->op != OP_CONTIGUOUS;
  f->counted = u->op == OP_REDUCE_AXIS || u->op == OP_GATHER;
  f->summed = u->op == OP_REDUCE_AXIS;
  f->data = u->op == OP_BUFFER;
  f->looked_up = u->op == OP_GATHER && looks_up_rows(v, u);
  for (size_t i = 0; i < u->nsrc; i++) {
    fact *from = known_of(v, u->src[i]);
    reader *r = ARENA_NEW(v->mem, reader);
    *r = (reader){from->readers, f->u};
    from->readers = r;
    if (i < n) f->constant &= from->constant;
    f->summed |= !lies_stored(u) && from->summed;
    f->counted |= !lies_stored(u) && from->counted;
    f->looked_up |= !lies_stored(u) && from->looked_up;
    f->data |= from->data;
  }
}

static bool ends_uses(const uop *u) {
  return !u->shape || u->op == OP_REDUCE_AXIS || u->op == OP_GATHER || u->op == OP_ASSIGN || lies_stored(u);
}

// The first node to which both lead; NULL if they never meet. Facts are in dependency order.
static fact *common_reader(fact *a, fact *b) {
  while (a && b && a != b) {
    fact **first = a < b ? &a : &b;
    *first = ends_uses((*first)->u) ? NULL : (*first)->meet;
  }
  return a && b ? a : NULL;
}

static void note_meet(const values *v, fact *f) {
  const reader *r = f->readers;
  f->meet = r ? known_of(v, r->by) : NULL;
  for (; r; r = r->next) f->meet = common_reader(f->meet, known_of(v, r->by));
}

static void note_stack(const values *v, fact *f) {
  bool first = true;
  for (const reader *r = f->readers; r; r = r->next, first = false) {
    uop *by = r->by, *to = by->op == OP_STACK ? by : ends_uses(by) ? NULL : known_of(v, by)->stack;
    if (first) f->stack = to;
    else if (f->stack != to) f->stack = NULL;
  }
}

// The value that u is a view of, in the shape that all its readers share.
static uop *common_form(const values *v, uop *u) {
  while (u->op == OP_RESHAPE) u = u->src[0];
  for (uop *by; (by = only_reader(v, u)) && by->op == OP_RESHAPE;) u = by;
  return u;
}

static void want_stored(const values *v, uop *u) {
  u = common_form(v, u);
  if (!lies_stored(before_moves(u)) && u->dt != DT_IDX && u->dt != DT_BOOL) known_of(v, u)->stored = true;
}

// --- rows that are looked up ----------------------------------------------------------------------------------------
//
// The cost model counts a gather as one place. The rows that it reads are known only at run time, and any number of its
// elements may read one row: each of them would recompute that row.

// Stores the ids of a gather if they are more than arithmetic on numbers in memory. Otherwise each element that uses a
// counted number (the experts of a token, the offsets of its rows) would count again; and inside its reader the number
// is not known to be within bounds.
static void store_ids(const values *v, uop *u) {
  if (!u->shape) return;
  const uop *b = before_moves(u);
  const fact *f = known_of(v, u);
  if (b->dt != DT_IDX) {
    if (f->counted && (f->constant || !is_shown(u))) want_stored(v, u);
    return;
  }
  if (!lies_stored(b)) for (size_t i = 0; i < b->nsrc; i++) store_ids(v, b->src[i]);
}

// Is u stored unchanged, in any order? True if no row of it is read twice.
static bool stored_alone(const values *v, const uop *u) {
  for (uop *by; (by = only_reader(v, u)); u = by) {
    if (by->op == OP_CONTIGUOUS) return true;
    if (!only_moves(by)) return false;
  }
  return false;
}

// Rows 0, 1, .. in order, or the last row repeated: the gather only lengthens a tensor.
static bool rows_in_order(uop *ids) {
  for (ids = before_moves(ids); ids->op == OP_MIN || ids->op == OP_MAX;)
    ids = before_moves(ids->src[!ids->src[0]->shape]);
  return ids->op == OP_IOTA;
}

// If the ids are offset by a number of the graph (taps of a convolution, the previous token), all readers of x read it
// from memory. If data selects the rows, only the gather does: the ids are often computed from x and would wait for it.
// Gathers of single elements (a token's weight for an expert) are left to the cost model.
static void store_looked_up(const values *v, uop *u) {
  if (u->op != OP_GATHER) return;
  uop *x = u->src[0];
  store_ids(v, u->src[1]);
  bool rows = false;
  for (int i = 1; i < x->shape->n; i++) rows |= !uop_is_int(x->shape->dim[i], 1);
  if (!rows || known_of(v, x)->constant || is_shown(x) || rows_in_order(u->src[1]) || stored_alone(v, u)) return;
  if (known_of(v, u->src[1])->data) known_of(v, u)->rows_stored = true;
  else want_stored(v, x);
}

// --- products with weights ------------------------------------------------------------------------------------------

// Is u a product with a weight, apart from factors, limits and a bias that depend on weights alone? loose: also apart
// from whatever has no sum below it, such as scales of positions and what an adapter stored.
static bool is_product(const values *v, const uop *u, bool loose) {
  while (u->op != OP_REDUCE_AXIS) {
    if (lies_stored(u) || !u->shape || !known_of(v, u)->summed) return false;
    const uop *next = NULL;
    for (size_t i = 0; i < (only_moves(u) ? 1 : u->nsrc); i++) {
      const fact *f = known_of(v, u->src[i]);
      if (f->constant || (loose && !f->summed)) continue;
      if (next) return false;
      next = u->src[i];
    }
    if (!next) return false;
    u = next;
  }
  const uop *mul = u->src[0];
  return u->a == OP_ADD && mul->op == OP_MUL &&
         known_of(v, mul->src[0])->constant != known_of(v, mul->src[1])->constant;
}

// --- residual streams ------------------------------------------------------------------------------------------------
//
// Each part of a model adds to the residual stream: x + f(x), where f begins with sums over x. The cost model sees that
// the addition is cheap and how many kernels read x, but not that f(x) + x is read in the same way: a kernel would
// recompute more of the past with each layer, and the order of sums would depend on how much it recomputes.

// Two added values of which at least one is a sum: not a bias.
static bool joins_sums(const values *v, const uop *u) {
  return u->op == OP_ADD && u->shape && dtype_is_float((enum dtype)u->dt) && known_of(v, u)->summed &&
         !known_of(v, u->src[0])->constant && !known_of(v, u->src[1])->constant;
}

// u without scales by weights, and without movement.
static uop *before_scales(const values *v, uop *u) {
  for (;;) {
    if (only_moves(u)) u = u->src[0];
    else if (u->op != OP_MUL) return u;
    else if (known_of(v, u->src[0])->constant) u = u->src[1];
    else if (known_of(v, u->src[1])->constant) u = u->src[0];
    else return u;
  }
}

// Is x reachable from u without passing a sum?
static bool made_beside(const values *v, uop *u, const fact *x, map *seen) {
  const fact *f = known_of(v, u);
  if (f == x) return true;
  if (f < x || !u->shape || lies_stored(u) || u->op == OP_REDUCE_AXIS || map_has(seen, u)) return false;
  map_put(seen, u, u);
  for (size_t i = 0; i < u->nsrc; i++) if (made_beside(v, u->src[i], x, seen)) return true;
  return false;
}

// Stores x of x + f(x), also if it is scaled. A polynomial of x within an activation does not count.
static void store_what_flows(const values *v, uop *add) {
  for (int i = 0; add->op == OP_ADD && add->shape && i < 2; i++) {
    uop *s = add->src[i], *by = add->src[!i];
    if (!s->shape || !by->shape || !has_readers(v, s) || !known_of(v, by)->summed) continue;
    uop *x = before_scales(v, s);
    map seen = {0};
    if (joins_sums(v, x) && !made_beside(v, by, known_of(v, x), &seen)) want_stored(v, x);
    map_free(&seen);
  }
}

// Returns x if u = x minus its mean.
static uop *before_centring(uop *u) {
  if (u->op != OP_SUB || !u->src[1]->shape) return u;
  const uop *mean = before_moves(u->src[1]);
  if (mean->op == OP_MUL) mean = before_moves(mean->src[!mean->src[0]->shape]);
  return mean->op == OP_REDUCE_AXIS && mean->src[0] == u->src[0] ? u->src[0] : u;
}

// The input of a norm, which sums its squares along the last axis, if others read it, too; or NULL.
static uop *normed_by(const values *v, const uop *sum) {
  if (sum->op != OP_REDUCE_AXIS || sum->a != OP_ADD || sum->b != 1 << (sum->shape->n - 1)) return NULL;
  const uop *square = sum->src[0];
  if (square->op != OP_MUL || square->src[0] != square->src[1]) return NULL;
  uop *x = before_centring(square->src[0]);
  return has_readers(v, x) ? before_scales(v, x) : NULL;
}

// Is x made of rows of weights that are looked up: the embedding of tokens?
static bool is_embedding(const values *v, const uop *x) {
  const fact *f = known_of(v, x);
  return f->looked_up && (f->constant || !f->summed);
}

// Stores x of a product with a weight if it is the embedding of tokens.
static void store_multiplied_rows(const values *v, const uop *sum) {
  if (sum->op != OP_REDUCE_AXIS || sum->a != OP_ADD || sum->src[0]->op != OP_MUL) return;
  for (int i = 0; i < 2; i++) {
    uop *x = before_moves(sum->src[0]->src[i]);
    if (is_embedding(v, x) && !known_of(v, x)->summed && known_of(v, sum->src[0]->src[!i])->constant)
      want_stored(v, x);
  }
}

// Stores x of x + f(x), of a norm or of a product if it is the embedding of tokens. Otherwise each kernel that reads
// the stream would look the rows up, and unpack them, again; and the product would count as one of two weights.
static void store_embedding(const values *v, uop *u) {
  store_multiplied_rows(v, u);
  uop *normed = normed_by(v, u);
  if (normed && is_embedding(v, normed)) want_stored(v, normed);
  if (u->op != OP_ADD || !u->shape || !dtype_is_float((enum dtype)u->dt)) return;
  for (int i = 0; i < 2; i++) {
    uop *x = u->src[i], *by = u->src[!i];
    if (!x->shape || !by->shape || !has_readers(v, x) || !known_of(v, by)->summed) continue;
    if (is_embedding(v, x)) want_stored(v, x);
  }
}

// Stores the input of a norm. The last value of the residual stream is one.
static void store_what_is_normed(const values *v, uop *sum) {
  uop *x = normed_by(v, sum);
  if (x && (joins_sums(v, x) || is_product(v, x, false))) want_stored(v, x);
}

// Stores a product if each part of a STACK reads several of its rows: a rotation makes two elements of two. Fused, two
// rows of the weight would share a lane, at half of the memory's bandwidth (docs/speed.md).
static void store_what_turns(const values *v, uop *u) {
  if (!known_of(v, u)->stack || !has_readers(v, u) || !u->shape || !is_product(v, u, true)) return;
  u = before_scales(v, u);
  if (!lies_stored(u)) known_of(v, u)->stored = true;
}

// Stores a product whose readers all take parts, if these do not meet in one value: queries, keys and values of one
// matrix. Else each part would be a kernel of its own, and each would compute again what it is a product with.
static void store_what_is_parted(const values *v, uop *u) {
  if (known_of(v, u)->meet || !has_readers(v, u) || !u->shape || !is_product(v, u, true)) return;
  for (const reader *r = known_of(v, u)->readers; r; r = r->next) if (r->by->op != OP_SHRINK) return;
  while (u->op == OP_RESHAPE) u = u->src[0];
  known_of(v, u)->stored = true;
}

// --- sines ----------------------------------------------------------------------------------------------------------
//
// Tables of a rotation depend on positions alone, and every layer reads them. The cost model finds a sine for each
// element of a layer's rows cheaper than a store.

static bool scales_by_number(const uop *u) {
  return u->op == OP_MUL && (!u->src[0]->shape || !u->src[1]->shape);
}

// Stores a sine that several kernels read: its narrowest form, without repetitions (EXPAND).
static void store_sine(const values *v, uop *u) {
  if (u->op != OP_SIN || !u->shape) return;
  bool expanded = false;
  for (uop *by = u; by; by = only_reader(v, by)) {
    if (by != u && !only_moves(by) && by->op != OP_CAST && !scales_by_number(by)) return;
    expanded |= by->op == OP_EXPAND;
    if (!expanded) u = by;
    if (has_readers(v, by)) { want_stored(v, u); return; }
  }
}

// --- all of it ------------------------------------------------------------------------------------------------------

static uop *with_stored(const values *v) {
  map now = {0};
  uop *u = NULL;
  for (size_t i = 0; i < v->n; i++) {
    const fact *f = &v->at[i];
    uop **src = ARENA_ARRAY(v->mem, uop *, f->u->nsrc);
    bool same = !f->rows_stored;
    for (size_t j = 0; j < f->u->nsrc; j++) {
      src[j] = map_ptr(&now, f->u->src[j]);
      same &= src[j] == f->u->src[j];
    }
    if (f->rows_stored && !lies_stored(before_moves(src[0]))) src[0] = t_contiguous(v->g, src[0]);
    u = same ? f->u : uop_with_src(v->g, f->u, src);
    if (f->stored) u = t_contiguous(v->g, u);
    map_put(&now, f->u, u);
  }
  map_free(&now);
  return u;
}

typedef void (*store_rule)(const values *v, uop *u);

static uop *store_by(graph *g, uop *sink, const store_rule *rules, size_t n) {
  arena *mem = arena_new();
  const uop_list order = uop_toposort(mem, &sink, 1);
  values v = {.g = g, .mem = mem, .at = ARENA_ARRAY(mem, fact, order.n), .n = order.n};
  for (size_t i = 0; i < order.n; i++) {
    v.at[i].u = order.at[i];
    map_put(&v.facts, order.at[i], &v.at[i]);
    note_fact(&v, &v.at[i]);
  }
  for (size_t i = order.n; i-- > 0;) {
    note_stack(&v, &v.at[i]);
    note_meet(&v, &v.at[i]);
  }
  for (size_t i = 0; i < order.n; i++) for (size_t j = 0; j < n; j++) rules[j](&v, order.at[i]);
  uop *out = with_stored(&v);
  map_free(&v.facts);
  arena_free(mem);
  return out;
}

uop *store_values(graph *g, uop *sink) {
  // the other rules see the embedding as memory, not as a weight, and the last ones see parts of a product as memory
  static const store_rule first[] = {store_embedding}, second[] = {store_what_is_parted};
  static const store_rule then[] = {store_looked_up, store_what_flows, store_what_is_normed, store_what_turns,
                                    store_sine};
  sink = store_by(g, sink, first, COUNT(first));
  sink = store_by(g, sink, second, COUNT(second));
  return store_by(g, sink, then, COUNT(then));
}
