// encoders: finds the mmproj file that encodes pictures and sounds for a model. If both were downloaded together, the
// store has noted the file (store.h). Otherwise names decide: a file in the model's folder with the model's name plus
// "mmproj" and any type, or the only mmproj file of the folder. The caller that opens the two checks that they fit.
#ifndef WEFT_APP_ENCODERS_H
#define WEFT_APP_ENCODERS_H
#include "base/str.h"

// ONE: the user named this model, so an encoder next to it is meant for it. MANY: the folder has many models, and an
// encoder without a model's name is used only if there is one model.
enum encoder_search { ENCODER_OF_ONE, ENCODER_OF_MANY };
// repo: as for store_is_encoder_of (store.h). path: empty if no encoder fits. other: an encoder that would fit, but is
// another repository's; empty if it does not exist. Returns how many files called *mmproj*.gguf are in the model's
// folder.
struct encoder_wanted { const char *model, *repo; enum encoder_search how; };
size_t encoder_find(const struct encoder_wanted *w, str *path, str *other);
// What is to be said of such an encoder.
void encoder_say_other(const char *other, const struct encoder_wanted *w, str *out);

// Bits per weight by the last word of a file's name: 4 for Q4_K_M, 16 for BF16; 0: unknown.
int encoder_bits(const char *path);
#endif
