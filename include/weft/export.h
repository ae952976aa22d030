/* weft/export.h: programs that carry a model and its kernels.
 *
 * An exported program is one file: a static program of Weft, a GGUF file, and the kernels of that model for some levels
 * of x86-64.  weft_file_open and weft_model_open take such a file as the GGUF file that is in it. */
#ifndef WEFT_API_EXPORT_H
#define WEFT_API_EXPORT_H
#include "base.h"

WEFT_BEGIN

/* Compiles the plans that run, chat, serve and embed need of a model with their default options, for a CPU level
 * ("x86-64-v3"), which this processor need not support. *kernels is for weft_free. Call it once per level, in a process
 * of its own: from the first call on kernels are compiled but not run, and the kernel cache is not used. */
int weft_export_kernels(const char *model, const char *cpu, void **kernels, size_t *n, weft_error *err);

/* Whether weft_export_write accepts them: `program` must be static and built from the same sources as this library, and
 * the model must be one file. */
int weft_export_check(const char *program, const char *model, weft_error *err);

/* Writes `out`: the static program, the model, and the kernels of all levels one after the other. */
int weft_export_write(const char *program, const char *model, const void *kernels, size_t n, const char *out,
                      weft_error *err);

/* Writes a model as C to the file `out`, for any C99 compiler and any little-endian processor: the kernels and steps of
 * one token, and a main that takes token ids and writes the most likely next ones. The program maps the model's file,
 * which must be one GGUF file. context: the most positions, 0: as many as the model was trained for. Call it in a
 * process of its own: see weft_export_kernels. */
int weft_export_c(const char *model, int context, const char *out, weft_error *err);

/* Call it at the start of a program: if the file `path` is an exported program, all kernels come from it from now on,
 * for the highest level that this processor supports, and none is compiled. 0; 1: not an exported program; -1: this
 * processor supports no level, or not the one that WEFT_CPU names. */
int weft_exported_use(const char *path, weft_error *err);

WEFT_END
#endif
