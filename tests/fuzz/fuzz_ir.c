// Fuzzes the parser of the printed IR: any bytes give a node or an error with a text, and what was accepted prints to a
// text that reads back as the same node.
#include <stdlib.h>
#include "graph/uop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  graph *g = graph_new(NULL), *h = graph_new(NULL);
  error err = {0};
  str first = {0}, second = {0};
  uop *u = uop_parse(g, (const char *)data, size, &err);
  if (!u && !err.text[0]) die("refused without a word");
  if (u) {
    uop_print(&first, &u, 1);
    uop *v = uop_parse(h, str_c(&first), first.n, &err);
    if (!v) die("does not read back: %s\n%s", err.text, str_c(&first));
    // not compared as text: operands that differ in nothing but a buffer's number stand in the order in which they were
    // made
    if (u->hash != v->hash) die("reads back as something else:\n%s", str_c(&first));
    uop_print_expr(&second, u);
  }
  str_free(&first); str_free(&second);
  graph_free(g); graph_free(h);
  return 0;
}
