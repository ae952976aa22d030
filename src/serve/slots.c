// Numbers of sequences, and actions on them: see slots.h.
#include "serve/slots.h"
#include <string.h>
#include "base/base.h"

enum { NONE = -1 };

void slots_drop(helds *rest, size_t i) {
  held_free(&rest->at[i]);
  memmove(rest->at + i, rest->at + i + 1, (rest->n - i - 1) * sizeof *rest->at);
  rest->n--;
}

static held *of_slot(const helds *rest, int slot) {
  for (size_t i = 0; i < rest->n; i++) if (rest->at[i].slot == slot) return &rest->at[i];
  return NULL;
}

void slots_add(helds *rest, const held *h) {
  held *old = h->slot == NONE ? NULL : of_slot(rest, h->slot);
  if (old) old->slot = NONE;
  vec_push(rest, *h);
  rest->at[rest->n - 1].used = now_s();
  rest->at[rest->n - 1].kept = false;
}

size_t slots_first_to_go(const helds *rest) {
  const held *h = of_slot(rest, NONE);
  return h ? (size_t)(h - rest->at) : 0;
}

int slots_free_number(const helds *rest, const bool *in_work, int n) {
  for (int i = 0; i < n; i++) if (!in_work[i] && !of_slot(rest, i)) return i;
  for (size_t i = 0; i < rest->n; i++) {
    int slot = rest->at[i].slot;
    if (slot >= 0 && slot < n && !in_work[slot]) return slot;
  }
  return NONE;
}

// ---- actions --------------------------------------------------------------------------------------------------------

// The copy shares pages with its source. An empty slot is saved as an empty sequence, as in llama-server.
static int copy_slot(const helds *rest, weft_model *m, slot_action *a) {
  const held *h = of_slot(rest, a->slot);
  a->n = h ? (size_t)weft_sequence_whole(h->sequence, (int)h->past.n) : 0;
  return held_begin(m, h, a->n, &a->copy, &a->why) ? 500 : 200;
}

// If memory is short, other unused sequences are dropped, as for a prompt.
static int load_slot(helds *rest, weft_model *m, slot_action *a) {
  held h = {.slot = a->slot};
  int32_t *ids;
  size_t n;
  if (weft_sequence_tokens(m, a->path, &ids, &n, &a->why)) return 400;
  int status;
  while ((status = weft_sequence_load(m, ids, n, a->path, &h.sequence, &a->why)) == -1 && rest->n)
    slots_drop(rest, slots_first_to_go(rest));
  if (!status) {
    a->n = (size_t)weft_sequence_length(h.sequence);
    for (size_t i = 0; i < a->n; i++) vec_push(&h.past, ids[i]);
    held *old = of_slot(rest, a->slot);
    if (old) slots_drop(rest, (size_t)(old - rest->at));
    slots_add(rest, &h);
  }
  weft_free(ids);
  return !status ? 200 : status == -1 ? 503 : 400;
}

static int erase_slot(helds *rest, slot_action *a) {
  held *h = of_slot(rest, a->slot);
  a->n = h ? h->past.n : 0;
  if (h) slots_drop(rest, (size_t)(h - rest->at));
  return 200;
}

void slots_act(helds *rest, weft_model *m, slot_action *a) {
  double began = now_s();
  switch (a->verb) {
  case SLOT_SAVE: a->status = copy_slot(rest, m, a); break;
  case SLOT_RESTORE: a->status = load_slot(rest, m, a); break;
  case SLOT_ERASE: a->status = erase_slot(rest, a); break;
  }
  a->took_s = now_s() - began;
}
