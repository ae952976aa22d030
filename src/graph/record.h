// record: records what happens to a graph during compilation, for display. A recorder is attached to a graph
// (graph_record); then every rule that fires in that graph becomes a step, and passes add their results as marks. A
// graph without a recorder pays one comparison for each rule that fires. Nodes are kept as pointers: write the record
// before the graph is freed.
#ifndef WEFT_RECORD_H
#define WEFT_RECORD_H
#include "graph/rewrite.h"

typedef struct recorder recorder;
recorder *recorder_new(size_t most_steps);       // steps beyond are counted, not kept
void recorder_free(recorder *r);                 // NULL is fine

// records that a pass of this name has made root; does nothing without a recorder
void record_mark(graph *g, uop *root, const char *fmt, ...) PRINTF_LIKE(3, 4);
// for rewrite.c; keeps pointers to the texts
void record_step(recorder *r, const char *pass, const ruleset *s, unsigned index, uop *from, uop *to);

// The duration of each pass in order: since the previous mark, or since the recorder was made.
void record_passes(const recorder *r, void (*visit)(void *ctx, const char *name, double seconds), void *ctx);

// Writes a JSON object: labels [text of a node without its sources], nodes [[label, for each source how many nodes
// earlier it is...]], rules [[pass, table, line, text, file below src/]], steps [[rule, node before, node after]] in
// order, marks [[pass, its result, steps until then]], lost (number of steps not kept). `numbers`, if not NULL, gets
// node -> its number + 1.
void record_write(const recorder *r, str *out, map *numbers);
#endif
