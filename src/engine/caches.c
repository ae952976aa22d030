// Memory of caches and sequences: see caches.h.
#include "engine/caches.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "device/device.h"
#include "device/memory.h"
#include "engine/follow.h"

uint64_t caches_piece(const caches *c, int i) { return model_state_bytes(c->m, i, CACHE_PAGE); }

static uint64_t state_bytes(const caches *c, int i) {
  return caches_piece(c, i) * (uint64_t)(model_state_is_paged(c->m, i) ? c->n_pages : c->slots);
}

uint64_t caches_bytes(const model *m, int64_t positions) {
  uint64_t sum = 0;
  for (int i = 0; i < model_n_states(m); i++)
    if (!add_u64(sum, model_state_bytes(m, i, positions), &sum)) return UINT64_MAX;
  return sum;
}

// Maximum pages of a windowed group in use at once: those that some token of a chunk sees, and the slack before them.
static int64_t ring_of(int64_t window, int64_t slack, int64_t chunk) {
  return (window - 1 + slack + chunk) / CACHE_PAGE + 2;
}

uint64_t caches_held_bytes(const model *m, int64_t positions, int64_t chunk) {
  uint64_t sum = 0;
  for (int i = 0; i < model_n_states(m); i++) {
    int64_t window = model_state_is_paged(m, i) ? model_group_window(m, model_state_group(m, i)) : 0, n = positions;
    if (window) n = min_i64(n, ring_of(window, CACHE_SLACK, chunk) * CACHE_PAGE);
    if (!add_u64(sum, model_state_bytes(m, i, n), &sum)) return UINT64_MAX;
  }
  return sum;
}

static void release_states(caches *c) {
  for (int i = 0; c->state && i < model_n_states(c->m); i++) device_release(c->of[i], c->state[i], state_bytes(c, i));
  free(c->state);
  c->state = NULL;
}

static int reserve_states(caches *c, error *err) {
  int n = model_n_states(c->m);
  c->state = xcalloc((size_t)n + 1, sizeof *c->state);
  for (int i = 0; i < n; i++)
    if (!(c->state[i] = device_alloc(c->of[i], state_bytes(c, i), PAGES_PLAIN, err))) { release_states(c); return -1; }
  return 0;
}

int caches_open(caches *c, const model *m, device **of, int64_t n_pages, int64_t least_pages, int64_t chunk,
                uint64_t room, error *err) {
  *c = (caches){.m = m, .of = of, .n_pages = n_pages, .slots = model_is_recurrent(m) ? CACHE_SLOTS : 1,
                .slack = CACHE_SLACK, .chunk = chunk, .room = room, .number = -1};
  while (reserve_states(c, err)) {
    if (c->n_pages == least_pages && c->slots == 1) return -1;
    c->n_pages = max_i64(c->n_pages / 2, least_pages);
    c->slots = max_i64(c->slots / 2, 1);
  }
  for (int g = 0; g < model_n_groups(m); g++) pages_open(&c->pages[g], (int)c->n_pages);
  for (int i = 0; i < model_n_states(m); i++)
    if (model_state_is_paged(m, i)) c->page_bytes[model_state_group(m, i)] += caches_piece(c, i);
  c->promoted = xcalloc((size_t)model_n_states(m) + 1, sizeof *c->promoted);
  c->elsewhere = xcalloc((size_t)model_n_states(m) + 1, sizeof *c->elsewhere);
  c->slot_used = xcalloc((size_t)c->slots, sizeof *c->slot_used);
  return 0;
}

void caches_close(caches *c) {
  if (!c->m) return;
  release_states(c);
  for (int g = 0; g < MODEL_GROUPS; g++) pages_close(&c->pages[g]);
  free(c->promoted); free(c->elsewhere); free(c->slot_used); free(c->of);
  *c = (caches){0};
}

bool caches_promote_pages(caches *c, double seconds) {
  if (c->number >= 0) return true;             // a huge page would contain other processes' parts
  double end = now_s() + seconds;
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (!c->of[i]->run->here) continue;
    int used = model_state_is_paged(c->m, i) ? c->pages[model_state_group(c->m, i)].most : c->n_slots;
    uint64_t full = caches_piece(c, i) * (uint64_t)used;
    for (; c->promoted[i] + MEMORY_ALIGN <= full; c->promoted[i] += MEMORY_ALIGN) {
      if (now_s() >= end) return false;
      if (memory_promote((unsigned char *)c->state[i] + c->promoted[i], MEMORY_ALIGN)) continue;
      c->promoted[i] = state_bytes(c, i);
      break;
    }
  }
  return true;
}

