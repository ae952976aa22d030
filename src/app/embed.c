// weft embed: computes embeddings of texts and prints them in llama.cpp's formats. Texts are separated by a separator,
// by default a newline. The vectors of a text's tokens are pooled as the model's file says and normalised; without
// pooling each token keeps its own vector.
#define _GNU_SOURCE
#include "app/app.h"
#include "app/media_args.h"
#include "app/model_args.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct command command = {
  "embed",
  "Makes embeddings: texts of similar meaning have near vectors.",
  "FILE [-p TEXT | -f TEXTS | --ids 1,2,3] [--image FILE] [options]",
  "Each line is a text of its own; without -p, -f and --ids lines of stdin are.\n"
  "A model that ranks texts scores each by a question: a line has the question, a tab, and the text.\n",
  COMMAND_BIT(embed),
  0};

enum format { FORMAT_TEXT, FORMAT_ARRAY, FORMAT_JSON, FORMAT_JSON_MORE, FORMAT_RAW };

// All vectors, one after the other: one for each text, or one for each token of it.
struct vectors {
  weft_model *model;
  VEC(float) all;
  size_t size, n, n_texts;
  enum weft_pooling how;
  struct media media;                  // pictures and sounds
  size_t n_media;                      // how many of them the texts have used
};

static int add_ids(struct vectors *v, const struct settings *o, const int32_t *ids, size_t n_ids) {
  weft_error err;
  v->n_texts++;
  size_t rows = v->how == WEFT_POOLING_NONE ? n_ids : 1, before = v->all.n;
  for (size_t i = 0; i < rows * v->size; i++) vec_push(&v->all, 0);
  int status = weft_embed(v->model, ids, n_ids, v->how, v->all.at + before, &err)
                 ? failed("text %zu: %s", v->n_texts, err.text)
                 : 0;
  if (status) return status;
  v->n += rows;
  for (size_t i = 0; i < rows && v->how != WEFT_POOLING_RANK; i++)
    weft_embedding_normalize(v->all.at + before + i * v->size, v->size, (int)o->embed.normalize);
  return interrupted() ? EXIT_INTERRUPTED : 0;
}

// ---- pairs of question and text, for reranking models ---------------------------------------------------------------

static int add_text_pair(struct vectors *v, const struct settings *o, const char *text, size_t n) {
  const char *separator = o->embed.pair_separator;
  const char *found = *separator ? memmem(text, n, separator, strlen(separator)) : NULL;
  weft_error err;
  int32_t *ids;
  size_t n_ids;
  if (!found)
    return failed("text %zu: this model ranks a text by a question: both are needed, with %s between them",
                  v->n_texts + 1, strcmp(separator, "\t") ? "what --cls-separator says" : "a tab (--cls-separator)");
  const char *second = found + strlen(separator);
  const weft_pair pair = {.question = text, .n_question = (size_t)(found - text), .text = second,
                          .n_text = (size_t)(text + n - second), .parse_special = o->parse_special};
  if (weft_tokenize_pair(v->model, &pair, &ids, &n_ids, &err)) return failed("%s", err.text);
  int status = add_ids(v, o, ids, n_ids);
  weft_free(ids);
  return status;
}

// ---- texts, pictures and sounds -------------------------------------------------------------------------------------

static size_t count_marks(const char *text, size_t n) {
  size_t found = 0, m = sizeof WEFT_MEDIA_MARKER - 1;
  for (const char *at = text, *end = text + n; n && (at = memmem(at, (size_t)(end - at), WEFT_MEDIA_MARKER, m));
       at += m)
    found++;
  return found;
}

// Adds a text with the next n_media pictures and sounds.
static int add_with_media(struct vectors *v, const struct settings *o, const char *text, size_t n, size_t n_media) {
  unsigned flags = WEFT_ADD_SPECIAL | (o->parse_special ? WEFT_PARSE_SPECIAL : 0u);
  weft_error err;
  int32_t *ids;
  size_t n_ids;
  if (n_media > v->media.of.n - v->n_media)
    return failed("text %zu: there are more markers (%s) than pictures and sounds", v->n_texts + 1, WEFT_MEDIA_MARKER);
  if (weft_media_tokenize(v->media.encoder, text, n, flags, v->media.of.at + v->n_media, n_media, &ids, &n_ids, &err))
    return failed("%s", err.text);
  v->n_media += n_media;
  int status = add_ids(v, o, ids, n_ids);
  weft_free(ids);
  return status;
}

