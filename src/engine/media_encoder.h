// media_encoder: runs an mmproj file. Input: pixels or spectrograms; output: rows of embeddings for a language model.
// Invariant: rows depend only on the input. Look next: model/projector.h (what is computed), engine.h (which uses the
// rows).
#ifndef WEFT_MEDIA_ENCODER_H
#define WEFT_MEDIA_ENCODER_H
#include "base/account.h"
#include "device/device.h"
#include "model/projector.h"

typedef struct media_encoder media_encoder;

// Maps and checks the file. The device must stay open. Plans are made at first use. Returns 0, or -1 and the reason: a
// bad file, or rows of a size other than n_embd, the language model's embedding size (0: any).
int media_encoder_open(const char *path, device *d, bool exact, int n_embd, media_encoder **out, error *err);
void media_encoder_close(media_encoder *e);      // NULL is fine
int media_encoder_check(const media_encoder *e, error *err);        // is its file complete?
// A plan of at most `most` bytes (0: any size) is kept for later inputs. A larger plan is charged to the account
// `payer` when it is made (NULL: not charged) and freed by media_encoder_rest. If the system has no memory for a plan:
// MEDIA_LATER.
void media_encoder_keep(media_encoder *e, uint64_t most);
void media_encoder_pays(media_encoder *e, account *payer);
bool media_encoder_lasts(const media_encoder *e, enum medium k);
void media_encoder_rest(media_encoder *e);
int64_t media_encoder_rows(const media_encoder *e, enum medium k, int64_t width, int64_t height);   // of one run
// `on` is called while plans are made and run, on the caller's thread; what: "compiling", "encoding".
typedef void media_progress(void *ctx, const char *what, double fraction);
void media_encoder_watch(media_encoder *e, media_progress *on, void *ctx);
// NULL: there is no encoder for this medium
const projector_kind *media_encoder_kind(const media_encoder *e, enum medium k);
const projector_facts *media_encoder_facts(const media_encoder *e, enum medium k);
int media_encoder_n_embd(const media_encoder *e, enum medium k); // floats of a row
int64_t media_encoder_sound_rows(const media_encoder *e, int64_t frames);  // of a chunked sound, of one run
// The row that ends each line of joined tiles (projector.h): media_encoder_n_embd floats; the caller frees it.
int media_encoder_newline(const media_encoder *e, float **out, error *err);

// The rows of one picture (planes of width x height normalised pixels) or one spectrogram (height = mel bins, width =
// frames). Row i is at column i % columns, line i / columns. *out: n x n_embd floats, for free(). Returns 0, or enum
// media_failure (media.h) and the reason: MEDIA_BAD is an unsupported size.
typedef struct media_rows { int64_t n, columns, lines; float *at; } media_rows;
int media_encoder_run(media_encoder *e, enum medium k, const float *in, int width, int height, media_rows *out,
                      error *err);
// Profiles that (profile.h) over `steps` runs. Call profile_free in either case.
struct profile;
int media_encoder_profile(media_encoder *e, enum medium k, const float *in, int width, int height, int steps,
                          struct profile *out, error *err);
#endif