// ---- sequences ------------------------------------------------------------------------------------------------------

void *caches_at(const caches *c, int i, int number) {
  return (unsigned char *)c->state[i] + (uint64_t)number * caches_piece(c, i);
}

bool caches_is_of(const caches *c, int i, int group) {
  return model_state_is_paged(c->m, i) ? group == model_state_group(c->m, i) : group == CACHE_FIXED;
}

int caches_check(const caches *c, error *err) {
  for (int i = 0; i < model_n_states(c->m); i++) if (device_check(c->of[i], err)) return -1;
  return 0;
}

// For pages or slots first .. first + n - 1
void caches_discard(caches *c, int group, int first, int n) {
  follow_discard(c, group, first, n);
  for (int i = 0; i < model_n_states(c->m); i++)
    if (c->of[i]->run->here && caches_is_of(c, i, group))
      memory_discard(caches_at(c, i, first), (uint64_t)n * caches_piece(c, i));
}

void caches_copy(caches *c, int group, int from, int to) {
  follow_copy(c, group, from, to);
  for (int i = 0; i < model_n_states(c->m); i++)
    if (caches_is_of(c, i, group) && !c->elsewhere[i])
      device_copy(c->of[i], caches_at(c, i, to), caches_at(c, i, from), caches_piece(c, i));
}

void caches_write(caches *c, int group, int number, const unsigned char *from) {
  size_t all = 0;
  for (int i = 0; i < model_n_states(c->m); i++) if (caches_is_of(c, i, group)) all += caches_piece(c, i);
  follow_write(c, group, number, from, all);
  for (int i = 0; i < model_n_states(c->m); i++) {
    if (!caches_is_of(c, i, group)) continue;
    if (!c->elsewhere[i]) device_write(c->of[i], caches_at(c, i, number), from, caches_piece(c, i));
    from += caches_piece(c, i);
  }
}

void caches_touch(caches *c, int group, int page) {
  follow_touch(c, group, page);
  for (int i = 0; i < model_n_states(c->m); i++)
    if (c->of[i]->run->here && !c->elsewhere[i] && caches_is_of(c, i, group))
      memory_touch(caches_at(c, i, page), caches_piece(c, i));
}

static int take_page(caches *c, int group) {
  uint64_t size = c->page_bytes[group];
  int page = size <= c->room && c->taken <= c->room - size ? pages_take(&c->pages[group]) : NO_PAGE;
  if (page == NO_PAGE) return page;
  c->taken += size;
  caches_touch(c, group, page);
  return page;
}

static bool drop_page(caches *c, int group, int page) {
  if (page == NO_PAGE || !pages_drop(&c->pages[group], page)) return false;
  c->taken -= c->page_bytes[group];
  return true;
}

bool caches_keep_ids(const caches *c) {
  bool some = model_is_recurrent(c->m);
  for (int g = 0; g < model_n_groups(c->m); g++) some |= model_group_window(c->m, g) > 0;
  return some;
}

int sequence_new(caches *c, sequence **out, error *err) {
  int slot = 0;
  if (model_is_recurrent(c->m)) while (slot < c->slots && c->slot_used[slot]) slot++;
  if (slot == c->slots) return error_set(err, "there are %lld sequences, and memory for no more", (long long)c->slots);
  c->slot_used[slot] = true;
  if (slot >= c->n_slots) c->n_slots = slot + 1;
  c->n_sequences++;
  *out = xcalloc(1, sizeof **out);
  **out = (sequence){.of = c, .slot = slot, .at = -1, .filled = INT_MAX, .chosen = -1};
  return 0;
}

// Drops the pages from .. to - 1 of a group's list. Neighbours are released in one call.
static void drop_pages(sequence *q, int group, size_t from, size_t to) {
  int first = NO_PAGE, count = 0;
  for (size_t i = to; i-- > from;) {
    int page = q->group[group].at[i];
    q->group[group].at[i] = NO_PAGE;
    if (!drop_page(q->of, group, page)) continue;
    if (count && page == first - 1) { first = page; count++; continue; }
    if (count) caches_discard(q->of, group, first, count);
    first = page;
    count = 1;
  }
  if (count) caches_discard(q->of, group, first, count);
}

