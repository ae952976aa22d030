// --path: serves files of a folder at /, without a key, like the page. Each part of a path is opened below its parent
// folder; links are not followed, and names that begin with a dot are hidden. So no path leads out of the folder.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "serve/server.h"

enum { PIECE = EXCHANGE_SMALL };       // of a file; one is in memory for each client
struct file { pool *pool; int fd; uint64_t at, n; };

static const struct { const char *end, *type; } types[] = {
  {".html", "text/html; charset=utf-8"}, {".htm", "text/html; charset=utf-8"}, {".css", "text/css; charset=utf-8"},
  {".js", "text/javascript; charset=utf-8"}, {".mjs", "text/javascript; charset=utf-8"},
  {".json", "application/json"}, {".map", "application/json"}, {".webmanifest", "application/manifest+json"},
  {".txt", "text/plain; charset=utf-8"}, {".md", "text/markdown; charset=utf-8"}, {".xml", "application/xml"},
  {".csv", "text/csv; charset=utf-8"}, {".svg", "image/svg+xml"}, {".png", "image/png"}, {".jpg", "image/jpeg"},
  {".jpeg", "image/jpeg"}, {".gif", "image/gif"}, {".webp", "image/webp"}, {".avif", "image/avif"},
  {".ico", "image/x-icon"}, {".woff", "font/woff"}, {".woff2", "font/woff2"}, {".ttf", "font/ttf"},
  {".otf", "font/otf"}, {".wasm", "application/wasm"}, {".pdf", "application/pdf"}, {".mp3", "audio/mpeg"},
  {".mp4", "video/mp4"}, {".webm", "video/webm"}};

static const char *type_of_file(const char *name) {
  const char *end = strrchr(name, '.');
  for (size_t i = 0; end && i < COUNT(types); i++) if (!strcasecmp(types[i].end, end)) return types[i].type;
  return "application/octet-stream";
}

// Opens a path, and returns the name of its last part, "index.html" if it ends in a slash. -1: nothing visible there.
static int open_below(int folder, const char *path, char name[NAME_MAX + 1]) {
  enum { FOLDER = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
         LAST = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC };
  int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
  while (at >= 0) {
    path += strspn(path, "/");
    size_t n = strcspn(path, "/");
    bool last = !path[n];
    snprintf(name, NAME_MAX + 1, "%.*s", (int)n, path);
    if (!n) strcpy(name, "index.html");
    int next = name[0] == '.' || n > NAME_MAX ? -1 : openat(at, name, last ? LAST : FOLDER);
    close(at);
    if (last || next < 0) return next;
    at = next;
    path += n;
  }
  return -1;
}

// Relative links need the trailing slash.
static void to_folder(exchange *x, const char *name) {
  str to = {0};
  for (const char *c = name; *c; c++) {
    bool plain = (*c >= '0' && *c <= '9') || ((*c | 32) >= 'a' && (*c | 32) <= 'z') || strchr("-._~", *c);
    str_addf(&to, plain ? "%c" : "%%%02X", (unsigned char)*c);
  }
  exchange_header(x, "Location", "%s/", str_c(&to));
  exchange_send(x, 308, NULL, "", 0);
  str_free(&to);
}

static void close_static(void *ctx) {
  close(((struct file *)ctx)->fd);
  free(ctx);
}

// In a worker: a disk may be slow. Each file has one such job at a time. A file that became shorter cuts the answer.
static void read_static(void *ctx) {
  exchange *x = ctx;
  struct file *f = x->source.ctx;
  char *bytes = xmalloc(PIECE);
  size_t n = f->n - f->at < PIECE ? (size_t)(f->n - f->at) : PIECE;
  ssize_t got;
  do got = pread(f->fd, bytes, n, (off_t)f->at);
  while (got < 0 && errno == EINTR);
  if (got > 0) f->at += (uint64_t)got;
  if (got <= 0) exchange_leave(x);
  else exchange_add(x, bytes, (size_t)got);
  free(bytes);
  exchange_drop(x);
}

static void ask_static(exchange *x) { pool_add(((struct file *)x->source.ctx)->pool, read_static, exchange_hold(x)); }

// Takes fd.
static void send_static(server *s, exchange *x, int fd, uint64_t n, const char *name) {
  struct file *f = xmalloc(sizeof *f);
  *f = (struct file){s->pool, fd, 0, n};
  exchange_header(x, "X-Content-Type-Options", "nosniff");
  exchange_header(x, "Cache-Control", "no-cache");
  exchange_send_pieces(x, type_of_file(name), n, &(struct exchange_source){ask_static, close_static, f});
}

static void handle_static(server *s, exchange *x) {
  char name[NAME_MAX + 1];
  struct stat st;
  fault f = {0};
  int fd = open_below(s->files, x->path, name);
  if (fd < 0 || fstat(fd, &st) || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
    fault_set(&f, 404, NULL, "there is no such file");
  if (f.status) answer_fault(s, x, &f);
  else if (S_ISDIR(st.st_mode)) to_folder(x, name);
  else { send_static(s, x, fd, (uint64_t)st.st_size, name); return; }
  if (fd >= 0) close(fd);
}

const struct route files_route = {"GET", "/*", true, false, &openai_family, handle_static,
                                  NULL, "a file of --path", ""};
