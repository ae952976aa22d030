// record: what happened to a graph while it was compiled, for people to look at. A recorder is given to a graph
// (graph_record); from then on every rule that fires in that graph is a step of it, and passes leave their results as
// marks. A graph without a recorder pays one comparison for each rule that fires. Nodes are kept as pointers: write
// before the graph is freed.
#ifndef WEFT_RECORD_H
#define WEFT_RECORD_H
#include "graph/rewrite.h"

typedef struct recorder recorder;
recorder *recorder_new(size_t most_steps);       // steps beyond are counted, not kept
void recorder_free(recorder *r);                 // NULL is fine

// a pass with this name has made root; nothing without a recorder
void record_mark(graph *g, uop *root, const char *fmt, ...) PRINTF_LIKE(3, 4);
// for rewrite.c; the texts are kept as pointers
void record_step(recorder *r, const char *pass, const ruleset *s, unsigned index, uop *from, uop *to);

// How long each pass took, in order: since the mark before it, or since the recorder was made.
void record_passes(const recorder *r, void (*visit)(void *ctx, const char *name, double seconds), void *ctx);

// A JSON object: labels [text of a node without its sources], nodes [[label, for each source how many nodes before this
// one it stands...]], rules [[pass, table, line, text, file below src/]], steps [[rule, node before, node after]] in
// order, marks [[pass, its result, steps until then]], lost (steps that were too many). `numbers`, if not NULL, gets
// node -> its number + 1.
void record_write(const recorder *r, str *out, map *numbers);
#endif
