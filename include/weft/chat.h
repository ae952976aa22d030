/* weft/chat.h: templates: conversations to prompts; answers: text to reasoning, content and tool calls. */
#ifndef WEFT_API_CHAT_H
#define WEFT_API_CHAT_H
#include "vocab.h"

WEFT_BEGIN

/* ---- Chat templates
 *
 * A template turns a conversation into a prompt.  It is part of a model file: a program in Jinja, evaluated as Python's
 * jinja2 does under transformers.  It computes on its input and has limits on time, memory, depth and output.
 */
typedef struct weft_template weft_template;
/* From the text of a template (UTF-8; copied); name begins error messages, which give line and reason. */
int weft_template_open(const char *text, size_t n, const char *name, weft_template **out, weft_error *err);
/* The template of a model file, with its BOS and EOS.  tools: the one for conversations with tools, where the file has
 * two. */
int weft_template_of_file(const weft_file *f, bool tools, weft_template **out, weft_error *err);
/* The text of a template for a format by llama.cpp's name for it ("chatml", "llama3", ...), terminated, for weft_free;
 * NULL: no such name.  *end (may be NULL): the text that ends an answer, static; "": none.  The names by number; NULL:
 * no more. */
char *weft_template_named(const char *name, const char **end);
const char *weft_template_name(size_t i);
void weft_template_close(weft_template *t);   /* NULL is fine */
const char *weft_template_text(const weft_template *t, size_t *n);       /* what it was made of; terminated, borrowed */
/* Whether it marks reasoning in one of the ways that a weft_answer knows. */
bool weft_template_reasons(const weft_template *t);
typedef struct weft_chat {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  const char *messages;      /* JSON: [{"role": "user", "content": "Hello"}, ...] */
  size_t n_messages;         /* bytes, as all n_ here */
  const char *tools;         /* JSON: an array of function descriptions; NULL: none */
  size_t n_tools;
  const char *variables; /* JSON: an object of what else the template may ask for, such as {"enable_thinking": false};
                            NULL: none */
  size_t n_variables;
  bool no_generation_prompt; /* the text ends with the last message, not with the beginning of an answer */
  const char *bos, *eos;     /* terminated texts of these tokens; NULL: those of the model file, else none */
  const char *now;           /* the time that templates see: "2026-01-31" or "2026-01-31 23:59:59"; NULL: the clock's */
  bool add_bos; /* as tokens, it begins with BOS where the model's file asks for one and the template
                   writes none: llama.cpp's way. Otherwise the template alone decides, as in transformers */
  size_t most_ids;           /* tokens after which weft_template_encode may stop; 0: never */
  /* Pictures and sounds: where a message has media_mark, a number and '>', weft_template_encode puts the rows of that
   * one of media (weft_medium, below), without the text. The mark is random: messages cannot contain it. */
  const char *media_mark;
  struct weft_medium *const *media;
  size_t n_media;
} weft_chat;
/* The prompt: UTF-8, terminated (*n does not count that), for weft_free.  A text does not say its authors: tokenized
 * with WEFT_PARSE_SPECIAL, it has control tokens wherever a message spells one.  weft_template_encode has that record.
 */
int weft_template_render(const weft_template *t, const weft_chat *chat, char **text, size_t *n, weft_error *err);
/* The prompt as text and as tokens, without a BOS of its own (templates write it) but for add_bos.  Control tokens come
 * from the template alone, its BOS and EOS, and roles that are usual.  All other text of messages, tools and variables
 * stays text, keys and values, also if it spells a control token, or if the template makes one of it.  If the template
 * refuses the conversation's tool calls, their arguments as JSON text and ids of nine letters and digits are tried.
 * *ids are for weft_free, also when *n_ids is 0. */
int weft_template_encode(const weft_template *t, const weft_vocab *v, const weft_chat *chat, char **text, size_t *n,
                         int32_t **ids, size_t *n_ids, weft_error *err);

/* What a chat model writes, taken apart while it comes: reasoning, content, and tool calls, in the format that the
 * model's template shows.  The parts, joined, depend on the text alone, not on how it is cut; what cannot be read as a
 * call is unchanged content.  Arguments come as they are written; ids are the model's own, if they are new in the
 * conversation, or nine random letters and digits. */
enum weft_part_kind { WEFT_CONTENT, WEFT_REASONING, WEFT_CALL };
typedef struct weft_part {
  enum weft_part_kind kind;
  const char *text;          /* terminated, valid UTF-8; of a call more of its arguments, which join to a JSON object */
  size_t n;
  const char *name, *id;     /* of a call's first part; NULL: the part continues the call before it */
  bool done;                 /* of a call's last part: the arguments are whole */
} weft_part;
typedef struct weft_answer weft_answer;
/* t: NULL for the formats that need no template.  prompt: what was rendered; its end says whether the answer begins
 * inside of reasoning.  tools: the JSON that the template got; NULL: none, and calls are content. */
int weft_answer_new(const weft_template *t, const char *prompt, size_t n_prompt, const char *tools, size_t n_tools,
                    weft_answer **out, weft_error *err);
/* More text, from a stream that shows control tokens.  The parts that it completes are borrowed until the next call;
 * returns their number. */
size_t weft_answer_add(weft_answer *a, const char *text, size_t n, const weft_part **parts);
/* No more text comes.  cut: a limit ended it; then a call has what there is of its arguments, and no part that is done.
 */
size_t weft_answer_end(weft_answer *a, bool cut, const weft_part **parts);
/* What comes next is content as far as anyone can tell: neither reasoning nor a call.  A grammar for the content alone
 * asks that. */
bool weft_answer_in_content(const weft_answer *a);
/* What ends the reasoning that the answer is in, such as "</think>", in `own`; NULL: it is in none.  To end it early,
 * the tokens of this text are evaluated as if the model had drawn them. */
const char *weft_answer_reasoning_end(const weft_answer *a, char own[64]);
/* Reasoning is content, with its marks; to be said before any text is added. */
void weft_answer_keep_reasoning(weft_answer *a);
void weft_answer_free(weft_answer *a);        /* NULL is fine */

/* Reasoning of more than that many tokens is ended: `message` (NULL: none) and its end mark follow, as if the model
 * had drawn them. One for each answer. The vocabulary has to live as long. */
typedef struct weft_budget weft_budget;
weft_budget *weft_budget_new(const weft_vocab *v, int64_t tokens, const char *message);
/* Before each token of `a` is drawn. 1: *id is the token that comes next, instead of one that is drawn; 0: draw. */
int weft_budget_next(weft_budget *b, const weft_answer *a, int32_t *id, weft_error *err);
void weft_budget_free(weft_budget *b);        /* NULL is fine */

WEFT_END
#endif
