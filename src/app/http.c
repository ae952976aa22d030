// Downloads texts and files: see http.h.
//
// A download is a series of attempts; each one resumes at the end of the previous one. Size and checksum are known from
// two sides (the caller and the server), and every contradiction is an error.
#define _GNU_SOURCE
#include "app/http.h"
#include "app/app.h"
#include "base/curl.h"
#include "base/env.h"
#include "base/newfile.h"
#include "base/sha256.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 160 };      // bytes of a file's beginning that are kept
enum { REDIRECTS = 10, CONNECT_S = 30, SILENCE_S = 60, ATTEMPTS = 3 /* without a byte */, TEXT = 256 };

struct http {
  curl_api api;
  CURL *curl;
  struct curl_slist *headers;
  char why[CURL_ERROR_SIZE];
};

// ---- libcurl --------------------------------------------------------------------------------------------------------

bool http_may_be_in_header(const char *text) {
  for (; *text; text++) if ((unsigned char)*text < ' ' || *text == 127) return false;
  return true;
}

// The header of a token without the white space around it, which files of secrets often end with. Empty without one.
static int write_header(const char *token, str *line, error *err) {
  size_t n = token ? strlen(token) : 0;
  while (n && is_ascii_space((unsigned char)token[n - 1])) n--;
  for (; n && is_ascii_space((unsigned char)*token); n--) token++;
  if (n) str_addf(line, "Authorization: Bearer %.*s", (int)min_i64((int64_t)n, INT_MAX), token);
  if (!line->n || http_may_be_in_header(line->at)) return 0;
  return error_set(err, "the token of Hugging Face (-hft, HF_TOKEN) has a line end or another control character");
}

int http_open(const char *token, http **out, error *err) {
  str line = {0};
  http *h = xcalloc(1, sizeof *h);
  if (write_header(token, &line, err) || curl_load(&h->api, err)) { str_free(&line); free(h); return -1; }
  if (line.n) h->headers = h->api.add(NULL, line.at);
  str_free(&line);
  h->curl = h->api.init();
  if (!h->curl) die("libcurl: out of memory");
  *out = h;
  return 0;
}

void http_close(http *h) {
  if (!h) return;
  h->api.cleanup(h->curl);
  h->api.free_list(h->headers);
  curl_unload(&h->api);
  free(h);
}