static void shorten(sequence *q, int group, size_t n) {
  page_list *list = &q->group[group];
  if (n >= list->n) return;
  drop_pages(q, group, n, list->n);
  list->n = n;
}

// ---- rows of floats -------------------------------------------------------------------------------------------------

// Drops rows that begin at n or later
static void forget_floats(sequence *q, int n) {
  while (q->floats.n && q->floats.at[q->floats.n - 1].from >= n) float_rows_drop(q->floats.at[--q->floats.n].rows);
}

int sequence_shift(const sequence *q, int at) {
  size_t i = q->floats.n;
  while (i && q->floats.at[i - 1].to > at) i--;
  return i ? q->floats.at[i - 1].shift : 0;
}

static bool is_span(const placed_floats *p, const float_rows *r, int from) {
  return p->from == from && p->id == r->ids[0];
}

// Cuts a span of rows that continues beyond `at`.
static void end_span(const sequence *q, placed_floats *p, int at) {
  p->shift = sequence_shift(q, p->from);
  p->to = at;
}

void sequence_place_floats(sequence *q, float_table *t, const int32_t *ids, size_t n, int pos) {
  forget_floats(q, pos);
  if (q->loaded > pos) q->loaded = pos;
  if (q->source > pos) q->source = pos;
  for (size_t i = 0; i < n && ids[i] < 0 && q->source == pos + (int)i; i++) q->source++;
  for (size_t i = 0; i < n; i++) {
    size_t row = 0;
    float_rows *r = ids[i] < 0 ? float_rows_find(t, ids[i], &row) : NULL;
    int at = pos + (int)i, from = at - (int)row;
    placed_floats *last = q->floats.n ? &q->floats.at[q->floats.n - 1] : NULL;
    bool goes_on = r && last && is_span(last, r, from);
    if (last && last->to > at && goes_on) continue;
    if (last && last->to > at) end_span(q, last, at);
    if (goes_on) float_rows_drop(q->floats.at[--q->floats.n].rows);
    if (!r) continue;
    placed_floats new = {caches_keep_ids(q->of) ? float_rows_hold(r) : NULL, r->ids[0], from, from + (int)r->n,
                         (int)min_i64((int64_t)sequence_shift(q, from) + r->n_pos - (int)r->n, MOST_SHIFT)};
    vec_push(&q->floats, new);
  }
}

bool sequence_row_follows(const sequence *q, const float_rows *r, size_t row, int pos) {
  int from = pos - (int)row;
  if (!row || (from >= 0 && pos <= q->loaded)) return true;
  for (size_t i = q->floats.n; i--;)
    if (is_span(&q->floats.at[i], r, from)) return q->floats.at[i].to >= pos;
  return false;
}

int sequence_adapter_start(const sequence *q, int adapter) {
  size_t n;
  model_invocation(q->of->m, adapter, &n);
  return !n ? 0 : q->starts ? q->starts[adapter] : INT_MAX;
}

bool sequence_adapted(const sequence *q) {
  bool some = false;
  for (int i = 0; i < model_n_adapters(q->of->m); i++)
    some |= sequence_scales(q)[i] != 0 && sequence_adapter_start(q, i) < INT_MAX;
  return some;
}

// The last place in a prompt at which an adapter's activation tokens begin.
static int find_invocation(const sequence *q, int adapter, const int32_t *ids, size_t n) {
  size_t length;
  const int32_t *tokens = model_invocation(q->of->m, adapter, &length);
  if (!length) return 0;
  if (sequence_scales(q)[adapter] == 0) return INT_MAX;
  for (size_t at = n >= length ? n - length + 1 : 0; at--;)
    if (!memcmp(ids + at, tokens, length * sizeof *ids)) return (int)at;
  return INT_MAX;
}

int sequence_stays(const sequence *q, const int32_t *ids, size_t n) {
  int stays = INT_MAX;
  for (int i = 0; i < model_n_adapters(q->of->m); i++) {
    int before = sequence_adapter_start(q, i), now = find_invocation(q, i, ids, n), first = before < now ? before : now;
    if (before != now && first < stays) stays = first;
  }
  return stays;
}

