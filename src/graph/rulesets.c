// All rule tables of graph/, for the tests that check and fuzz them. Later folders list their own tables.
#include "graph/symbolic.h"
const ruleset *const all_rulesets[] = {SYMBOLIC, NULL};
