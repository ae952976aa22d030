// Images and sounds: the format of a file, and the child process that decodes it.
//
// Each decoding has its own child, forked from this process. The child has the file's bytes in its memory, loads the
// library of their format, gives up files, network, programs and processes (confine.h), decodes, and writes a header
// and the samples to a socket. The system limits its memory and processor time. The parent checks the header against
// the limits before it allocates memory, and ends a child that is silent for too long.
#define _GNU_SOURCE
#include "media/media.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/account.h"
#include "base/child.h"
#include "base/confine.h"
#include "base/message.h"
#include "media/decode.h"

const media_limits media_default_limits = {
  .file_bytes = 256 << 20, .pixels = 100 * 1000 * 1000, .side = 1 << 16, .sound_s = 3600, .cpu_s = 30};

static media_limits with_defaults(const media_limits *given) {
  media_limits l = given ? *given : media_default_limits;
  const media_limits *d = &media_default_limits;
  if (!l.file_bytes) l.file_bytes = d->file_bytes;
  if (!l.pixels) l.pixels = d->pixels;
  if (!l.side) l.side = d->side;
  if (!l.sound_s) l.sound_s = d->sound_s;
  if (!l.cpu_s) l.cpu_s = d->cpu_s;
  return l;
}

// ------------------------------------------------------------------------------------------------------- what it is

// The bytes at an offset, and a second pair if there is one. The kind is UNKNOWN for formats that are not decoded here.
static const struct signature {
  const char *format, *at;
  uint8_t n, second_at, second_n;
  const char *second;
  enum media_kind kind;
} signatures[] = {
  {"PNG", "\x89PNG\r\n\x1a\n", 8, 0, 0, NULL, MEDIA_IMAGE},
  {"JPEG", "\xff\xd8\xff", 3, 0, 0, NULL, MEDIA_IMAGE},
  {"WebP", "RIFF", 4, 8, 4, "WEBP", MEDIA_IMAGE},
  {"WAV", "RIFF", 4, 8, 4, "WAVE", MEDIA_SOUND},
  {"WAV", "RIFX", 4, 8, 4, "WAVE", MEDIA_SOUND},
  {"WAV", "RF64", 4, 8, 4, "WAVE", MEDIA_SOUND},
  {"FLAC", "fLaC", 4, 0, 0, NULL, MEDIA_SOUND},
  {"OGG", "OggS", 4, 0, 0, NULL, MEDIA_SOUND},
  {"AIFF", "FORM", 4, 8, 3, "AIF", MEDIA_SOUND},
  {"MP3", "ID3", 3, 0, 0, NULL, MEDIA_SOUND},
  {"GIF", "GIF8", 4, 0, 0, NULL, MEDIA_UNKNOWN},
  {"BMP", "BM", 2, 6, 4, "\0\0\0\0", MEDIA_UNKNOWN},
  {"TIFF", "II*\0", 4, 0, 0, NULL, MEDIA_UNKNOWN},
  {"TIFF", "MM\0*", 4, 0, 0, NULL, MEDIA_UNKNOWN},
  {"AVIF", "\0\0\0", 3, 4, 8, "ftypavif", MEDIA_UNKNOWN},
  {"HEIC", "\0\0\0", 3, 4, 7, "ftyphei", MEDIA_UNKNOWN},
  {"HEIC", "\0\0\0", 3, 4, 8, "ftypmif1", MEDIA_UNKNOWN},
  {"MPEG-4 (AAC)", "\0\0\0", 3, 4, 7, "ftypM4A", MEDIA_UNKNOWN},
  {"MPEG-4", "\0\0\0", 3, 4, 4, "ftyp", MEDIA_UNKNOWN},
  {"WebM or Matroska", "\x1a\x45\xdf\xa3", 4, 0, 0, NULL, MEDIA_UNKNOWN},
  {"PDF", "%PDF-", 5, 0, 0, NULL, MEDIA_UNKNOWN},
  {"SVG", "<svg", 4, 0, 0, NULL, MEDIA_UNKNOWN},
};

// Eleven bits that begin a frame, and a valid layer and rate.
static bool is_mp3(const uint8_t *p, size_t n) {
  return n >= 4 && p[0] == 0xff && (p[1] & 0xe6) == 0xe2 && (p[1] & 0x18) != 0x08 && (p[2] & 0xf0) != 0xf0 &&
         (p[2] & 0x0c) != 0x0c;
}

