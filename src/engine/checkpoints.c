// checkpoints: places in a sequence at which others may continue, so the pages that windows need there are kept.
//
// A conversation that shares only the beginning of a sequence (a system prompt, an edited earlier message, an answer
// that is generated again) can leave it anywhere, but more often near its ends, mainly near the beginning, and most
// often where others did or where a prompt ended. Each checkpoint takes at most the pages of one window, shared with
// its neighbours; all of them together take at most caches_checkpoint_bytes: a quarter of what layers without a window
// hold, or two windows if that is more. Checkpoints are hints: the existing pages determine where a sequence can be
// resumed (sequence_whole).
//
// Checkpoints are chosen one at a time: the next one saves most per page that it takes. Without it, sequences that
// leave between it and the next checkpoint would evaluate the tokens since the previous checkpoint again.
#include <math.h>
#include <stdlib.h>
#include "engine/caches.h"

// Relative frequencies of leaving a sequence: 1 between the middle and a place e times nearer to its end; BEGINNING
// between the middle and a place e times nearer to its beginning; LIKELY at a likely checkpoint. Tested with shapes of
// gemma3 and gpt-oss: with a smaller BEGINNING, long sequences of models with expensive windows have no checkpoint left
// there.
#define BEGINNING 4.0
#define LIKELY 6.0

static uint64_t window_bytes(const caches *c) {
  uint64_t sum = 0;
  for (int g = 0; g < model_n_groups(c->m); g++) {
    int64_t window = model_group_window(c->m, g);
    if (window) sum += c->page_bytes[g] * (uint64_t)model_window_pages(window, CACHE_PAGE);
  }
  return sum;
}

uint64_t caches_checkpoint_bytes(const caches *c, int positions) {
  uint64_t full = 0, windows = 2 * window_bytes(c);
  for (int g = 0; g < model_n_groups(c->m); g++)
    if (!model_group_window(c->m, g)) full += c->page_bytes[g] * caches_n_pages(positions);
  return full / 4 > windows ? full / 4 : windows;
}

static void add_checkpoint(sequence *q, int n, int likely) {
  if (n <= 0 || (n <= q->n && !sequence_is_whole(q, n))) return;         // released pages cannot be kept
  size_t i = q->checkpoints.n;
  while (i && q->checkpoints.at[i - 1].n >= n) i--;
  if (i < q->checkpoints.n && q->checkpoints.at[i].n == n) { q->checkpoints.at[i].likely |= likely; return; }
  vec_push(&q->checkpoints, ((checkpoint){n, likely}));
  for (size_t j = q->checkpoints.n - 1; j > i; j--) q->checkpoints.at[j] = q->checkpoints.at[j - 1];
  q->checkpoints.at[i] = (checkpoint){n, likely};
}

void sequence_checkpoint(sequence *q, int from, int to) {
  if (!window_bytes(q->of)) return;
  for (int n = from / CACHE_PAGE * CACHE_PAGE + CACHE_PAGE; n < to; n += CACHE_PAGE) add_checkpoint(q, n, 0);
  add_checkpoint(q, to, 1);
  q->chosen = -1;
}

static size_t first_seen(const caches *c, int group, int n) {
  return (size_t)model_first_page(model_group_window(c->m, group), CACHE_PAGE, n);
}

bool sequence_keeps(const sequence *q, int group, size_t page) {
  if (!model_group_window(q->of->m, group)) return true;
  for (size_t i = 0; i < q->checkpoints.n; i++) {
    int n = q->checkpoints.at[i].n;
    if (first_seen(q->of, group, n) <= page && page < caches_n_pages(n)) return true;
  }
  return false;
}

// ---- choosing -------------------------------------------------------------------------------------------------------

// parted: fraction of all sequences that leave before it; next: the chosen checkpoint after it
struct place { int n; bool chosen; double parted, next; };
// Checkpoints before `live` count: from there on all pages exist. held: for each group, the chosen pages.
struct choosing {
  const caches *c;
  struct place *at;
  size_t n, stay[MODEL_GROUPS];
  int live;
  bool *held[MODEL_GROUPS];
};

static double parted_before(double at, double n) {
  double half = n / 2, least = CACHE_PAGE;
  if (at < half) return BEGINNING * log(fmax(at, least) / least);
  return BEGINNING * log(fmax(half, least) / least) + log(fmax(n - half, least) / fmax(n - at, least));
}