void sequence_removed(sequence *q, int from, int n) {
  for (int i = 0; q->starts && i < model_n_adapters(q->of->m); i++) {
    if (q->starts[i] == INT_MAX || q->starts[i] < from) continue;
    q->starts[i] = q->starts[i] < from + n ? from : q->starts[i] - n;
  }
}

int sequence_invoke(sequence *q, const int32_t *ids, size_t n) {
  int stays = sequence_stays(q, ids, n), adapters = model_n_adapters(q->of->m);
  bool some = false;
  if (stays == INT_MAX) return stays;
  sequence_cut(q, stays);
  if (!q->starts) q->starts = xcalloc((size_t)adapters, sizeof *q->starts);
  for (int i = 0; i < adapters; i++) {
    q->starts[i] = find_invocation(q, i, ids, n);
    size_t length;
    model_invocation(q->of->m, i, &length);
    some |= length && q->starts[i] < INT_MAX;
  }
  if (some) return stays;
  free(q->starts);
  q->starts = NULL;
  return stays;
}

bool sequence_adapts_as(const sequence *q, const float *scales) {
  bool same = true;
  for (int i = 0; i < model_n_adapters(q->of->m); i++) same &= sequence_scales(q)[i] == scales[i];
  return same;
}

void sequence_adapt(sequence *q, const float *scales) {
  size_t size = (size_t)model_n_adapters(q->of->m) * sizeof *scales;
  if (sequence_adapts_as(q, scales)) return;
  sequence_cut(q, 0);
  free(q->starts);
  q->starts = NULL;
  free(q->scales);
  q->scales = NULL;
  if (sequence_adapts_as(q, scales)) return;
  q->scales = xmalloc(size);
  memcpy(q->scales, scales, size);
}

void sequence_free(sequence *q) {
  if (!q) return;
  free(q->scales);
  free(q->starts);
  for (int g = 0; g < model_n_groups(q->of->m); g++) {
    shorten(q, g, 0);
    vec_free(&q->group[g]);
  }
  if (model_is_recurrent(q->of->m)) {
    caches_discard(q->of, CACHE_FIXED, q->slot, 1);
    q->of->slot_used[q->slot] = false;
  }
  q->of->n_sequences--;
  vec_free(&q->ids);
  vec_free(&q->checkpoints);
  forget_floats(q, 0);
  vec_free(&q->floats);
  free(q);
}

// Names the limit that was met: the number of pages, or their bytes.
static int no_page(const caches *c, int group, error *err) {
  if (c->pages[group].used == c->pages[group].n)
    return error_set(err,
                     "the cache is full: %d sequences hold all of its %d pages of %d positions; fewer sequences at "
                     "once need less, and a longer context reserves more",
                     c->n_sequences, c->pages[group].n, CACHE_PAGE);
  return error_set(err,
                   "the cache is full: pages of %d positions that %d sequences hold take %.1f MiB, of %.1f MiB that "
                   "they may take; a shorter context, or fewer sequences at once, need less",
                   CACHE_PAGE, c->n_sequences, (double)c->taken / 0x1p20, (double)c->room / 0x1p20);
}

// How often a page occurs in a list from entry `from` on.
static int count_of(const page_list *list, size_t from, int page) {
  int n = 0;
  for (size_t i = from; i < list->n; i++) n += list->at[i] == page;
  return n;
}

// Pages that were reserved for shorter evaluations rotate too early for a longer one, which would overwrite what it
// reads: those after position `from` are given back if one of them occurs twice in what it sees.
static void give_back_early(sequence *q, int group, int from) {
  page_list *list = &q->group[group];
  size_t seen = (size_t)model_first_page(model_group_window(q->of->m, group), CACHE_PAGE, from),
         new = caches_n_pages(from), end = caches_n_pages(from + q->of->chunk);
  for (size_t i = new; from >= q->n && i < end && i < list->n; i++)
    for (size_t k = seen; k < i; k++)
      if (list->at[i] != NO_PAGE && list->at[k] == list->at[i]) { shorten(q, group, new); return; }
}

