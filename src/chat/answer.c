// The stream of an answer: see answer.h. The tables list the known markers; answer_new chooses those that the template
// mentions; the rest is a small machine that looks for the markers that are valid at its current place.
#include "chat/answer.h"
#include "base/hash.h"
#include "base/json.h"
#include "chat/answer_impl.h"
#include <stdlib.h>
#include <string.h>

// ---- the formats ----------------------------------------------------------------------------------------------------

// Markers of reasoning. sign: text in the template; NULL: begin. always: recognised with any template.
static const struct think_marks { const char *begin, *end, *sign; bool always; } thinks[] = {
  {"<think>", "</think>", NULL, true},
  {"[THINK]", "[/THINK]", NULL, false},
  {"<seed:think>", "</seed:think>", NULL, false},
  {"<mm:think>", "</mm:think>", NULL, false},
  {"<think:opensource>", "</think:opensource>", ":opensource", false},
  {"<thinking>", "</thinking>", NULL, false},
  {"<reasoning>", "</reasoning>", NULL, false},
  {"<|START_THINKING|>", "<|END_THINKING|>", NULL, false},
  {"<|inner_prefix|>", "<|inner_suffix|>", NULL, false},
  {"<|channel>thought", "<channel|>", NULL, false},
  {"<|think|>", "<|end|>", "<|think|>\n<|content|>", false},
  {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", NULL, false},
};

#define SEP "<\xEF\xBD\x9C" "tool\xE2\x96\x81sep\xEF\xBD\x9C>"
#define DEEPSEEK(what) "<\xEF\xBD\x9C" "tool\xE2\x96\x81" what "\xEF\xBD\x9C>"
#define DSML "\xEF\xBD\x9C" "DSML\xEF\xBD\x9C"
#define MINIMAX "]<]minimax[>["
static const struct call_marks formats[] = {
  {.open = "<tool_call>", .close = "</tool_call>"},
  {.open = "<tool_calls>", .close = "</tool_calls>"},
  {.open = "<function=", .close = "</function>", .flags = MARKS_KEEP},
  {.open = "<seed:tool_call>", .close = "</seed:tool_call>"},
  {.open = "<minimax:tool_call>", .close = "</minimax:tool_call>"},
  {.open = MINIMAX "<tool_call>", .close = MINIMAX "</tool_call>", .sign = MINIMAX, .strip = MINIMAX},
  {.open = "<tool_call:opensource>",
   .close = "</tool_call:opensource>",
   .sign = ":opensource",
   .strip = ":opensource",
   .wrap = "<tool_calls:opensource>\n</tool_calls:opensource>"},
  {.open = "<" DSML "tool_calls>", .close = "</" DSML "tool_calls>", .sign = DSML, .strip = DSML},
  {.open = "<" DSML "function_calls>", .close = "</" DSML "function_calls>", .sign = DSML, .strip = DSML},
  {.open = DEEPSEEK("call\xE2\x96\x81"
                    "begin"),
   .close = DEEPSEEK("call\xE2\x96\x81"
                     "end"),
   .before_name = SEP,
   .after_name = SEP,
   .wrap = DEEPSEEK("calls\xE2\x96\x81"
                    "begin") "\n" DEEPSEEK("calls\xE2\x96\x81"
                                           "end")},
  {.open = "<|tool_call_begin|>",
   .close = "<|tool_call_end|>",
   .sign = "<|tool_calls_section_begin|>",
   .after_name = "<|tool_call_argument_begin|>",
   .wrap = "<|tool_calls_section_begin|>\n<|tool_calls_section_end|>"},
  {.open = "<|tool_call:begin|>",
   .close = "<|tool_call:end|>",
   .before_name = "<|tool_call:name|>",
   .after_name = "<|tool_call:args|>",
   .wrap = "<|tool_calls|>\n<|calls|>\n<|begin|>assistant\n<|content|>\n<|end|>"},
  {.open = "<|tool_call_start|>", .close = "<|tool_call_end|>", .sign = "<|tool_call_start|>\n<|tool_list_start|>"},
  {.open = "<|tools_prefix|>", .close = "<|tools_suffix|>"},
  {.open = "<|START_ACTION|>",
   .close = "<|END_ACTION|>",
   .wrap = "<|START_RESPONSE|>\n<|END_RESPONSE|>\n<|START_TEXT|>\n<|END_TEXT|>"},
  {.open = "<|function_call|>", .close = "<|message_sep|>"},
  {.open = "<|message_sep|>\n\nfunction call<|role_sep|>\n",
   .close = "<|message_sep|>",
   .sign = "'role': 'function call'"},
  {.open = "<TOOLCALL>", .close = "</TOOLCALL>"},
  {.open = "<function_calls>", .close = "</function_calls>"},
  {.open = "<|tool_call>", .close = "<tool_call|>"},
  {.open = "<|tool_call|>", .strip = "<|/tool_call|>"},
  {.open = "[TOOL_CALLS]", .after_name = "[CALL_ID]\n[ARGS]"},
  {.open = "<|python_tag|>", .flags = MARKS_CODE},
  {.open = "{", .sign = "{\"name\": function name", .flags = MARKS_KEEP | MARKS_FIRST},
};
// Used if the template mentions no marker: the formats that models without special tokens have learnt.
static const char *const generic[] = {
  "<tool_call>", "[TOOL_CALLS]", "<function=", "<|tool_call|>", "<|python_tag|>", "{"};

// Formats in which each part of an answer has a header: its recipient or its channel.
static const struct channel_marks {
  // begin: the end of prompts that leave the first header to the model
  const char *sign, *start, *begin, *header_end, *ends;
  struct call_marks call;
  bool name_only;            // the header is a tool's name, or "all"
} channels[] = {
  {"<|channel|>", "<|start|>", "<|start|>assistant", "<|message|>", "<|end|>\n<|call|>\n<|return|>", {0}, false},
  {"<|eom|>", "<|start|>", "<|start|>assistant", "<|message|>", "<|eom|>\n<|eot|>", {.strip = "atem:"}, false},
  {">>>", ">>>", ">>>", "\n", "", {0}, true},
};

// ---- the state machine ----------------------------------------------------------------------------------------------

enum mode { IN_CONTENT, IN_REASONING, IN_HEADER, IN_CALL };
enum action { THINK, UNTHINK, OPEN, CLOSE, DROP, START, HEADER_END, END };
struct mark { const char *text; size_t n; enum action action; const void *of; };

enum { MAX_HEADER = 512, MIN_MARKER = 2 /* a lone '<' at the end is more often text */ };

struct weft_answer {
  VEC(struct mark) marks;
  bool begins[256];                      // bytes with which some mark begins
  const struct channel_marks *channel;   // NULL: the format has no headers
  answer_tools *tools;
  enum mode mode;
  const void *of;                        // the row of thinks or formats whose end is awaited
  bool in_channel;                       // in a call whose name came from a header
  bool started;                          // the header began with a control token: if it is cut, it is dropped
  str name;                              // the name in the header
  bool first;                            // no content and no call yet
  bool skip;                             // white space is skipped
  str held;                              // possibly the beginning of a marker
  str space;                             // white space that is dropped if a marker follows
  // text before the inside of a call or header: restored if it turns out to be neither
  str before;
  str body;                              // of a header, or of the call read so far
  call_reader *reader;                   // IN_CALL
  own_parts own;
  VEC(answer_part) parts;
  id_set ids;                            // of its own calls
};

static bool contains(text_view v, const char *what, size_t n) {
  for (const char *at = v.at;
       v.n >= n && (at = memchr(at, what[0], (size_t)(v.at + v.n - at))) && (size_t)(v.at + v.n - at) >= n; at++)
    if (!memcmp(at, what, n)) return true;
  return false;
}

// Returns whether the template contains one of the lines of `lines`.
static bool mentions(text_view tmpl, const char *lines) {
  for (; lines && *lines; lines += *lines == '\n') {
    size_t n = strcspn(lines, "\n");
    if (tmpl.at && contains(tmpl, lines, n)) return true;
    lines += n;
  }
  return false;
}

static bool mentions_all(text_view tmpl, const char *lines) {
  for (; *lines; lines += *lines == '\n') {
    size_t n = strcspn(lines, "\n");
    if (!tmpl.at || !contains(tmpl, lines, n)) return false;
    lines += n;
  }
  return true;
}

static void add_marks(answer *a, const char *lines, enum action action, const void *of, bool whole) {
  for (; lines && *lines; lines += *lines == '\n') {
    size_t n = whole ? strlen(lines) : strcspn(lines, "\n");
    vec_push(&a->marks, ((struct mark){lines, n, action, of}));
    a->begins[(unsigned char)lines[0]] = true;
    lines += n;
  }
}

static void add_format(answer *a, const struct call_marks *f) {
  add_marks(a, f->open, OPEN, f, true);
  add_marks(a, f->close, CLOSE, f, true);
  add_marks(a, f->wrap, DROP, f, false);
}

static bool ends_with(text_view v, const char *what) {
  size_t n = strlen(what);
  while (v.n && strchr(" \n\t\r", v.at[v.n - 1]) && v.at[v.n - 1]) v.n--;
  return v.n >= n && !memcmp(v.at + v.n - n, what, n);
}

static void choose_format(answer *a, text_view tmpl, text_view prompt) {
  for (size_t i = 0; i < COUNT(channels) && !a->channel; i++)
    if (mentions(tmpl, channels[i].sign)) a->channel = &channels[i];
  if (a->channel) {
    add_marks(a, a->channel->start, START, NULL, true);
    add_marks(a, a->channel->header_end, HEADER_END, NULL, true);
    add_marks(a, a->channel->ends, END, NULL, false);
    if (ends_with(prompt, a->channel->begin)) a->mode = IN_HEADER;
    return;
  }
  for (size_t i = 0; i < COUNT(thinks); i++) {
    if (!thinks[i].always && !mentions_all(tmpl, thinks[i].sign ? thinks[i].sign : thinks[i].begin)) continue;
    add_marks(a, thinks[i].begin, THINK, &thinks[i], true);
    add_marks(a, thinks[i].end, UNTHINK, &thinks[i], true);
    if (ends_with(prompt, thinks[i].begin)) { a->mode = IN_REASONING; a->of = &thinks[i]; }
  }
  if (!a->tools) return;
  size_t had = a->marks.n;
  for (size_t i = 0; i < COUNT(formats); i++)
    if (mentions(tmpl, formats[i].sign ? formats[i].sign : formats[i].open)) add_format(a, &formats[i]);
  for (size_t i = 0; a->marks.n == had && i < COUNT(formats); i++)
    for (size_t j = 0; j < COUNT(generic); j++)
      if (!strcmp(formats[i].open, generic[j])) {
        add_format(a, &formats[i]);
        had = a->marks.n;
      }
}

bool answer_reasons(text_view tmpl) {
  for (size_t i = 0; i < COUNT(thinks); i++)
    if (mentions_all(tmpl, thinks[i].sign ? thinks[i].sign : thinks[i].begin)) return true;
  for (size_t i = 0; i < COUNT(channels); i++)
    if (!channels[i].name_only && mentions(tmpl, channels[i].sign)) return true;
  return false;
}

int answer_new(text_view tmpl, text_view prompt, text_view tools, answer **out, error *err) {
  answer_tools *t = NULL;
  if (tools.at && answer_tools_new(tools, prompt, &t, err)) return -1;
  answer *a = xcalloc(1, sizeof *a);
  a->tools = t;
  a->first = true;
  choose_format(a, tmpl, prompt);
  a->skip = a->mode != IN_CONTENT;
  *out = a;
  return 0;
}

answer *answer_clone(const answer *of) {
  answer *a = xcalloc(1, sizeof *a);
  a->tools = answer_tools_hold(of->tools);
  a->channel = of->channel;
  a->mode = of->mode;
  a->of = of->of;
  a->first = of->first;
  a->skip = of->skip;
  memcpy(a->begins, of->begins, sizeof a->begins);
  for (size_t i = 0; i < of->marks.n; i++) vec_push(&a->marks, of->marks.at[i]);
  return a;
}

static void clear_parts(answer *a) {
  for (size_t i = 0; i < a->own.n; i++) {
    str_free(&a->own.at[i].text);
    free(a->own.at[i].name);
    free(a->own.at[i].id);
  }
  a->own.n = a->parts.n = 0;
}

void answer_free(answer *a) {
  if (!a) return;
  clear_parts(a);
  vec_free(&a->own);
  vec_free(&a->parts);
  vec_free(&a->marks);
  str_free(&a->name);
  str_free(&a->held);
  str_free(&a->space);
  str_free(&a->before);
  str_free(&a->body);
  ids_free(&a->ids);
  call_reader_free(a->reader);
  answer_tools_drop(a->tools);
  free(a);
}

static void emit_part(answer *a, enum answer_kind kind, const char *text, size_t n) {
  if (!n) return;
  if (!a->own.n || a->own.at[a->own.n - 1].p.kind != kind) vec_push(&a->own, ((struct own_part){.p.kind = kind}));
  str_addn(&a->own.at[a->own.n - 1].text, text, n);
}

static const struct call_marks *marks_of_call(const answer *a) { return a->in_channel ? &a->channel->call : a->of; }

static void enter_mode(answer *a, enum mode mode) {
  a->mode = mode;
  a->skip = true;
  a->space.n = a->body.n = 0;
  call_reader_free(a->reader);
  a->reader = NULL;
  if (mode == IN_CALL)
    a->reader = call_reader_new(marks_of_call(a), a->in_channel ? a->name.at : NULL, a->tools, &a->own);
}

// Begins a header or a call; white space before it is restored if it is neither.
static void begin(answer *a, enum mode mode) {
  a->before.n = 0;
  str_addn(&a->before, str_c(&a->space), a->space.n);
  enter_mode(a, mode);
}

static void put_text(answer *a, const char *text, size_t n) {
  enum answer_kind kind = a->mode == IN_CONTENT ? ANSWER_CONTENT : ANSWER_REASONING;
  for (size_t i = 0; i < n; i++) {
    bool space = text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r';
    if (space) { if (!a->skip) str_addc(&a->space, text[i]); continue; }
    emit_part(a, kind, a->space.at, a->space.n);
    emit_part(a, kind, text + i, 1);
    a->space.n = 0;
    a->skip = false;
    if (a->mode == IN_CONTENT) a->first = false;
  }
}

// The text was neither a call nor a header: it is content, unchanged.
static void no_call(answer *a) {
  str all = {0};
  str_addn(&all, str_c(&a->before), a->before.n);
  str_addn(&all, str_c(&a->body), a->body.n);
  enter_mode(a, IN_CONTENT);
  a->skip = false;
  put_text(a, str_c(&all), all.n);
  str_free(&all);
}

static void push_call(answer *a, char c) {
  size_t had = call_reader_calls(a->reader);
  str_addc(&a->body, c);
  if (call_reader_push(a->reader, c)) {
    if (call_reader_calls(a->reader) > had) a->first = false;
    if (call_reader_between(a->reader)) a->before.n = a->body.n = 0;           // nothing to restore
    return;
  }
  // text after a call is content; before the end marker of calls it is dropped
  if (!call_reader_calls(a->reader) || !marks_of_call(a)->close) no_call(a);
}

// Adds text outside of markers.
static void put_plain(answer *a, const char *text, size_t n) {
  if (a->mode == IN_HEADER) { str_addn(&a->body, text, n); return; }
  size_t i = 0;
  while (i < n && a->mode == IN_CALL) push_call(a, text[i++]);
  put_text(a, text + i, n - i);
}

// Returns whether text cut by a limit before a name is the beginning of a call instead of content.
static bool is_begun_call(const answer *a) {
  return !(marks_of_call(a)->flags & MARKS_FIRST) || (a->body.n >= MIN_MARKER && call_reader_promises(a->reader));
}

// Ends a call, at `close` or the end of the text. cut: a limit ended it.
static void finish_call(answer *a, const char *close, size_t n_close, bool cut) {
  const struct call_marks *f = marks_of_call(a);
  bool keep = f->flags & MARKS_KEEP;
  for (size_t i = 0; i < n_close && keep && a->mode == IN_CALL; i++) push_call(a, close[i]);
  if (a->mode != IN_CALL) {
    put_text(a, close, n_close);
  } else if (call_reader_end(a->reader, cut) || (cut && is_begun_call(a))) {
    a->first = false;
    enter_mode(a, IN_CONTENT);
  } else {                               // not a call: restores the text
    if (!keep && !a->in_channel) str_addn(&a->body, close, n_close);
    no_call(a);
  }
}

static bool equals_word(const char *at, size_t n, const char *word) {
  return n == strlen(word) && !memcmp(at, word, n);
}

// "assistant<|channel|>commentary to=functions.NAME", "analysis", " to=self"
static void read_header(answer *a) {
  const char *header = str_c(&a->body), *to = strstr(header, "to=");
  while (*header == ' ' || *header == '\n') header++;
  const char *name = to ? to + 3 : "";
  size_t n = strcspn(name, " \n\t<");
  bool reasoning = strstr(header, "analysis") || equals_word(name, n, "self");
  if (n && !equals_word(name, n, "self") && !equals_word(name, n, "all") && !equals_word(name, n, "user")) {
    a->name.n = 0;
    str_addn(&a->name, name, n);
    a->in_channel = true;
    enter_mode(a, IN_CALL);
    return;
  }
  enter_mode(a, reasoning ? IN_REASONING : IN_CONTENT);
  a->skip = reasoning;
}

// Reads a tool's name, or "all". A line with any other text is not a header: ">>> " is common.
static void read_name(answer *a, const struct mark *end) {
  const char *name = str_c(&a->body);
  bool tool =
    answer_knows_tool(a->tools, (text_view){name, a->body.n}) || (a->tools && equals_word(name, a->body.n, "python"));
  if (equals_word(name, a->body.n, "all")) { enter_mode(a, IN_CONTENT); a->skip = false; return; }
  a->name.n = 0;
  str_addn(&a->name, name, a->body.n);
  str_addn(&a->body, end->text, end->n);
  if (!tool) { no_call(a); return; }
  str_addn(&a->before, a->body.at, a->body.n);
  a->in_channel = true;
  enter_mode(a, IN_CALL);
}

static bool means_something(const answer *a, const struct mark *m) {
  bool token = m->text[0] == '[' || !strncmp(m->text, "<|", 2);
  switch (m->action) {
  case THINK: return a->mode == IN_CONTENT && (a->first || token);
  case UNTHINK: return a->mode == IN_REASONING && a->of == m->of;
  case OPEN:
    if (a->mode == IN_CALL)
      return a->of == m->of && !((const struct call_marks *)m->of)->close &&
             !(((const struct call_marks *)m->of)->flags & MARKS_KEEP);
    return a->mode == IN_CONTENT && (a->first || !(((const struct call_marks *)m->of)->flags & MARKS_FIRST));
  case CLOSE: return a->mode == IN_CALL && !a->in_channel && a->of == m->of;
  case DROP: return a->mode == IN_CONTENT;
  case START: return a->mode != IN_HEADER;
  case HEADER_END: return a->mode == IN_HEADER;
  case END: return a->mode != IN_HEADER;
  }
  return false;
}

static void act_on_mark(answer *a, const struct mark *m) {
  if (a->mode == IN_CALL) finish_call(a, m->text, m->action == CLOSE ? m->n : 0, false);
  switch (m->action) {
  case THINK: enter_mode(a, IN_REASONING); a->of = m->of; break;
  case UNTHINK: case DROP: case END: enter_mode(a, IN_CONTENT); break;
  case OPEN: {
    const struct call_marks *f = m->of;
    a->in_channel = false;
    a->of = f;
    begin(a, IN_CALL);
    if (!(f->flags & MARKS_KEEP)) str_addn(&a->before, m->text, m->n);
    for (size_t i = 0; f->flags & MARKS_KEEP && i < m->n; i++) push_call(a, m->text[i]);
    break;
  }
  case CLOSE: break;
  case START:
    begin(a, IN_HEADER);
    a->started = !a->channel->name_only;
    if (!a->started) str_addn(&a->before, m->text, m->n);
    break;
  case HEADER_END: if (a->channel->name_only) read_name(a, m); else read_header(a); break;
  }
}

// The longest marker at text[0..n), or NULL.  *more: a longer text might be one.
static const struct mark *mark_at(const answer *a, const char *text, size_t n, bool *more) {
  const struct mark *best = NULL;
  *more = false;
  if (!a->begins[(unsigned char)text[0]]) return NULL;
  for (size_t i = 0; i < a->marks.n; i++) {
    const struct mark *m = &a->marks.at[i];
    if (m->text[0] != text[0] || memcmp(text, m->text, n < m->n ? n : m->n) || !means_something(a, m)) continue;
    if (n < m->n) *more = true;
    else if (!best || m->n > best->n) best = m;
  }
  return best;
}

static void find_marks(answer *a, bool last) {
  size_t at = 0, plain = 0;
  while (at < a->held.n) {
    bool more;
    const struct mark *m = mark_at(a, a->held.at + at, a->held.n - at, &more);
    if (more && !last) break;
    if (!m) {
      at++;
      // `first` changes here, and whether the text is a call is decided
      bool changes = a->first || a->mode == IN_HEADER || a->mode == IN_CALL;
      if (changes) { put_plain(a, a->held.at + plain, at - plain); plain = at; }
      if (a->mode == IN_HEADER && a->body.n > MAX_HEADER) no_call(a);
      continue;
    }
    put_plain(a, a->held.at + plain, at - plain);
    plain = at += m->n;
    act_on_mark(a, m);
  }
  if (at > plain) put_plain(a, a->held.at + plain, at - plain);
  if (at) memmove(a->held.at, a->held.at + at, a->held.n - at);
  a->held.n -= at;
}

// An id of nine letters and digits, as Mistral's templates require.
static char *new_id(void) {
  static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  char *id = xcalloc(1, 10);
  uint64_t bits = hash_key_new().a;          // 62^9 is less than 2^54
  for (size_t i = 0; i < 9; i++, bits /= 62) id[i] = digits[bits % 62];
  return id;
}

// Returns whether the model's own id occurs nowhere in the conversation.
static bool is_new_id(const answer *a, const char *id) {
  const text_view v = {id, id ? strlen(id) : 0};
  const id_set *known = answer_tools_ids(a->tools);
  return ids_may_be(v) && !ids_have(&a->ids, v) && !(known && ids_have(known, v));
}

// Chooses the id: the model's, or functions.f:3 if functions.f:2 is used, since Kimi's template shows only the id of an
// earlier call; otherwise a random one.
static void settle_id(const answer *a, struct own_part *own) {
  enum { TRIES = 100, MOST = 1000000 };
  const char *colon = own->id ? strrchr(own->id, ':') : NULL;
  for (long i = colon ? strtol(colon + 1, NULL, 10) % MOST : 0, n = 0; !is_new_id(a, own->id); n++) {
    str next = {0};
    if (colon && n < TRIES) str_addf(&next, "%.*s:%ld", (int)(colon - own->id), own->id, ++i);
    free(own->id);
    own->id = colon && n < TRIES ? next.at : new_id();
    colon = colon && n < TRIES ? strrchr(own->id, ':') : NULL;
  }
}

static size_t give(answer *a, const answer_part **parts) {
  for (size_t i = 0; i < a->own.n; i++) {
    struct own_part *own = &a->own.at[i];
    answer_part p = own->p;
    if (own->name) { settle_id(a, own); ids_put(&a->ids, (text_view){own->id, strlen(own->id)}, NULL); }
    p.name = own->name, p.id = own->id, p.text = str_c(&own->text), p.n = own->text.n;
    vec_push(&a->parts, p);
  }
  *parts = a->parts.at;
  return a->parts.n;
}

size_t answer_add(answer *a, const char *text, size_t n, const answer_part **parts) {
  clear_parts(a);
  str_addn(&a->held, text, n);
  find_marks(a, false);
  return give(a, parts);
}

// True also within a possible call without a marker: JSON required by a grammar begins in the same form.
bool answer_in_content(const answer *a) {
  return a->mode == IN_CONTENT ||
         (a->mode == IN_CALL && !a->in_channel && ((const struct call_marks *)a->of)->flags & MARKS_FIRST);
}

static const char *first_line(const char *end, char own[64]) {
  snprintf(own, 64, "%.*s", (int)strcspn(end, "\n"), end);
  return *own ? own : NULL;
}

const char *answer_reasoning_end(const answer *a, char own[64]) {
  if (a->mode != IN_REASONING) return NULL;
  return first_line(a->channel ? a->channel->ends : ((const struct think_marks *)a->of)->end, own);
}

const char *answer_end_mark(const answer *a, size_t i, char own[64]) {
  if (a->channel) return i ? NULL : first_line(a->channel->ends, own);
  for (size_t k = 0; k < a->marks.n; k++)
    if (a->marks.at[k].action == UNTHINK && !i--) return first_line(a->marks.at[k].text, own);
  return NULL;
}

void answer_keep_reasoning(answer *a) {
  size_t kept = 0;
  for (size_t i = 0; i < a->marks.n; i++)
    if (a->marks.at[i].action != THINK && a->marks.at[i].action != UNTHINK) a->marks.at[kept++] = a->marks.at[i];
  a->marks.n = kept;
  if (a->mode == IN_REASONING) { enter_mode(a, IN_CONTENT); a->skip = false; }
}

size_t answer_end(answer *a, bool cut, const answer_part **parts) {
  clear_parts(a);
  bool marker = a->held.n >= MIN_MARKER || a->mode == IN_CALL;
  if (cut && marker && a->mode != IN_REASONING) a->held.n = 0;
  find_marks(a, true);
  if (a->mode == IN_CALL) finish_call(a, "", 0, cut);
  if (a->mode == IN_HEADER && !a->started && !cut) no_call(a);   // no part had begun
  if (a->mode == IN_CONTENT) emit_part(a, ANSWER_CONTENT, a->space.at, a->space.n);
  a->space.n = 0;
  return give(a, parts);
}
