/* weft/export.h: programs that carry a model and its kernels.
 *
 * An exported program is one file: a static program of Weft, a GGUF file, and the kernels of that model for some levels
 * of x86-64.  weft_file_open and weft_model_open take such a file as the GGUF file that is in it. */
#ifndef WEFT_API_EXPORT_H
#define WEFT_API_EXPORT_H
#include "base.h"

WEFT_BEGIN

/* Compiles the plans that run, chat, serve and embed need of a model with their default options for a
 * level ("x86-64-v3"), which this processor need not have.  *kernels is for weft_free.  Once for each level, in a
 * process of its own: from the first call on kernels are compiled and not run, and the kernel cache is not used. */
int weft_export_kernels(const char *model, const char *cpu, void **kernels, size_t *n, weft_error *err);

/* Whether weft_export_write takes them: `program` is static and made of the sources that this library was made of, and
 * the model is one file. */
int weft_export_check(const char *program, const char *model, weft_error *err);

/* Writes `out`: the static program, the model, the kernels of all levels one after the other. */
int weft_export_write(const char *program, const char *model, const void *kernels, size_t n, const char *out,
                      weft_error *err);

/* Writes a model as C to the file `out`, for any compiler of C99 and any little-endian processor: the kernels and the
 * steps of one token, and a main that takes ids of tokens and writes the likeliest next ones.  The program maps the
 * model's file itself, which must be one GGUF file.  context: positions at most, 0: as many as the model was trained
 * for.  In a process of its own: see weft_export_kernels. */
int weft_export_c(const char *model, int context, const char *out, weft_error *err);

/* For a program at its start: if the file `path` is an exported program, all kernels come from it from now on, for the
 * highest level that this processor has, and none is compiled.  0; 1: it is not an exported program; -1: no level suits
 * this processor, or not the one that WEFT_CPU names. */
int weft_exported_use(const char *path, weft_error *err);

WEFT_END
#endif
