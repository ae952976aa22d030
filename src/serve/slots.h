// slots: the numbers of sequences, by which llama.cpp's clients save, restore and erase them. There are as many as
// answers can be in work at once. An answer in work has the number that its request asks for (id_slot), else that of
// the sequence which it goes on from, else one that no sequence has, or that of the one which was used least lately.
// Its sequence keeps the number at rest, and one that had it before has none from then on: prompts still find that.
#ifndef WEFT_SERVE_SLOTS_H
#define WEFT_SERVE_SLOTS_H
#include "serve/run.h"

typedef VEC(held) helds;               // sequences that nobody uses, the one last used at the end

void slots_drop(helds *rest, size_t i);
// h->slot is nobody else's from here on. The caller sees to it that there are not too many; this is the one to go.
void slots_add(helds *rest, const held *h);
size_t slots_first_to_go(const helds *rest);
// For a sequence that has none; there is one of the n that is not in work.
int slots_free_number(const helds *rest, const bool *in_work, int n);

// Something to be done with a slot, once no answer is in work there. The copy of SAVE is written by whoever asked
// (weft_sequence_save), and goes back to the steps' thread (sched_give_back).
typedef struct slot_action {
  enum slot_verb { SLOT_SAVE, SLOT_RESTORE, SLOT_ERASE } verb;
  int slot;
  const char *path;                    // RESTORE
  void (*done)(struct slot_action *a); // on the thread of the steps; may not wait
  // ---- what came of it
  int status;                          // of HTTP; 200: it is done
  weft_error why;
  held copy;
  size_t n;                            // tokens
  double took_s;
  struct slot_action *next;
} slot_action;
// On the thread of the steps.
void slots_act(helds *rest, weft_model *m, slot_action *a);
#endif