enum media_kind media_kind_of(const void *data, size_t n, const char **format) {
  const uint8_t *p = data;
  if (format) *format = NULL;
  for (const struct signature *s = signatures; s < signatures + COUNT(signatures); s++) {
    if (n < s->n || memcmp(p, s->at, s->n)) continue;
    if (s->second && (n < (size_t)s->second_at + s->second_n || memcmp(p + s->second_at, s->second, s->second_n)))
      continue;
    if (format) *format = s->format;
    return s->kind;
  }
  if (!is_mp3(p, n)) return MEDIA_UNKNOWN;
  if (format) *format = "MP3";
  return MEDIA_SOUND;
}

int media_read_file(const char *path, const media_limits *limits, uint8_t **data, size_t *n, error *err) {
  media_limits l = with_defaults(limits);
  struct stat s;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), failed = 0;  // opening a pipe without a writer must not block
  *data = NULL;
  *n = 0;
  if (fd < 0 || fstat(fd, &s)) failed = error_set(err, "%s: %s", path, strerror(errno));
  else if (!S_ISREG(s.st_mode)) failed = error_set(err, "%s: not a regular file", path);
  else if (s.st_size > l.file_bytes)
    failed = error_set(err, "%s: the file has %lld bytes; %lld are allowed", path, (long long)s.st_size,
                       (long long)l.file_bytes);
  if (!failed) {
    *data = xmalloc((size_t)s.st_size + 1);
    for (ssize_t got; *n < (size_t)s.st_size && (got = read(fd, *data + *n, (size_t)s.st_size - *n)) > 0;)
      *n += (size_t)got;
    if (*n < (size_t)s.st_size) failed = error_set(err, "%s: cannot be read to its end", path);
  }
  if (fd >= 0) close(fd);
  if (failed) {
    free(*data);
    *data = NULL;
  }
  return failed;
}

void media_image_free(media_image *image) {
  free(image->rgb);
  *image = (media_image){0};
}

void media_sound_free(media_sound *sound) {
  free(sound->samples);
  *sound = (media_sound){0};
}

// --------------------------------------------------------------------------------------------------------- the child

// The request to the child, and its reply: then `bytes` bytes of samples or of an error's text. Before that the child
// asks for memory, `bytes` more of it, and waits for a byte: if there is not enough, its socket is closed.
typedef struct decode_job {
  const uint8_t *data;
  size_t n;
  bool sound;
  media_limits limits;
  int fd;                    // the child's socket
} decode_job;
enum said { SAID_DONE, SAID_BAD, SAID_UNABLE, SAID_ASKS };
struct decode_reply { uint32_t magic, said; int64_t a, b; uint64_t bytes; };     // width and height; rate and number
enum { MAGIC = 0x4d544657 };

static uint64_t image_bytes(const media_image *i) { return (uint64_t)i->width * (uint64_t)i->height * 3; }
static uint64_t sound_bytes_of(const media_sound *s) { return (uint64_t)s->n * sizeof *s->samples; }

// The decoder's worst case: a progressive JPEG of four inks keeps 8 bytes of coefficients per pixel besides its output.
static int64_t memory_limit(const decode_job *j) {
  const media_limits *l = &j->limits;
  int64_t samples = j->sound ? l->sound_s * 48000 * (int64_t)sizeof(float) * 3 : l->pixels * 16;
  return samples + (64 << 20);
}

static void limit_child(const decode_job *j) {
  const struct rlimit cpu = {(rlim_t)j->limits.cpu_s, (rlim_t)j->limits.cpu_s + 1};
  setrlimit(RLIMIT_CPU, &cpu);
  child_limit_memory(memory_limit(j));
  confine(CONFINE_COMPUTING, false);
}

static int asked_at;         // the child's socket

static bool ask_parent(int64_t bytes) {
  struct decode_reply r = {.magic = MAGIC, .said = SAID_ASKS, .bytes = (uint64_t)bytes};
  char granted;
  if (!message_send(asked_at, &(struct iovec){&r, sizeof r}, 1) || !message_receive(asked_at, &granted, 1)) _exit(3);
  return true;
}

static void be_the_decoder(void *ctx) {
  const decode_job *j = ctx;
  media_image image = {0};
  media_sound sound = {0};
  error err = {0};
  int fd = j->fd;
  child_begin("weft-decoder", &fd, 1);
  int failed = decode_load(j->data, j->n, &err);
  limit_child(j);
  asked_at = fd;
  decode_ask = ask_parent;
  if (!failed)
    failed = j->sound ? decode_sound(j->data, j->n, &j->limits, &sound, &err)
                      : decode_picture(j->data, j->n, &j->limits, &image, &err);
  struct decode_reply r = {.magic = MAGIC};
  r.said = !failed ? SAID_DONE : failed == MEDIA_UNABLE ? SAID_UNABLE : SAID_BAD;
  r.a = j->sound ? sound.rate : image.width;
  r.b = j->sound ? sound.n : image.height;
  r.bytes = failed ? strlen(err.text) : j->sound ? sound_bytes_of(&sound) : image_bytes(&image);
  void *what = failed ? (void *)err.text : j->sound ? (void *)sound.samples : image.rgb;
  struct iovec parts[] = {{&r, sizeof r}, {what, r.bytes}};
  _exit(message_send(fd, parts, COUNT(parts)) ? 0 : 3);
}