// Windows reuse pages in rotation. The pages held at the beginning of this evaluation do not rotate, since a cancelled
// evaluation must leave them unchanged; neither do pages of checkpoints.
int sequence_hold_group(sequence *q, int group, int from, int to, error *err) {
  caches *c = q->of;
  page_list *list = &q->group[group];
  int64_t window = model_group_window(c->m, group);
  size_t ring = window ? (size_t)ring_of(window, c->slack, c->chunk) : 0;
  size_t first = (size_t)from / CACHE_PAGE, new = caches_n_pages(from), end = caches_n_pages(to);
  if (ring) give_back_early(q, group, from);
  while (list->n < first) vec_push(list, NO_PAGE);
  for (size_t i = first; i < end; i++) {
    if (i == list->n) vec_push(list, NO_PAGE);
    int had = list->at[i], page = NO_PAGE;
    int mine = i < new ? 1 + (ring ? count_of(list, end, had) : 0) : ring ? count_of(list, new, had) : 1;
    if (had != NO_PAGE && pages_holders(&c->pages[group], had) <= mine) continue;
    if (ring && i >= new + ring && !sequence_keeps(q, group, i - ring))
      pages_hold(&c->pages[group], page = list->at[i - ring]);
    else page = take_page(c, group);
    if (page == NO_PAGE) return no_page(c, group, err);
    if (had != NO_PAGE && i < new) caches_copy(c, group, had, page);
    drop_page(c, group, had);
    list->at[i] = page;
  }
  return 0;
}

// The set of pages shows what is whole, so only the last of the rotating pages is kept.
static void drop_unseen(sequence *q, int n) {
  for (int g = 0; g < model_n_groups(q->of->m); g++) {
    page_list *list = &q->group[g];
    size_t end = (size_t)min_i64((int64_t)caches_stay(q->of, g, n), (int64_t)list->n), from = 0;
    for (size_t i = 0; i < end; i++) {
      int page = list->at[i];
      if (page != NO_PAGE && (!sequence_keeps(q, g, i) || count_of(list, i + 1, page))) continue;
      drop_pages(q, g, from, i);
      from = i + 1;
    }
    drop_pages(q, g, from, end);
  }
}

// Releases pages that no window sees after position n. Positions to be evaluated again still count.
static bool thin(sequence *q, int n) {
  uint64_t taken = q->of->taken;
  q->checkpoints.n = 0;
  if (n <= q->filled) drop_unseen(q, n);
  return q->of->taken < taken;
}

static int hold(sequence *q, int from, int to, error *err) {
  size_t n[MODEL_GROUPS];
  int groups = model_n_groups(q->of->m), status = 0;
  bool whole = sequence_is_whole(q, from);
  sequence_choose_checkpoints(q, to);
  if (from < q->n && from < q->filled) q->filled = from;
  for (int g = 0; g < groups; g++) n[g] = q->group[g].n;
  for (int g = 0; g < groups && !status; g++) {
    if (!from && count_of(&q->group[g], 0, NO_PAGE)) shorten(q, g, n[g] = 0);
    if (whole || !model_group_window(q->of->m, g)) status = sequence_hold_group(q, g, from, to, err);
  }
  for (int g = 0; g < groups && status; g++) shorten(q, g, n[g]);
  return status;
}

int sequence_hold(sequence *q, int from, int to, error *err) {
  return !hold(q, from, to, err) || (thin(q, from) && !hold(q, from, to, err)) ? 0 : -1;
}

void sequence_cut(sequence *q, int n) {
  if (n >= q->n) return;
  q->n = n;
  if (q->source > n) q->source = n;
  forget_floats(q, n);
  for (int g = 0; g < model_n_groups(q->of->m); g++) shorten(q, g, caches_n_pages(n));
  for (; q->checkpoints.n && q->checkpoints.at[q->checkpoints.n - 1].n > n; q->checkpoints.n--) q->chosen = -1;
}

void sequence_clear(sequence *q) {
  sequence_cut(q, 0);
  for (int g = 0; g < model_n_groups(q->of->m); g++) shorten(q, g, 0);
}

// ---- the part of a beginning that is whole --------------------------------------------------------------------------

static int whole_windows(const sequence *q, int n) {
  const model *m = q->of->m;
  for (int g = 0; g < model_n_groups(m) && n; g++) {
    int64_t window = model_group_window(m, g);
    if (!window) continue;
    n = (int)min_i64(n, q->filled);
    size_t i = (size_t)model_first_page(window, CACHE_PAGE, n);
    while (i < caches_n_pages(n) && caches_has_page(&q->group[g], i)) i++;
    // a window that contains this page or a later one cannot continue there
    if (i < caches_n_pages(n)) n = (int)i * CACHE_PAGE, g = -1;
  }
  return n;
}

