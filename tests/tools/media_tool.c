// media_tool: what src/media/ makes of files, for tests. Reads commands from stdin, a line each, and answers each with
// a line and the bytes that it announces:
//   image FILE                    ok WIDTH HEIGHT BYTES, then RGB
//   sound FILE                    ok RATE N BYTES, then floats
//   resample FILTER W H FILE      ok WIDTH HEIGHT BYTES, then RGB (FILTER: its number)
//   prepare RULE KEY=VALUE... : FILE    ok N COLUMNS ROWS W:H ... BYTES, then the planes of all images, one after the
//   other
//   rate FILE                     ok RATE N BYTES: the sound at 16 kHz
//   asks FILE                     ok BYTES WIDTH 0: the bytes for which a picture's decoder asks, and its width
//   mel BANDS FRAMES [mirrored] FILE    ok BANDS FRAMES BYTES, then floats
// or: error TEXT. `confine` takes from the tool what a server gives up before it listens. `limit
// pixels|side|file_bytes|sound_s|cpu_s N` sets a limit for what follows. These two are not answered.
#include <inttypes.h>
#include <string.h>
#include "base/base.h"
#include "base/confine.h"
#include "device/device.h"
#include "media/decode.h"
#include "media/mel.h"
#include "media/preprocess.h"

static media_limits limits;

static void answer_bytes(const char *head, const void *at, size_t n) {
  printf("ok %s %zu\n", head, n);
  fwrite(at, 1, n, stdout);
}

static int load_image(const char *path, media_image *out, error *err) {
  uint8_t *data;
  size_t n;
  if (media_read_file(path, &limits, &data, &n, err)) return -1;
  int failed = media_decode_image(data, n, path, &limits, out, err);
  free(data);
  return failed;
}

static int load_sound(const char *path, media_sound *out, error *err) {
  uint8_t *data;
  size_t n;
  if (media_read_file(path, &limits, &data, &n, err)) return -1;
  int failed = media_decode_sound(data, n, path, &limits, out, err);
  free(data);
  return failed;
}

static void answer_image(media_image *i) {
  char head[64];
  snprintf(head, sizeof head, "%" PRId64 " %" PRId64, i->width, i->height);
  answer_bytes(head, i->rgb, (size_t)(i->width * i->height * 3));
  media_image_free(i);
}

static void answer_sound(media_sound *s) {
  char head[64];
  snprintf(head, sizeof head, "%" PRId64 " %" PRId64, s->rate, s->n);
  answer_bytes(head, s->samples, (size_t)s->n * sizeof(float));
  media_sound_free(s);
}

static int set_key(preprocess_rule *r, const char *word, int64_t tokens[2], error *err) {
  const struct { const char *name; int64_t *at; } keys[] = {
    {"side", &r->side}, {"longest", &r->longest}, {"patch", &r->patch}, {"merge", &r->merge},
    {"min_pixels", &r->min_pixels}, {"max_pixels", &r->max_pixels}, {"min_tiles", &r->min_tiles},
    {"max_tiles", &r->max_tiles}, {"min_tokens", &tokens[0]}, {"max_tokens", &tokens[1]}};
  const char *value = strchr(word, '=');
  for (size_t i = 0; value && i < COUNT(keys); i++)
    if (strlen(keys[i].name) == (size_t)(value - word) && !strncmp(word, keys[i].name, (size_t)(value - word))) {
      *keys[i].at = strtoll(value + 1, NULL, 10);
      return 0;
    }
  return error_set(err, "no key '%s'", word);
}

static void answer_prepared(const prepared_image *p) {
  printf("ok %" PRId64 " %" PRId64 " %" PRId64, p->n, p->columns, p->rows);
  size_t n = 0;
  for (int64_t i = 0; i < p->n; i++) {
    printf(" %" PRId64 ":%" PRId64, p->at[i].width, p->at[i].height);
    n += (size_t)(p->at[i].width * p->at[i].height * 3) * sizeof(float);
  }
  printf(" %zu\n", n);
  for (int64_t i = 0; i < p->n; i++)
    fwrite(p->at[i].at, sizeof(float), (size_t)(p->at[i].width * p->at[i].height * 3), stdout);
}

static void check_sizes(const media_image *image, const preprocess_rule *r, const prepared_image *p) {
  prepared_image s;
  if (preprocess_sizes(image->width, image->height, r, &s, NULL) || s.n != p->n || s.columns != p->columns)
    die("the sizes are not those of the images");
  for (int64_t i = 0; i < s.n; i++)
    if (s.at[i].width != p->at[i].width || s.at[i].height != p->at[i].height) die("image %d has another size", (int)i);
  prepared_image_free(&s);
}