// -------------------------------------------------------------------------------------------------------- the parent

// The seconds that the parent waits; a child that hangs uses no processor time, so the limit on that does not end it.
static double patience(const decode_job *j) { return (double)j->limits.cpu_s * 2 + 10; }

static int no_process(int why, error *err) {
  error_set(err, "the process that decodes cannot be made: %s", strerror(why));
  return MEDIA_LATER;
}

static int make_decoder(decode_job *j, int *fd, child_process **process, error *err) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return no_process(errno, err);
  j->fd = pair[1];
  int failed = child_make(be_the_decoder, j, process), why = errno;
  close(pair[1]);
  *fd = pair[0];
  if (!failed) return 0;
  close(pair[0]);
  return no_process(why, err);
}

// Exactly n bytes by then; false: the child has ended, or is silent.
static bool receive_by(int fd, void *to, size_t n, double then) {
  for (ssize_t got; n; n -= (size_t)got, to = (char *)to + got) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double wait = then - now_s();
    if (wait <= 0) return false;
    if (poll(&p, 1, (int)(wait * 1000) + 1) <= 0) { got = 0; continue; }
    got = recv(fd, to, n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) got = 0;
    else if (got <= 0) return false;
  }
  return true;
}

// Checks the child's reply; anything else is an error of the child.
static bool reply_is_good(const struct decode_reply *r, const decode_job *j) {
  const media_limits *l = &j->limits;
  if (r->magic != MAGIC) return false;
  if (r->said == SAID_ASKS) return r->bytes <= (uint64_t)memory_limit(j);
  if (r->said > SAID_ASKS) return false;
  if (r->said) return r->bytes > 0 && r->bytes < sizeof((error){0}.text);
  if (r->a < 1 || r->b < 1 || r->bytes > (uint64_t)memory_limit(j)) return false;
  if (j->sound) return r->a <= 1 << 20 && r->b <= l->sound_s * r->a && r->bytes == (uint64_t)r->b * sizeof(float);
  return r->a <= l->side && r->b <= l->side && r->a * r->b <= l->pixels && r->bytes == (uint64_t)(r->a * r->b * 3);
}

static bool samples_are_numbers(const float *at, int64_t n) {
  for (int64_t i = 0; i < n; i++) if (!isfinite(at[i])) return false;
  return true;
}

// The outcome of a job: whether the child has answered (if not, it ends by itself), charged bytes, samples.
typedef struct outcome { bool answered; size_t charged; struct decode_reply r; void *what; } outcome;

static int charge(outcome *o, uint64_t bytes, error *why) {
  if (account_take_here(bytes, why)) return -1;
  o->charged += bytes;
  return 0;
}

// Receives until a message does not ask for memory. 0: it is in o->r; else enum media_failure, and the reason unless
// the child is silent.
static int grant_memory(int fd, const decode_job *j, double then, outcome *o, error *why) {
  for (;;) {
    if (!receive_by(fd, &o->r, sizeof o->r, then) || !reply_is_good(&o->r, j)) return MEDIA_BAD;
    if (o->r.said != SAID_ASKS) break;
    o->answered = o->charged + o->r.bytes > (uint64_t)memory_limit(j) || charge(o, o->r.bytes, why);
    if (o->answered) return why->text[0] ? MEDIA_BAD : error_set(why, "decoding needs too much memory");
    if (!message_send_now(fd, 1)) return MEDIA_BAD;          // the child waits for each answer, so there is room for it
  }
  o->answered = !o->r.said && charge(o, o->r.bytes, why);
  if (o->answered) return MEDIA_BAD;
  o->what = malloc(o->r.bytes);
  if (o->what) return 0;
  o->answered = true;
  error_set(why, "there is no memory for %llu bytes of samples", (unsigned long long)o->r.bytes);
  return MEDIA_LATER;
}