int sequence_whole(const sequence *q, int n) {
  if (!model_is_recurrent(q->of->m)) return whole_windows(q, n);
  int at = q->at < n ? q->at : n;
  return at > 0 && at >= q->back && whole_windows(q, at) == at ? at : 0;
}

int sequence_ahead(const sequence *q, int pos, int most) {
  const model *m = q->of->m;
  while (model_is_recurrent(m) && most > 1 && model_back(m, pos + 1, pos + most) > pos + 1) most--;
  return most;
}

void sequence_trim(sequence *q) { drop_unseen(q, q->n); }
bool sequence_thin(sequence *q) {
  uint64_t taken = q->of->taken;
  for (int g = 0; g < model_n_groups(q->of->m); g++) shorten(q, g, caches_n_pages(q->n));
  thin(q, q->n);
  return q->of->taken < taken;
}

int sequence_hold_again(sequence *q, int n, int to, error *err) {
  q->at = -1;
  sequence_choose_checkpoints(q, to);
  int from = q->filled = sequence_whole(q, n);
  for (int g = 0; g < model_n_groups(q->of->m); g++)
    if (model_group_window(q->of->m, g)) shorten(q, g, caches_n_pages(from));
  // a multi-position entry is wrong until its last position has been evaluated again: others may read the old one
  bool own = model_has_entries(q->of->m);
  for (int g = 0; g < model_n_groups(q->of->m); g++)
    if ((own || model_group_window(q->of->m, g)) &&
        (sequence_hold_group(q, g, from, n, err) || sequence_hold_group(q, g, n, to, err)))
      return -1;
  return 0;
}

void sequence_is_renewed(sequence *q, int n) {
  q->filled = INT_MAX;
  drop_unseen(q, n);
}

int sequence_hold_all(sequence *q, int n, error *err) {
  q->at = -1;
  q->filled = 0;
  for (int g = 0; g < model_n_groups(q->of->m); g++) if (sequence_hold_group(q, g, 0, n, err)) return -1;
  return 0;
}

// ---- shared beginnings ----------------------------------------------------------------------------------------------

static void share_pages(const sequence *q, int group, int n, page_list *to) {
  for (size_t i = 0; i < caches_n_pages(n); i++) {
    int page = caches_has_page(&q->group[group], i) ? q->group[group].at[i] : NO_PAGE;
    if (page != NO_PAGE) pages_hold(&q->of->pages[group], page);
    vec_push(to, page);
  }
}

int sequence_fork(const sequence *q, int n, sequence **out, error *err) {
  if (n < 0 || n > q->n) return error_set(err, "a sequence of %d positions cannot continue at %d", q->n, n);
  if (caches_check(q->of, err)) return -1;
  if (sequence_new(q->of, out, err)) return -1;
  sequence *to = *out;
  if (q->scales) sequence_adapt(to, q->scales);
  if (q->starts) {
    size_t size = (size_t)model_n_adapters(q->of->m) * sizeof *q->starts;
    to->starts = memcpy(xmalloc(size), q->starts, size);
  }
  to->n = n;
  to->filled = q->filled;
  to->loaded = q->loaded < n ? q->loaded : n;
  to->source = q->source < n ? q->source : n;
  for (size_t i = 0; i < q->checkpoints.n && q->checkpoints.at[i].n <= n; i++)
    vec_push(&to->checkpoints, q->checkpoints.at[i]);
  for (size_t i = 0; i < q->floats.n && q->floats.at[i].from < n; i++) {
    vec_push(&to->floats, q->floats.at[i]);
    if (q->floats.at[i].rows) float_rows_hold(q->floats.at[i].rows);
  }
  for (int g = 0; n && g < model_n_groups(q->of->m); g++) share_pages(q, g, n, &to->group[g]);
  if (!caches_keep_ids(q->of)) return 0;
  for (int i = 0; i < n; i++) vec_push(&to->ids, q->ids.at[i]);
  if (model_is_recurrent(q->of->m) && n && sequence_whole(q, n) == n) {
    caches_copy(q->of, CACHE_FIXED, q->slot, to->slot);
    to->at = q->at;
    to->back = q->back;
  }
  return 0;
}
