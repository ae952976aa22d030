// llama.cpp's /slots: running answers, and sequences in files that clients name (slots.h).
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/json.h"
#include "serve/families.h"

static json_t *slot_json(const server *s, const served *m, const struct sched_counts *c, int i) {
  const struct slot_state *slot = &c->slot[i];
  const struct run_counts *n = &slot->counts;
  bool speculates = s->o->speculating != WEFT_SPECULATE_NEVER;
  json_t *o = json_pack("{si si sb sb si si}", "id", i, "n_ctx", weft_model_context(m->model), "speculative",
                        speculates, "is_processing", slot->in_work, "n_past", slot->past, "n_waiting",
                        c->waiting);
  if (!slot->in_work) return o;
  json_t *of_answer =
    json_pack("{sI sI sI s[{sb sI sI}]}", "n_prompt_tokens", (json_int_t)n->prompt, "n_prompt_tokens_processed",
              (json_int_t)n->evaluated, "n_prompt_tokens_cache", (json_int_t)n->cached, "next_token", "has_next_token",
              true, "n_remain", (json_int_t)n->left, "n_decoded", (json_int_t)n->drawn);
  json_object_update(o, of_answer);
  json_decref(of_answer);
  return o;
}

// A model that is not in memory has no running answers; it is not loaded for this.
void llama_slots(server *s, exchange *x) {
  struct sched_counts c;
  if (s->o->slots_hidden) {
    fault f = {0};
    fault_set(&f, 501, NULL, "the server was started with --no-slots");
    answer_fault(s, x, &f);
    return;
  }
  if (llama_sleeps(s, asked_of(x)->model)) { answer_json(x, 200, json_array()); return; }
  if (!model_for(s, x)) return;
  const served *m = asked_of(x)->m;
  sched_counts(m->sched, &c);
  json_t *all = json_array();
  for (int i = 0; i < c.slots; i++) json_array_append_new(all, slot_json(s, m, &c, i));
  answer_json(x, 200, all);
}

// ---- requests -------------------------------------------------------------------------------------------------------

struct slot_call { slot_action a; server *s; exchange *x; char *name; str path; };

static const struct { const char *name; enum slot_verb verb; } verbs[] = {
  {"save", SLOT_SAVE}, {"restore", SLOT_RESTORE}, {"erase", SLOT_ERASE}};

static int read_slot(const exchange *x, int *slot, fault *f) {
  struct sched_counts c;
  const char *text = asked_path(x, x->route);
  sched_counts(asked_of(x)->m->sched, &c);
  long n = strlen(text) < 8 && strspn(text, "0123456789") == strlen(text) ? strtol(text, NULL, 10) : -1;
  *slot = (int)n;
  return n >= 0 && n < c.slots ? 0 : fault_set(f, 400, "id_slot", "there are slots 0 to %d, not '%.40s'", c.slots - 1,
                                               text);
}

static int read_verb(const exchange *x, enum slot_verb *verb, fault *f) {
  const char *name = asked_of(x)->action;
  for (size_t i = 0; name && i < COUNT(verbs); i++)
    if (!strcmp(verbs[i].name, name)) { *verb = verbs[i].verb; return 0; }
  return fault_set(f, 400, "action", "the query needs action=save, restore or erase");
}

// Is it a device name on Windows? Text after a dot does not matter.
static bool is_device_name(const char *name) {
  static const char *const devices[] = {"con", "prn", "aux", "nul", "conin$", "conout$"};
  size_t n = strcspn(name, ".");
  while (n && name[n - 1] == ' ') n--;
  bool numbered = n == 4 && (!strncasecmp(name, "com", 3) || !strncasecmp(name, "lpt", 3));
  if (numbered && name[3] >= '0' && name[3] <= '9') return true;
  if (n == 5 && (!strncasecmp(name, "com", 3) || !strncasecmp(name, "lpt", 3)))       // superscript 1, 2 and 3
    return !memcmp(name + 3, "\xC2\xB9", 2) || !memcmp(name + 3, "\xC2\xB2", 2) || !memcmp(name + 3, "\xC2\xB3", 2);
  for (size_t i = 0; i < COUNT(devices); i++)
    if (strlen(devices[i]) == n && !strncasecmp(name, devices[i], n)) return true;
  return false;
}

// Is it a plain file name within the folder? llama-server's rule, which includes those of other systems, except for
// look-alike characters; leaves space for the suffix of a temporary file.
static bool is_file_name(const char *name, size_t n) {
  enum { MOST = 230 };
  if (!n || n > MOST || strlen(name) != n) return false;
  for (size_t i = 0; i < n; i++)
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F || strchr("/\\:*?\"<>|", name[i])) return false;
  return name[0] != ' ' && name[n - 1] != ' ' && name[n - 1] != '.' && !strstr(name, "..") && !is_device_name(name);
}