// Sets the options of every request. A request over https is never redirected to http.
static void prepare(http *h, const char *url) {
  bool safe = !strncasecmp(url, "https:", 6);
  h->api.reset(h->curl);
  h->why[0] = 0;
  h->api.set(h->curl, CURLOPT_URL, url);
  h->api.set(h->curl, CURLOPT_ERRORBUFFER, h->why);
  h->api.set(h->curl, CURLOPT_USERAGENT, "weft/" WEFT_VERSION_STRING);
  h->api.set(h->curl, CURLOPT_HTTPHEADER, h->headers);          // libcurl does not send Authorization to other hosts
  h->api.set(h->curl, CURLOPT_FOLLOWLOCATION, 1L);
  h->api.set(h->curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
  h->api.set(h->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
  h->api.set(h->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  h->api.set(h->curl, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
  h->api.set(h->curl, CURLOPT_NOSIGNAL, 1L);
  curl_set_authorities(&h->api, h->curl);
  curl_set_protocols(&h->api, h->curl, safe);
}

// Returns whether the server's identity could not be verified: trying again is of no use.
static bool is_untrusted(CURLcode code) {
  return code == CURLE_SSL_CACERT_BADFILE || code == CURLE_PEER_FAILED_VERIFICATION;
}

// The error of a request without an answer, with advice if the cause is known.
static int no_answer(const http *h, const char *what, CURLcode code, error *err) {
  const char *why = h->why[0] ? h->why : h->api.text_of(code), *named = env_str(ENV_SSL_CERT_FILE);
  if (!is_untrusted(code)) return error_set(err, "%.300s: %s", what, why);
  if (code == CURLE_PEER_FAILED_VERIFICATION)
    return error_set(err, "%.300s: %.300s; SSL_CERT_FILE may name a file with the authority of this server", what, why);
  if (*named) return error_set(err, "%.300s: SSL_CERT_FILE names '%.300s', which cannot be read", what, named);
  return error_set(err,
                   "%.300s: %.300s: certificates cannot be checked, as this system has no list of authorities; the "
                   "package ca-certificates has it, or SSL_CERT_FILE names one",
                   what, why);
}

static int refused(const char *url, int status, error *err) {
  switch (status) {
  case 401:
  case 403:
    return error_set(err,
                     "%.300s: not allowed (HTTP %d); a token in HF_TOKEN may help, and some models have terms to be "
                     "accepted on their page",
                     url, status);
  case 404: return error_set(err, "%.300s: not there (HTTP 404)", url);
  case 429: return error_set(err, "%.300s: the server wants fewer requests for a while (HTTP 429)", url);
  default: return error_set(err, "%.300s: HTTP %d", url, status);
  }
}

// ---- texts ----------------------------------------------------------------------------------------------------------

struct reading { str *to; size_t most; bool too_long; };

static size_t take_text(char *at, size_t size, size_t n, void *ctx) {
  struct reading *r = ctx;
  if (r->to->n + size * n > r->most) { r->too_long = true; return 0; }
  str_addn(r->to, at, size * n);
  return size * n;
}

static int stop_if_asked(void *ctx, curl_off_t all, curl_off_t got, curl_off_t up_all, curl_off_t up) {
  (void)ctx; (void)all; (void)got; (void)up_all; (void)up;
  return interrupted();
}

int http_text(http *h, const char *url, size_t most, str *out, int *status, error *err) {
  struct reading r = {out, most, false};
  long code = 0;
  *status = 0;
  out->n = 0;
  prepare(h, url);
  h->api.set(h->curl, CURLOPT_WRITEFUNCTION, take_text);
  h->api.set(h->curl, CURLOPT_WRITEDATA, &r);
  h->api.set(h->curl, CURLOPT_XFERINFOFUNCTION, stop_if_asked);
  h->api.set(h->curl, CURLOPT_NOPROGRESS, 0L);
  CURLcode got = h->api.perform(h->curl);
  h->api.get(h->curl, CURLINFO_RESPONSE_CODE, &code);
  *status = (int)code;
  if (r.too_long) return error_set(err, "%.300s: an answer of more than %zu bytes", url, most);
  if (got && interrupted()) return HTTP_INTERRUPTED;
  if (got) return no_answer(h, url, got, err);
  return code == 200 ? 0 : refused(url, (int)code, err);
}

// ---- files ----------------------------------------------------------------------------------------------------------

struct transfer {
  http *h;
  const struct http_file *f;
  str part, tag_path;
  int fd;
  // of the file: bytes present, bytes in all (-1: unknown), bytes present when this run began
  int64_t have, size, first;
  sha256 sum;
  char wanted[65];                  // the expected checksum, "": unknown
  char tag[TEXT];                   // ETag of the bytes present
  char head[HEAD];                  // the first bytes
  // of the current answer
  long status;
  bool begun;
  char its_tag[TEXT], its_type[TEXT];
  int64_t its_length, its_first, its_all;
  // for the progress bar
  progress *bar;
  double began;
  bool final;                       // trying again is of no use
  error *err;
};

static int stop(struct transfer *t) { t->final = true; return -1; }

static void readable(char out[32], int64_t bytes) {
  double n = (double)bytes;
  if (n >= 1e9) snprintf(out, 32, "%.2f GB", n / 1e9);
  else if (n >= 1e6) snprintf(out, 32, "%.1f MB", n / 1e6);
  else if (n >= 1e4) snprintf(out, 32, "%.0f kB", n / 1e3);
  else snprintf(out, 32, "%lld bytes", (long long)bytes);
}

// "1.20 GB of 4.60 GB"
static void how_far(const struct transfer *t, char out[80]) {
  char have[32], all[32];
  readable(have, t->have);
  readable(all, t->size);
  if (t->size < 0) snprintf(out, 80, "%s", have);
  else snprintf(out, 80, "%s of %s", have, all);
}

static int disk_error(struct transfer *t, int why) {
  char far[80];
  how_far(t, far);
  error_set(t->err, "%s: %s; %s are kept in %.300s, and the same command goes on from there", t->f->shown,
            why == ENOSPC  ? "the disk is full"
            : why == EFBIG ? "files may not become that large (ulimit -f)"
                           : strerror(why),
            far, t->part.at);
  return stop(t);
}

// "W/" marks a weak ETag, which Range does not allow.
static void copy_tag(char *to, const char *text, size_t n) {
  if (n >= 2 && !strncasecmp(text, "W/", 2)) n = 0;
  snprintf(to, TEXT, "%.*s", (int)(n < TEXT ? n : 0), text);
}

// Takes a value that is a SHA-256, optionally in quotes.
static void take_sum(char *to, const char *text, size_t n) {
  if (n == 66 && *text == '"') { text++; n -= 2; }
  if (n != 64 || strspn(text, "0123456789abcdefABCDEF") < 64) return;
  for (size_t i = 0; i < 64; i++) to[i] = (char)(text[i] | (text[i] >= 'A' && text[i] <= 'F' ? 32 : 0));
  to[64] = 0;
}

static bool is_header(const char *line, size_t n, const char *name, const char **value, size_t *length) {
  size_t m = strlen(name);
  if (n <= m || line[m] != ':' || strncasecmp(line, name, m)) return false;
  for (*value = line + m + 1; *value < line + n && (**value == ' ' || **value == '\t'); ++*value) continue;
  for (*length = (size_t)(line + n - *value); *length && strchr("\r\n ", (*value)[*length - 1]); --*length) continue;
  return true;
}

static size_t take_header(char *line, size_t size, size_t count, void *ctx) {
  struct transfer *t = ctx;
  size_t n = size * count, length;
  const char *value;
  char number[64];
  // a new answer begins after a redirection; libcurl's texts need not end with a NUL
  if (n > 5 && !memcmp(line, "HTTP/", 5)) {
    t->status = 0;
    snprintf(number, sizeof number, "%.*s", (int)(n < 63 ? n : 63), line);
    sscanf(number, "HTTP/%*s %ld", &t->status);
    t->its_tag[0] = t->its_type[0] = 0;
    t->its_length = t->its_first = t->its_all = -1;
    return n;
  }
  if (is_header(line, n, "etag", &value, &length)) copy_tag(t->its_tag, value, length);
  else if (is_header(line, n, "content-type", &value, &length))
    snprintf(t->its_type, TEXT, "%.*s", (int)(length < TEXT ? length : TEXT - 1), value);
  else if (is_header(line, n, "x-linked-etag", &value, &length) && !t->f->sha256[0])
    take_sum(t->wanted, value, length);  // sent by Hugging Face before it redirects
  else if (is_header(line, n, "content-length", &value, &length) ||
           is_header(line, n, "content-range", &value, &length)) {
    long long from, to, all;
    snprintf(number, sizeof number, "%.*s", (int)(length < 63 ? length : 63), value);
    if (sscanf(number, "bytes %lld-%lld/%lld", &from, &to, &all) == 3) { t->its_first = from; t->its_all = all; }
    else if (number[0] >= '0' && number[0] <= '9') t->its_length = strtoll(number, NULL, 10);
  }
  return n;
}

// Discards the bytes and starts again.
static int start_over(struct transfer *t) {
  if (ftruncate(t->fd, 0) || lseek(t->fd, 0, SEEK_SET)) return disk_error(t, errno);
  t->have = 0;
  sha256_begin(&t->sum);
  return 0;
}

static int keep_tag(struct transfer *t) {
  if (t->status == 206 && !t->its_tag[0]) return 0;           // it answers our If-Range
  memcpy(t->tag, t->its_tag, sizeof t->tag);
  error why = {0};
  if (!newfile_note(t->tag_path.at, t->tag, strlen(t->tag), &why)) return 0;
  if (errno == ENOSPC || errno == EFBIG) return disk_error(t, errno);
  error_set(t->err, "%.600s", why.text);
  return stop(t);
}

// ---- files of another kind ------------------------------------------------------------------------------------------

// Adds untrusted text to a message: line ends become spaces, control characters are dropped.
static void add_in_a_line(str *out, const char *at, size_t n) {
  for (size_t i = 0; i < n && at[i]; i++) {
    bool space = at[i] == ' ' || at[i] == '\n' || at[i] == '\r' || at[i] == '\t';
    if (!space) str_addc(out, at[i] > ' ' && at[i] <= '~' ? at[i] : '?');
    else if (out->n && out->at[out->n - 1] != ' ') str_addc(out, ' ');
  }
}

static size_t head_length(const struct transfer *t) { return t->have < HEAD ? (size_t)t->have : HEAD; }

static void remember_head(struct transfer *t, const char *at, size_t n, int64_t where) {
  if (where < HEAD) memcpy(t->head + where, at, n < (size_t)(HEAD - where) ? n : (size_t)(HEAD - where));
}

// Returns whether the file begins with its magic bytes. ends: no more bytes follow. The first bytes may come one at a
// time.
static bool begins_well(const struct transfer *t, bool ends) {
  size_t n = t->f->magic ? strlen(t->f->magic) : 0, has = head_length(t);
  return has < n ? !ends && !memcmp(t->head, t->f->magic, has) : !n || !memcmp(t->head, t->f->magic, n);
}

// Refuses a file of another kind and keeps nothing of it.
static int refuse_kind(struct transfer *t) {
  enum { SHOWN = 60 };
  str type = {0}, words = {0};
  add_in_a_line(&type, t->its_type, strcspn(t->its_type, ";"));
  add_in_a_line(&words, t->head, head_length(t));
  if (!t->have)
    error_set(t->err, "%s: not a %s file: the server sent no bytes", t->f->shown, t->f->magic);
  else
    error_set(t->err, "%s: not a %s file: the server sent %s%s that begins with '%.*s'; it was not kept", t->f->shown,
              t->f->magic, type.n ? "" : "something", type.n ? type.at : "", SHOWN, str_c(&words));
  str_free(&type);
  str_free(&words);
  if (start_over(t)) return -1;
  return stop(t);
}

// Handles the beginning of a body: checks that it is the requested file and that the disk has room.
static int begin_body(struct transfer *t) {
  struct statvfs disk;
  char need[32], free_bytes[32];
  t->begun = true;
  if (t->status == 206 && t->its_first != t->have) {
    error_set(t->err, "%s: the server sends another part than was asked for", t->f->shown);
    return stop(t);
  }
  if (t->status == 200 && t->have && start_over(t)) return -1;
  if (t->status == 200) t->size = t->f->size;                // the file may have changed
  int64_t all = t->status == 206 ? t->its_all : t->its_length;
  if (t->f->size >= 0 && all >= 0 && all != t->f->size) {
    error_set(t->err, "%s: the server has %lld bytes, and it should be %lld", t->f->shown, (long long)all,
              (long long)t->f->size);
    return stop(t);
  }
  if (t->size < 0) t->size = all;
  if (t->size >= 0 && t->size < t->have) {
    error_set(t->err, "%s: the server says that the file has %lld bytes, and %lld are there", t->f->shown,
              (long long)t->size, (long long)t->have);
    return stop(t);
  }
  if (t->size >= 0 && !fstatvfs(t->fd, &disk) && (uint64_t)(t->size - t->have) / disk.f_frsize >= disk.f_bavail) {
    readable(need, t->size - t->have);
    readable(free_bytes, (int64_t)(disk.f_bavail * disk.f_frsize));
    error_set(t->err, "%s: the disk is too full: %s are to come, and %s are free at %.300s", t->f->shown, need,
              free_bytes, t->part.at);
    return stop(t);
  }
  return keep_tag(t);
}

static size_t take_body(char *at, size_t size, size_t count, void *ctx) {
  struct transfer *t = ctx;
  size_t n = size * count;
  if (t->status != 200 && t->status != 206) return n;       // an error page
  if (!t->begun && begin_body(t)) return 0;
  if (t->size >= 0 && (int64_t)n > t->size - t->have) {
    error_set(t->err, "%s: the server sends more than the %lld bytes of the file", t->f->shown, (long long)t->size);
    stop(t);
    return 0;
  }
  for (size_t done = 0; done < n;) {
    ssize_t wrote = write(t->fd, at + done, n - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) { disk_error(t, errno); return 0; }
    sha256_add(&t->sum, at + done, (size_t)wrote);
    remember_head(t, at + done, (size_t)wrote, t->have);
    done += (size_t)wrote;
    t->have += wrote;
    if (!begins_well(t, false)) { refuse_kind(t); return 0; }
  }
  return n;
}

static int show_transfer(void *ctx, curl_off_t all, curl_off_t got, curl_off_t up_all, curl_off_t up) {
  (void)all; (void)got; (void)up_all; (void)up;
  struct transfer *t = ctx;
  char far[80], what[160];
  double s = now_s() - t->began;
  how_far(t, far);
  snprintf(what, sizeof what, "%s, %.1f MB/s", far, s > 0 ? (double)(t->have - t->first) / s / 1e6 : 0);
  progress_set(t->bar, what, t->size > 0 ? (double)t->have / (double)t->size : 0);
  return interrupted();
}

// Resumes at the end of the file. 0: the server says that it is complete.
static int attempt(struct transfer *t) {
  http *h = t->h;
  char range[64];
  struct curl_slist *headers = NULL;
  t->begun = false;
  t->status = 0;
  prepare(h, t->f->url);
  h->api.set(h->curl, CURLOPT_HEADERFUNCTION, take_header);
  h->api.set(h->curl, CURLOPT_HEADERDATA, t);
  h->api.set(h->curl, CURLOPT_WRITEFUNCTION, take_body);
  h->api.set(h->curl, CURLOPT_WRITEDATA, t);
  h->api.set(h->curl, CURLOPT_XFERINFOFUNCTION, show_transfer);
  h->api.set(h->curl, CURLOPT_XFERINFODATA, t);
  h->api.set(h->curl, CURLOPT_NOPROGRESS, 0L);
  if (t->have) {
    str line = {0};
    snprintf(range, sizeof range, "%lld-", (long long)t->have);
    h->api.set(h->curl, CURLOPT_RANGE, range);
    for (struct curl_slist *l = h->headers; l; l = l->next) headers = h->api.add(headers, l->data);
    str_addf(&line, "If-Range: %s", t->tag);
    if (t->tag[0]) headers = h->api.add(headers, line.at);
    h->api.set(h->curl, CURLOPT_HTTPHEADER, headers);
    str_free(&line);
  }
  CURLcode got = h->api.perform(h->curl);
  h->api.free_list(headers);
  if (t->final) return -1;
  if (got && interrupted()) return HTTP_INTERRUPTED;
  if (t->status == 416 && t->have)
    return t->have == t->size ? 0
           : start_over(t)    ? -1
                              : error_set(t->err, "%s: the server knows of no such part", t->f->shown);
  // neither the file nor a broken connection
  if (t->status && t->status != 200 && t->status != 206 && !(got && t->status < 400)) {
    refused(t->f->url, (int)t->status, t->err);
    if (t->status < 500 && t->status != 429) stop(t);
    return -1;
  }
  if (is_untrusted(got)) t->final = true;
  if (got) return no_answer(h, t->f->shown, got, t->err);
  if (t->status == 200 && !t->begun && begin_body(t)) return -1;          // an empty file
  if (t->size >= 0 && t->have < t->size) return error_set(t->err, "%s: the connection was cut", t->f->shown);
  return 0;
}

// Opens PATH.part, locks it against other processes and computes its checksum.
static int open_part(struct transfer *t) {
  struct stat st, now;
  t->fd = open(t->part.at, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (t->fd < 0 || fstat(t->fd, &st)) return error_set(t->err, "%.300s: %s", t->part.at, strerror(errno));
  if (!S_ISREG(st.st_mode)) return error_set(t->err, "%.300s: is no regular file", t->part.at);
  fail_if(st.st_nlink > 1, t->err, "%.300s: has a second name (a hard link): remove it", t->part.at);
  // the other program may have just finished and renamed it
  if (flock(t->fd, LOCK_EX | LOCK_NB) || stat(t->part.at, &now) || now.st_ino != st.st_ino) {
    close(t->fd);                   // the file belongs to that program, which also removes it
    t->fd = -1;
    return error_set(t->err, "%s is being fetched by another program just now", t->f->shown);
  }
  sha256_begin(&t->sum);
  int tag = open(t->tag_path.at, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  ssize_t n = tag < 0 ? 0 : read(tag, t->tag, sizeof t->tag - 1);
  t->tag[n > 0 ? n : 0] = 0;
  if (tag >= 0) close(tag);
  for (char *c = t->tag; *c; c++) if (*c < ' ') *c = 0;
  // without a tag or checksum it cannot be verified that the rest belongs to these bytes
  if ((!t->tag[0] && !t->wanted[0]) || (t->size >= 0 && st.st_size > t->size)) return start_over(t);
  static char piece[1 << 16];
  for (ssize_t got; (got = read(t->fd, piece, sizeof piece)) != 0; t->have += got) {
    if (got < 0 && errno == EINTR) { got = 0; continue; }
    if (got < 0) return error_set(t->err, "%.300s: %s", t->part.at, strerror(errno));
    sha256_add(&t->sum, piece, (size_t)got);
    remember_head(t, piece, (size_t)got, t->have);
  }
  if (!begins_well(t, false) && start_over(t)) return -1;      // left by an older version or another program
  t->first = t->have;
  return 0;
}

static int finish(struct transfer *t) {
  char got[65];
  sha256 sum = t->sum;
  if (!begins_well(t, true)) return refuse_kind(t);
  sha256_end(&sum, got);
  if (t->wanted[0] && strcmp(got, t->wanted)) {
    unlink(t->part.at);
    unlink(t->tag_path.at);
    return error_set(t->err,
                     "%s: it is not the file that was meant: its SHA-256 is %s, and it should be %s. It was removed",
                     t->f->shown, got, t->wanted);
  }
  if (fsync(t->fd)) return disk_error(t, errno);
  error why = {0};
  const char *notes[] = {t->f->first_note, t->f->note};
  for (size_t i = 0; i < COUNT(notes); i++)
    if (notes[i] && newfile_note(notes[i], NULL, 0, &why))
      return error_set(t->err, "%.400s; %s is whole, and the same command goes on from there", why.text, t->part.at);
  if (rename(t->part.at, t->f->path))
    return error_set(t->err, "%.300s: cannot be given its name: %s", t->f->path, strerror(errno));
  str tag = {0};                    // llama.cpp compares it with the server's ETag
  str_addf(&tag, "%s.etag", t->f->path);
  if (!t->tag[0] || rename(t->tag_path.at, tag.at)) unlink(t->tag_path.at);
  str_free(&tag);
  return 0;
}

static int fetch(struct transfer *t) {
  if (open_part(t)) return -1;
  t->began = now_s();
  error first = {0};
  error *out = t->err;
  for (int tries = 0; !(t->size >= 0 && t->have == t->size && t->have);) {
    int64_t before = t->have;
    error why = {0};
    t->err = &why;
    int status = attempt(t);
    t->err = out;
    if (!status) break;
    char far[80];
    how_far(t, far);
    if (status == HTTP_INTERRUPTED) {
      error_set(out, "stopped; %s are kept, and the same command goes on from there", far);
      return status;
    }
    if (t->final) return error_set(out, "%s", why.text);
    if (!first.text[0] || why.text[0]) first = why;
    if (t->have > before) tries = 0;
    else if (++tries == ATTEMPTS)
      return t->have ? error_set(out, "%.600s; %s are kept, and the same command goes on from there", first.text, far)
                     : error_set(out, "%s", first.text);
    else nanosleep(&(struct timespec){.tv_sec = tries}, NULL);
  }
  return finish(t);
}

int http_fetch(http *h, const struct http_file *f, progress *bar, error *err) {
  struct transfer t = {.h = h, .f = f, .fd = -1, .size = f->size, .bar = bar, .err = err};
  memcpy(t.wanted, f->sha256, sizeof t.wanted);
  str_addf(&t.part, "%s.part", f->path);
  str_addf(&t.tag_path, "%s.part.etag", f->path);
  int status = fetch(&t);
  struct stat st;
  // nothing was received
  if (t.fd >= 0 && !t.have && !fstat(t.fd, &st) && S_ISREG(st.st_mode) && !st.st_size) {
    unlink(t.part.at);
    unlink(t.tag_path.at);
  }
  if (t.fd >= 0) close(t.fd);
  str_free(&t.part);
  str_free(&t.tag_path);
  return status;
}
