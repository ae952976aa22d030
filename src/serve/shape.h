// shape: JSON against the shapes that /openapi.json has (shapes.h): the keywords of JSON Schema that they use, no more.
#ifndef WEFT_SERVE_SHAPE_H
#define WEFT_SERVE_SHAPE_H
#include "serve/fields.h"

// Ends the program where a shape has a keyword that shape_holds does not know.
void shape_check(const json_t *shape);
// -1 and a fault that names the member of v, an object, that does not fit and what it must be.
int shape_holds(const json_t *shape, const json_t *v, fault *f);
#endif