static void begin_choosing(struct choosing *ch, const sequence *q, int n) {
  const caches *c = ch->c = q->of;
  for (int g = 0; g < model_n_groups(c->m); g++) {
    ch->stay[g] = caches_stay(c, g, n);
    ch->held[g] = xcalloc(ch->stay[g] + 1, sizeof *ch->held[g]);
    int64_t live = (int64_t)ch->stay[g] * CACHE_PAGE + model_group_window(c->m, g) - 1;
    if (ch->stay[g]) ch->live = (int)max_i64(ch->live, live);
  }
  ch->at = xcalloc(q->checkpoints.n + 1, sizeof *ch->at);
  double likely = 0;
  for (size_t i = 0; i < q->checkpoints.n; i++) {
    const checkpoint *m = &q->checkpoints.at[i];
    if (m->n >= ch->live || (m->n <= q->n && !sequence_is_whole(q, m->n))) continue;
    ch->at[ch->n++] = (struct place){.n = m->n, .parted = parted_before(m->n, n) + likely};
    if (m->likely) likely += LIKELY;
  }
  ch->at[ch->n] = (struct place){.n = ch->live, .parted = parted_before(ch->live, n) + likely};
}

// Bytes of pages that a checkpoint needs in addition to those already held; hold: holds them.
static uint64_t bytes_of_checkpoint(struct choosing *ch, int n, bool hold) {
  uint64_t sum = 0;
  for (int g = 0; g < model_n_groups(ch->c->m); g++) {
    size_t i = first_seen(ch->c, g, n);
    for (; model_group_window(ch->c->m, g) && i < ch->stay[g] && i < caches_n_pages(n); i++) {
      if (!ch->held[g][i]) sum += ch->c->page_bytes[g];
      ch->held[g][i] |= hold;
    }
  }
  return sum;
}

// The checkpoint that saves most for its bytes, if these are at most `room`; NULL: none.
static struct place *best_checkpoint(struct choosing *ch, uint64_t room, uint64_t page) {
  struct place *found = NULL;
  double most = 0, next = ch->at[ch->n].parted;
  int before = 0;
  for (size_t i = ch->n; i-- > 0;) {
    ch->at[i].next = next;
    if (ch->at[i].chosen) next = ch->at[i].parted;
  }
  for (size_t i = 0; i < ch->n; i++) {
    struct place *p = &ch->at[i];
    if (p->chosen) { before = p->n; continue; }
    uint64_t bytes = bytes_of_checkpoint(ch, p->n, false);
    double saves = (p->n - before) * (p->next - p->parted) / ((double)bytes + 0.5 * (double)page);
    if (bytes > room || saves <= most) continue;
    most = saves;
    found = p;
  }
  return found;
}

static void end_choosing(struct choosing *ch, sequence *q) {
  size_t n = 0, at = 0;
  for (size_t i = 0; i < q->checkpoints.n; i++) {
    checkpoint m = q->checkpoints.at[i];
    while (at < ch->n && ch->at[at].n < m.n) at++;
    if (m.n >= ch->live || (at < ch->n && ch->at[at].n == m.n && ch->at[at].chosen)) q->checkpoints.at[n++] = m;
  }
  q->checkpoints.n = n;
  for (int g = 0; g < MODEL_GROUPS; g++) free(ch->held[g]);
  free(ch->at);
}

// Chosen for all positions up to the end of the last page, and up to the last announced checkpoint.
void sequence_choose_checkpoints(sequence *q, int to) {
  if (!q->checkpoints.n) return;
  int n = (int)caches_n_pages((int)max_i64(to, q->checkpoints.at[q->checkpoints.n - 1].n));
  if (q->chosen == n) return;
  struct choosing ch = {0};
  uint64_t page = 0, room = caches_checkpoint_bytes(q->of, n * CACHE_PAGE);
  for (int g = 0; g < model_n_groups(q->of->m); g++) if (model_group_window(q->of->m, g)) page += q->of->page_bytes[g];
  begin_choosing(&ch, q, n * CACHE_PAGE);
  for (struct place *p; (p = best_checkpoint(&ch, room, page));) {
    p->chosen = true;
    room -= bytes_of_checkpoint(&ch, p->n, true);
  }
  end_choosing(&ch, q);
  q->chosen = n;
}