static int add_one_text(struct vectors *v, const struct settings *o, const char *text, size_t n) {
  weft_error err;
  int32_t *ids;
  size_t n_ids, n_media = v->media.of.n ? count_marks(text, n) : 0;
  if (v->how == WEFT_POOLING_RANK) return add_text_pair(v, o, text, n);
  if (n_media) return add_with_media(v, o, text, n, n_media);
  if (weft_tokenize(weft_model_vocab(v->model), text, n, WEFT_ADD_SPECIAL | (o->parse_special ? WEFT_PARSE_SPECIAL : 0),
                    &ids, &n_ids, &err))
    return failed("%s", err.text);
  int status = add_ids(v, o, ids, n_ids);
  weft_free(ids);
  return status;
}

static int add_texts(struct vectors *v, const struct settings *o, const char *text, size_t n) {
  const char *separator = o->embed.separator;
  size_t n_sep = strlen(separator);
  int status = 0;
  for (const char *end = text + n; !status;) {
    const char *next = n_sep ? memmem(text, (size_t)(end - text), separator, n_sep) : NULL;
    status = add_one_text(v, o, text, (size_t)((next ? next : end) - text));
    if (!next) break;
    text = next + n_sep;
  }
  return status;
}

// If no text has a marker, each picture or sound is a text of its own. text NULL: no texts.
static int add_all(struct vectors *v, const struct settings *o, const char *text, size_t n) {
  bool marked = text && count_marks(text, n);
  int status = 0;
  if (v->media.of.n && v->how == WEFT_POOLING_RANK)
    return failed("this model ranks texts, and makes no vectors of pictures and sounds");
  for (size_t i = 0; !marked && !status && i < v->media.of.n; i++) status = add_with_media(v, o, "", 0, 1);
  if (!status && o->ids.n) status = add_ids(v, o, o->ids.at, o->ids.n);
  else if (!status && text) status = add_texts(v, o, text, n);
  if (!status && v->n_media < v->media.of.n)
    return failed("the texts have %zu markers (%s) for %zu pictures and sounds", v->n_media, WEFT_MEDIA_MARKER,
                  v->media.of.n);
  return status;
}

// ---- output ---------------------------------------------------------------------------------------------------------

static const float *vector_at(const struct vectors *v, size_t i) { return v->all.at + i * v->size; }

static double cosine(const struct vectors *v, size_t i, size_t j) {
  const float *a = vector_at(v, i), *b = vector_at(v, j);
  double ab = 0, aa = 0, bb = 0;
  for (size_t k = 0; k < v->size; k++) ab += (double)a[k] * b[k], aa += (double)a[k] * a[k], bb += (double)b[k] * b[k];
  if (aa == 0 || bb == 0) return aa == 0 && bb == 0;
  return ab / sqrt(aa * bb);
}

static void show_numbers(struct out *to, const struct vectors *v, size_t i, const char *between) {
  for (size_t k = 0; k < v->size; k++) out_addf(to, "%s%.9g", k ? between : "", (double)vector_at(v, i)[k]);
}

static void show_similarities(struct out *to, const struct vectors *v) {
  out_addf(to, ",\n  \"cosineSimilarity\": [");
  for (size_t i = 0; i < v->n; i++) {
    out_addf(to, "%s[", i ? ",\n    " : "\n    ");
    for (size_t j = 0; j < v->n; j++) out_addf(to, "%s%.6f", j ? ", " : "", cosine(v, i, j));
    out_addf(to, "]");
  }
  out_addf(to, "\n  ]");
}

static void show_vectors_json(struct out *to, const struct vectors *v, bool more) {
  out_addf(to, "{\n  \"object\": \"list\",\n  \"data\": [");
  for (size_t i = 0; i < v->n; i++) {
    out_addf(to, "%s\n    {\"object\": \"embedding\", \"index\": %zu, \"embedding\": [", i ? "," : "", i);
    show_numbers(to, v, i, ", ");
    out_addf(to, "]}");
  }
  out_addf(to, "\n  ]");
  if (more && v->n > 1) show_similarities(to, v);
  out_addf(to, "\n}\n");
}

static void show_array(struct out *to, const struct vectors *v) {
  out_addf(to, "[");
  for (size_t i = 0; i < v->n; i++) {
    out_addf(to, "%s[", i ? ",\n" : "");
    show_numbers(to, v, i, ",");
    out_addf(to, "]");
  }
  out_addf(to, "]\n");
}