static int read_slot_file(exchange *x, char **name, fault *f) {
  size_t left;
  json_t *body = json_body(&x->body, &left, &x->account, f);
  if (!body) return -1;
  const json_t *given = json_object_get(body, "filename");
  if (!json_is_string(given)) fault_set(f, 400, "filename", "'filename' must be a text, not %s", json_kind(given));
  else if (!is_file_name(json_string_value(given), json_string_length(given)))
    fault_set(f, 400, "filename", "'filename' must be the name of a file in the folder: at most 230 bytes, no /, \\, "
              ":, *, ?, \", <, >, | and .., no space at an end, no dot at the end, no device of Windows (con, nul, "
              "com1, ...)");
  else *name = xstrdup(json_string_value(given));
  json_decref(body);
  return f->status ? -1 : 0;
}

// Links may lead elsewhere, and opening a pipe blocks.
static int look_at_slot_file(const char *path, const char *name, fault *f) {
  struct stat st;
  if (lstat(path, &st) || S_ISREG(st.st_mode)) return 0;
  return fault_set(f, 400, "filename", "'filename' names no regular file in the folder: '%s'", name);
}

// ---- answers --------------------------------------------------------------------------------------------------------

static void end_slot_call(struct slot_call *c) {
  exchange *x = c->x;
  free(c->name);
  str_free(&c->path);
  free(c);
  exchange_worked(x);
  exchange_drop(x);
}

// Errors about a file do not show its folder.
static void tell_fault(const struct slot_call *c) {
  fault f = {0};
  const char *why = c->a.why.text, *folder = c->s->o->slots;
  size_t n = strlen(folder);
  if (!strncmp(why, folder, n)) why += n + strspn(why + n, "/");
  fault_set(&f, c->a.status, c->a.status == 400 ? "filename" : NULL, "%s", why);
  answer_fault(c->s, c->x, &f);
}

static void write_copy(struct slot_call *c) {
  double began = now_s();
  const weft_sequence *q = c->a.copy.sequence;
  int failed = weft_sequence_save(q, c->a.copy.past.at, c->path.at, &c->a.why);
  if (failed) c->a.status = failed == -2 ? 400 : weft_sequence_adapts_as(q, NULL) ? 500 : 501;
  c->a.took_s += now_s() - began;
  sched_give_back(asked_of(c->x)->m->sched, &c->a.copy);
}

static json_t *result(const struct slot_call *c) {
  struct stat st;
  const slot_action *a = &c->a;
  if (a->verb == SLOT_ERASE) return json_pack("{si sI}", "id_slot", a->slot, "n_erased", (json_int_t)a->n);
  bool saved = a->verb == SLOT_SAVE;
  json_int_t bytes = stat(c->path.at, &st) ? 0 : (json_int_t)st.st_size;
  return json_pack("{si ss sI sI s{sf}}", "id_slot", a->slot, "filename", c->name, saved ? "n_saved" : "n_restored",
                   (json_int_t)a->n, saved ? "n_written" : "n_read", bytes, "timings",
                   saved ? "save_ms" : "restore_ms", 1000 * a->took_s);
}

static void finish_slot_call(void *ctx) {
  struct slot_call *c = ctx;
  if (c->a.copy.sequence) write_copy(c);
  if (c->a.status == 200) answer_json(c->x, 200, result(c));
  else tell_fault(c);
  end_slot_call(c);
}

static void on_done(slot_action *a) {
  struct slot_call *c = (struct slot_call *)a;
  pool_add(c->s->pool, finish_slot_call, c);
}

// A file is tied to what its model computes: the first time takes as long as reading the model's files. A pool thread
// waits for that for a while; steps never do.
static void begin_slot_call(void *ctx) {
  enum { PATIENCE_S = 10, RETRY_S = 5 };
  struct slot_call *c = ctx;
  fault f = {0};
  double done;
  const served *m = asked_of(c->x)->m;
  int known = c->a.verb == SLOT_ERASE ? 0 : weft_model_content(m->model, PATIENCE_S, &done, &c->a.why);
  if (!known && !sched_slot(m->sched, &c->a)) return;
  if (known > 0) f.retry_s = RETRY_S;
  if (known < 0) fault_set(&f, 503, NULL, "%s", c->a.why.text);
  else if (known) fault_set(&f, 503, NULL, "the model's files are being read, which files of slots are bound to: %d %% "
                            "are through", (int)(100 * done));
  else fault_set(&f, 503, NULL, "the server is ending");
  answer_fault(c->s, c->x, &f);
  end_slot_call(c);
}

void llama_slot_action(server *s, exchange *x) {
  struct slot_call *c = xcalloc(1, sizeof *c);
  fault f = {0};
  *c = (struct slot_call){.s = s, .x = exchange_hold(x), .a = {.done = on_done}};
  exchange_work(x);
  if (!s->o->slots) fault_set(&f, 501, NULL, "slots are saved where the server has the option --slot-save-path DIR");
  else if (!read_slot(x, &c->a.slot, &f) && !read_verb(x, &c->a.verb, &f) && c->a.verb != SLOT_ERASE)
    read_slot_file(x, &c->name, &f);
  if (c->name) str_addf(&c->path, "%s/%s", s->o->slots, c->name);
  if (c->name) look_at_slot_file(c->path.at, c->name, &f);
  c->a.path = c->path.at;
  if (!f.status) { pool_add(s->pool, begin_slot_call, c); return; }
  answer_fault(s, x, &f);
  end_slot_call(c);
}