// o->what: malloc'ed, of r.bytes bytes. Error texts are made printable: the child may have been taken over by its
// input.
static int receive_reply(int fd, const decode_job *j, outcome *o, error *why) {
  double then = now_s() + patience(j);
  int failed = grant_memory(fd, j, then, o, why);
  if (failed) return failed;
  if (!receive_by(fd, o->what, o->r.bytes, then)) return MEDIA_BAD;
  o->answered = o->r.said || !j->sound || samples_are_numbers(o->what, o->r.b);
  if (!o->r.said) return o->answered ? 0 : MEDIA_BAD;
  for (uint64_t i = 0; i < o->r.bytes; i++) {
    char c = ((char *)o->what)[i];
    if (c < ' ' || c > '~') ((char *)o->what)[i] = '?';
  }
  error_set(why, "%.*s", (int)o->r.bytes, (char *)o->what);
  return o->r.said == SAID_UNABLE ? MEDIA_UNABLE : MEDIA_BAD;
}

static int64_t ns_of(struct timeval t) { return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_usec * 1000; }

// Its socket is closed: it ends at once, or is ended. True: the latter.
static bool end_decoder(child_process *process, int *status) {
  enum { GRACE_S = 1 };
  struct rusage used = {0};
  bool ended = child_end(process, GRACE_S, status, &used);
  account_spend_here(ns_of(used.ru_utime) + ns_of(used.ru_stime));
  return ended;
}

// How a child without an answer ended.
static void tell_end(child_process *process, const decode_job *j, error *err) {
  int status = 0;
  bool late = end_decoder(process, &status);
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGXCPU || late)
    error_set(err, "decoding takes more than %lld s", (long long)j->limits.cpu_s);
  else if (signal == SIGKILL)
    error_set(err, "the process that decodes was killed, by the system if it has too little memory (signal 9)");
  else if (signal) error_set(err, "the process that decodes was ended by signal %d: a fault in the library", signal);
  else error_set(err, "the process that decodes has ended without an answer: out of memory, or a fault in the library");
}

static int decode_in_child(decode_job *j, struct decode_reply *r, void **what, error *err) {
  int fd = -1, status = 0;
  child_process *process = NULL;
  outcome o = {0};
  int failed = make_decoder(j, &fd, &process, err);
  if (failed) return failed;
  failed = receive_reply(fd, j, &o, err);
  close(fd);
  if (o.answered) end_decoder(process, &status);
  else tell_end(process, j, err);
  account_give_here(o.charged);
  if (!failed && account_check(err)) failed = MEDIA_BAD;
  if (failed) free(o.what);
  *r = o.r;
  *what = failed ? NULL : o.what;
  return failed;
}

// With ThreadSanitizer, decoding is done in this process, since it does not support children of a process with threads.
#if defined(__SANITIZE_THREAD__)
enum { DECODES_INSIDE = true };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { DECODES_INSIDE = true };
#else
enum { DECODES_INSIDE = false };
#endif
#else
enum { DECODES_INSIDE = false };
#endif

// r: the child's reply, samples in *what; or `decode` writes them to *out itself, and r stays empty.
static int decode_job_of(decode_job *j, void *out, struct decode_reply *r, void **what, error *err) {
  if ((int64_t)j->n > j->limits.file_bytes)
    return error_set(err, "%zu bytes; %lld are allowed", j->n, (long long)j->limits.file_bytes);
  if (!j->n) return error_set(err, "the file is empty");
  if (!DECODES_INSIDE) return decode_in_child(j, r, what, err);
  return j->sound ? decode_sound(j->data, j->n, &j->limits, out, err)
                  : decode_picture(j->data, j->n, &j->limits, out, err);
}

int media_decode_image(const void *data, size_t n, const char *name, const media_limits *limits, media_image *out,
                       error *err) {
  decode_job j = {.data = data, .n = n, .limits = with_defaults(limits)};
  struct decode_reply r = {0};
  error why = {0};
  void *what = NULL;
  *out = (media_image){0};
  int failed = decode_job_of(&j, out, &r, &what, &why);
  if (failed) error_set(err, "%s: %s", name, why.text);
  if (what) *out = (media_image){r.a, r.b, what};
  return failed;
}

int media_decode_sound(const void *data, size_t n, const char *name, const media_limits *limits, media_sound *out,
                       error *err) {
  decode_job j = {.data = data, .n = n, .sound = true, .limits = with_defaults(limits)};
  struct decode_reply r = {0};
  error why = {0};
  void *what = NULL;
  *out = (media_sound){0};
  int failed = decode_job_of(&j, out, &r, &what, &why);
  if (failed) error_set(err, "%s: %s", name, why.text);
  if (what) *out = (media_sound){r.a, r.b, what};
  return failed;
}
