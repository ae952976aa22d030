// slots: numbers of sequences, with which llama.cpp's clients save, restore and erase them. There are as many as
// running answers. A running answer has the number that its request asks for (id_slot), otherwise that of the sequence
// from which it continues, otherwise a number without a sequence, or the least recently used one. Its sequence keeps
// the number afterwards; a sequence that had the number before loses it, but prompts still find it.
#ifndef WEFT_SERVE_SLOTS_H
#define WEFT_SERVE_SLOTS_H
#include "serve/run.h"

typedef VEC(held) helds;               // unused sequences, the most recently used last

void slots_drop(helds *rest, size_t i);
// Adds a sequence and makes it the only one with its slot. The caller limits their number: slots_first_to_go is the one
// to drop.
void slots_add(helds *rest, const held *h);
size_t slots_first_to_go(const helds *rest);
// A number for a sequence without one, not used by a running answer.
int slots_free_number(const helds *rest, const bool *in_work, int n);

// An action on a slot, executed when no answer runs there. The requester writes the copy of SAVE (weft_sequence_save)
// and returns it to the step thread (sched_give_back).
typedef struct slot_action {
  enum slot_verb { SLOT_SAVE, SLOT_RESTORE, SLOT_ERASE } verb;
  int slot;
  const char *path;                    // RESTORE
  void (*done)(struct slot_action *a); // on the step thread; must not block
  // ---- results
  int status;                          // HTTP status; 200: done
  weft_error why;
  held copy;
  size_t n;                            // number of tokens
  double took_s;
  struct slot_action *next;
} slot_action;
// On the step thread.
void slots_act(helds *rest, weft_model *m, slot_action *a);
#endif
