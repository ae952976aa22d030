// media_encoder: an mmproj file that runs. Pixels or spectrograms go in, rows of a language model's embeddings come
// out. Invariant: rows depend on the picture alone. Look next: model/projector.h (what is computed), engine.h (who
// reads the rows).
#ifndef WEFT_MEDIA_ENCODER_H
#define WEFT_MEDIA_ENCODER_H
#include "base/account.h"
#include "device/device.h"
#include "model/projector.h"

typedef struct media_encoder media_encoder;

// Maps and checks the file. The device must stay open. Plans are made when they are first needed. 0, or -1 and why not:
// a bad file, or rows of another size than n_embd, that of the language model's embeddings (0: any).
int media_encoder_open(const char *path, device *d, bool exact, int n_embd, media_encoder **out, error *err);
void media_encoder_close(media_encoder *e);      // NULL is fine
int media_encoder_check(const media_encoder *e, error *err);        // whether its file is whole
// A plan of at most `most` bytes (0: any number) stays for what is encoded next. A larger one is charged to the account
// that pays when it is made (NULL: to none), and goes with media_encoder_rest. One that the system has no memory for is
// not made: MEDIA_LATER.
void media_encoder_keep(media_encoder *e, uint64_t most);
void media_encoder_pays(media_encoder *e, account *payer);
bool media_encoder_lasts(const media_encoder *e, enum medium k);
void media_encoder_rest(media_encoder *e);
int64_t media_encoder_rows(const media_encoder *e, enum medium k, int64_t width, int64_t height);   // of one run
// on is called while plans are made and run, on the caller's thread; what: "compiling", "encoding".
typedef void media_progress(void *ctx, const char *what, double fraction);
void media_encoder_watch(media_encoder *e, media_progress *on, void *ctx);
// NULL: it has no encoder for this
const projector_kind *media_encoder_kind(const media_encoder *e, enum medium k);
const projector_facts *media_encoder_facts(const media_encoder *e, enum medium k);
int media_encoder_n_embd(const media_encoder *e, enum medium k); // floats of a row
int64_t media_encoder_sound_rows(const media_encoder *e, int64_t frames);  // of a chunked sound, of one run
// The row that ends each line of joined tiles (projector.h): media_encoder_n_embd floats, the caller's.
int media_encoder_newline(const media_encoder *e, float **out, error *err);

// The rows of one picture (planes of width x height pixels, normalised) or of one spectrogram ({height = mel bins,
// width = frames}). Row i is that of column i % columns, line i / columns. *out: n x n_embd floats, for free(). 0, or
// enum media_failure (media.h) and why not: MEDIA_BAD is a size that it does not take.
typedef struct media_rows { int64_t n, columns, lines; float *at; } media_rows;
int media_encoder_run(media_encoder *e, enum medium k, const float *in, int width, int height, media_rows *out,
                      error *err);
// Where the time of that goes (profile.h), in `steps` runs. profile_free in any case.
struct profile;
int media_encoder_profile(media_encoder *e, enum medium k, const float *in, int width, int height, int steps,
                          struct profile *out, error *err);
#endif