static int prepare(char *words, error *err) {
  char *path = strstr(words, " : ");
  const preprocess_rule *found;
  int64_t tokens[2] = {0};
  if (!path) return error_set(err, "no ':'");
  *path = 0;
  char *word = strtok(words, " ");
  if (!word || !(found = preprocess_rule_by_name(word))) return error_set(err, "no rule '%s'", word ? word : "");
  preprocess_rule r = *found;
  while ((word = strtok(NULL, " "))) if (set_key(&r, word, tokens, err)) return -1;
  if (preprocess_limit_tokens(&r, tokens[0], tokens[1], err)) return -1;
  media_image image;
  prepared_image p;
  if (load_image(path + 3, &image, err)) return -1;
  int failed = preprocess_image(&image, &r, &p, err);
  if (!failed) {
    check_sizes(&image, &r, &p);
    answer_prepared(&p);
    prepared_image_free(&p);
  }
  media_image_free(&image);
  return failed;
}

static int mel(const char *rest, error *err) {
  long long bands, frames;
  int at;
  media_sound s, r;
  device *d;
  mel_plan *m;
  float *out;
  char head[64];
  if (sscanf(rest, "%lld %lld %n", &bands, &frames, &at) < 2) return error_set(err, "mel: two numbers");
  bool mirrored = !strncmp(rest + at, "mirrored ", 9);
  if (mirrored) at += 9;
  bool gemma = !strncmp(rest + at, "gemma ", 6);
  if (gemma) at += 6;
  if (load_sound(rest + at, &s, err)) return -1;
  if (sound_at_mel_rate(&s, &r, err) || device_open(1, 0, &d, err)) return -1;
  int64_t all = mirrored ? r.n : frames * MEL_HOP;
  int failed = mel_open(d, gemma ? MEL_GEMMA : MEL_WHISPER, bands, frames, &m, err) ||
               mel_run(m, r.samples, min_i64(r.n, all), all, &out, err);
  snprintf(head, sizeof head, "%lld %lld", bands, frames);
  if (!failed) answer_bytes(head, out, (size_t)(bands * frames) * sizeof *out);
  if (!failed) free(out);
  mel_close(m);
  device_close(d);
  media_sound_free(&s);
  media_sound_free(&r);
  return failed;
}

static int64_t n_asked;
static bool count_asked(int64_t more) {
  n_asked += more;
  return true;
}

// Decodes in this process.
static int answer_asks(const char *path, error *err) {
  uint8_t *data;
  size_t n;
  char head[64];
  media_image image;
  if (media_read_file(path, &media_default_limits, &data, &n, err)) return -1;
  n_asked = 0;
  decode_ask = count_asked;
  int failed = decode_picture(data, n, &media_default_limits, &image, err);
  decode_ask = NULL;
  free(data);
  if (failed) return -1;
  snprintf(head, sizeof head, "%" PRId64 " %" PRId64, n_asked, image.width);
  answer_bytes(head, "", 0);
  media_image_free(&image);
  return 0;
}

static int command(char *line, error *err) {
  char *rest = strchr(line, ' ');
  media_image image, sized;
  media_sound sound, mono;
  if (!rest) return error_set(err, "no word");
  *rest++ = 0;
  if (!strcmp(line, "image")) {
    if (load_image(rest, &image, err)) return -1;
    answer_image(&image);
  } else if (!strcmp(line, "sound")) {
    if (load_sound(rest, &sound, err)) return -1;
    answer_sound(&sound);
  } else if (!strcmp(line, "rate")) {
    if (load_sound(rest, &sound, err) || sound_at_mel_rate(&sound, &mono, err)) return -1;
    media_sound_free(&sound);
    answer_sound(&mono);
  } else if (!strcmp(line, "resample")) {
    int filter, at;
    long long w, h;
    if (sscanf(rest, "%d %lld %lld %n", &filter, &w, &h, &at) < 3) return error_set(err, "resample: three numbers");
    if (load_image(rest + at, &image, err) || resample(&image, w, h, (enum resample_filter)filter, &sized, err))
      return -1;
    media_image_free(&image);
    answer_image(&sized);
  } else if (!strcmp(line, "prepare")) return prepare(rest, err);
  else if (!strcmp(line, "asks")) return answer_asks(rest, err);
  else if (!strcmp(line, "mel")) return mel(rest, err);
  else return error_set(err, "no command '%s'", line);
  return 0;
}

static bool set_limit(const char *line) {
  char key[32];
  long long value;
  const struct { const char *name; int64_t *at; } keys[] = {{"pixels", &limits.pixels}, {"side", &limits.side},
    {"file_bytes", &limits.file_bytes}, {"sound_s", &limits.sound_s}, {"cpu_s", &limits.cpu_s}};
  if (sscanf(line, "limit %31s %lld", key, &value) != 2) return false;
  for (size_t i = 0; i < COUNT(keys); i++) if (!strcmp(keys[i].name, key)) *keys[i].at = value;
  return true;
}

int main(void) {
  static char line[1 << 14];
  while (fgets(line, sizeof line, stdin)) {
    error err = {0};
    line[strcspn(line, "\n")] = 0;
    if (set_limit(line)) continue;
    if (!strcmp(line, "confine")) {
      if (!confine(CONFINE_SERVING, false)) return 1;
      continue;
    }
    if (command(line, &err)) printf("error %s\n", err.text);
    fflush(stdout);
  }
  return 0;
}
