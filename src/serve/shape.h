// shape: checks JSON against the shapes of /openapi.json (shapes.h), for the keywords of JSON Schema that they use.
#ifndef WEFT_SERVE_SHAPE_H
#define WEFT_SERVE_SHAPE_H
#include "serve/fields.h"

// Ends the program if a shape has a keyword that shape_holds does not know.
void shape_check(const json_t *shape);
// -1 and a fault that names the invalid member of object v, and what it must be.
int shape_holds(const json_t *shape, const json_t *v, fault *f);
#endif