static void show_raw(struct out *to, const struct vectors *v) {
  for (size_t i = 0; i < v->n; i++) {
    show_numbers(to, v, i, " ");
    out_addf(to, "\n");
  }
}

// For people: the first numbers of each vector, and the similarities of several texts.
static void show_text(struct out *to, const struct vectors *v, bool whole_numbers) {
  enum { SHOWN = 16 };
  size_t n = v->n > 1 && v->size > SHOWN ? SHOWN : v->size;
  if (v->how == WEFT_POOLING_RANK) {
    for (size_t i = 0; i < v->n; i++) out_addf(to, "rerank score %zu: %8.3f\n", i, (double)vector_at(v, i)[0]);
    return;
  }
  for (size_t i = 0; i < v->n; i++) {
    out_addf(to, "embedding %zu: ", i);
    for (size_t k = 0; k < n; k++) out_addf(to, whole_numbers ? "%6.0f " : "%9.6f ", (double)vector_at(v, i)[k]);
    out_addf(to, n < v->size ? "...\n" : "\n");
  }
  if (v->n < 2 || v->how == WEFT_POOLING_NONE) return;
  out_addf(to, "\ncosine similarity matrix:\n\n");
  for (size_t i = 0; i < v->n; i++) {
    for (size_t j = 0; j < v->n; j++) out_addf(to, "%6.2f ", cosine(v, i, j));
    out_addf(to, "\n");
  }
}

static void show_vectors(struct out *to, const struct vectors *v, const struct settings *o) {
  switch ((enum format)o->embed.format) {
  case FORMAT_TEXT: show_text(to, v, !o->embed.normalize); break;
  case FORMAT_ARRAY: show_array(to, v); break;
  case FORMAT_JSON: case FORMAT_JSON_MORE: show_vectors_json(to, v, o->embed.format == FORMAT_JSON_MORE); break;
  case FORMAT_RAW: show_raw(to, v); break;
  }
}

// ---- the command ----------------------------------------------------------------------------------------------------

static int choose_pooling(struct vectors *v, const struct settings *o) {
  weft_error err;
  v->how = (enum weft_pooling)(o->embed.pooling - 1);          // the table has the choices in the order of weft.h
  if (v->how == WEFT_POOLING_MODEL && weft_model_pooling(v->model, &v->how, &err)) return failed("%s", err.text);
  if (v->how != WEFT_POOLING_MODEL) return 0;
  v->how = WEFT_POOLING_NONE;
  if (!o->quiet)
    fprintf(stderr, "weft: the file does not say how a vector is made of a whole text: here is one for each token "
                    "(--pooling mean or last makes one)\n");
  return 0;
}

static int embed(const struct settings *o, const char *text, size_t n) {
  struct vectors v = {.n = 0};
  struct out to = {0};
  progress bar = {0};
  int status = model_args_open(&o->model, &bar, &v.model);
  if (!status) status = choose_pooling(&v, o);
  if (!status) status = media_args_open(&o->media, v.model, &v.media);
  if (!status) {
    interrupt_catch();
    v.size = (size_t)weft_model_embedding_size(v.model);
    status = add_all(&v, o, text, n);
    progress_end(&bar);
  }
  if (!status) show_vectors(&to, &v, o);
  status = out_end(&to, status);
  vec_free(&v.all);
  media_free(&v.media);
  weft_model_close(v.model);
  return status;
}

static int embed_all(struct settings *o) {
  error err = {0};
  char *text = NULL;
  size_t n = 0;
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  if ((o->prompt != NULL) + (o->file != NULL) + (o->ids.n > 0) > 1) return usage_error("use one of -p, -f and --ids");
  int found = o->media.files.n ? media_args_find(&o->media, &o->model) : 0;
  if (found) return found;
  keep_to_evaluating(o, NULL);
  bool alone = o->media.files.n && !o->file;           // pictures and sounds without texts
  if (!o->prompt && !o->ids.n && !alone && read_file(o->file ? o->file : "-", READ_CORPUS, &text, &n, &err))
    return failed("%s", err.text);
  if (o->prompt) { text = xstrdup(o->prompt); n = strlen(text); }
  else if (text && n && text[n - 1] == '\n') n--;
  if (o->escapes && text) n = unescape(text, n);
  int status = embed(o, text, n);
  free(text);
  return status;
}

int embed_command(int argc, char **argv) { return settings_run(&command, argc, argv, embed_all); }
