// media_args: the options for pictures and sounds, and for the mmproj file that encodes them.
#ifndef WEFT_APP_MEDIA_ARGS_H
#define WEFT_APP_MEDIA_ARGS_H
#include "app/model_args.h"
#include "base/progress.h"
#include "base/base.h"
#include "weft.h"

struct media_args {
  struct texts files;                  // pictures and sounds, in order
  const char *mmproj;                  // path of the mmproj file; NULL: none
  char *found;                         // that path, if it was found; for free()
  char *other;                         // what is to be said of an encoder of another repository, or NULL; for free()
  bool alone;                          // does not search for one
  int64_t min_tokens, max_tokens;      // of a picture; 0: as in the model's own processor
};

// Finds the mmproj file next to the model, unless one was given. 0, or, if there are pictures, the exit status after a
// message: no file was found, or more than one.
int media_args_find(struct media_args *a, const struct model_args *of);
// Encoded pictures and sounds, for a prompt.
struct media { weft_media *encoder; progress bar; VEC(weft_medium *) of; };
// Opens the encoder and encodes all pictures and sounds, with a progress bar, so *out must not move. 0, or the exit
// status after a message.
int media_args_open(const struct media_args *a, weft_model *m, struct media *out);
// Encodes one more file, given as bytes, with a bar; opens the encoder if it is not open yet.
int media_add(const struct media_args *a, weft_model *m, const char *name, const void *data, size_t n,
              struct media *out, weft_error *err);
// Opens the encoder only. -1 and an error.
int media_open_encoder(const struct media_args *a, weft_model *m, struct media *out, weft_error *err);
void media_free(struct media *m);      // before the model is closed
#endif
