// media_args: the options that name pictures and sounds, and the file that encodes them.
#ifndef WEFT_APP_MEDIA_ARGS_H
#define WEFT_APP_MEDIA_ARGS_H
#include "app/args.h"
#include "base/progress.h"
#include "base/base.h"
#include "weft.h"

struct media_args {
  struct texts files;                  // pictures and sounds, in order
  const char *mmproj;                  // NULL: none
  char *found;                         // the same, if it was found
  bool alone;                          // none is looked for
  int64_t min_tokens, max_tokens;      // of a picture; 0: as the model's own processor
};

// Finds the mmproj file beside the model, unless one was named. 0, or, where there are pictures, the exit status after
// a message: there is none, or more than one.
int media_args_find(struct media_args *a, const char *model);
// What was encoded, for a prompt.
struct media { weft_media *encoder; progress bar; VEC(weft_medium *) of; };
// Opens the file and encodes all pictures and sounds; a bar shows how far it is, so *out must not move. 0, or
// the exit status after a message.
int media_args_open(const struct media_args *a, weft_model *m, struct media *out);
// Encodes one more, of the bytes of a file, with a bar; opens the encoder if it is not there yet.
int media_add(const struct media_args *a, weft_model *m, const char *name, const void *data, size_t n,
              struct media *out, weft_error *err);
// Opens the encoder alone. -1 and why not.
int media_open_encoder(const struct media_args *a, weft_model *m, struct media *out, weft_error *err);
void media_free(struct media *m);      // before the model is closed
#endif
