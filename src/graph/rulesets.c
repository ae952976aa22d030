// All rule tables of graph/, for the tests that check and fuzz them. Tables of later folders are listed by those
// folders.
#include "graph/symbolic.h"
const ruleset *const all_rulesets[] = {SYMBOLIC, NULL};
