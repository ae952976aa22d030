// metal_doubles: arithmetic on doubles as their 64 bits, in the words of the Metal Shading Language, which has none.
//
// Programs compute in F64 where tables of rotary angles are made, once for each token: angles of a deep context are
// large, and their sines are small differences. Pairs of floats would be faster and give 48 bits of the 53, but codegen
// takes doubles apart by their bits (exponents in EXP2, LOG2 and SIN), their range is that of floats, and memory holds
// doubles. So here they are done as IEEE 754 has them, to the last bit, denormal numbers included, in some fifty
// integer instructions each; tests/render/test_metal_doubles.c compares all of it with this machine's doubles.
#ifndef WEFT_RENDER_METAL_DOUBLES_H
#define WEFT_RENDER_METAL_DOUBLES_H

// Needs uint, ulong, clz and as_type; defines f64_add and so on.
extern const char metal_doubles[];
#endif
