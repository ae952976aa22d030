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
/* Opens the text of a template (UTF-8; copied). Error messages begin with name and give line and reason. */
int weft_template_open(const char *text, size_t n, const char *name, weft_template **out, weft_error *err);
/* The template of a model file, with its BOS and EOS. tools: the one for conversations with tools, if the file has two.
 */
int weft_template_of_file(const weft_file *f, bool tools, weft_template **out, weft_error *err);
/* The text of a template by llama.cpp's name of its format ("chatml", "llama3", ...), terminated, for weft_free; NULL:
 * unknown name. *end (may be NULL): the text that ends an answer, static; "": none. weft_template_name lists the names
 * by index; NULL: no more. */
char *weft_template_named(const char *name, const char **end);
const char *weft_template_name(size_t i);
void weft_template_close(weft_template *t);   /* NULL is fine */
const char *weft_template_text(const weft_template *t, size_t *n);       /* its source; terminated, borrowed */
/* Whether it marks reasoning in one of the ways that a weft_answer knows. */
bool weft_template_reasons(const weft_template *t);
typedef struct weft_chat {
  size_t size;               /* sizeof this struct, or 0: see base.h */
  const char *messages;      /* JSON: [{"role": "user", "content": "Hello"}, ...] */
  size_t n_messages;         /* bytes, as all n_ here */
  const char *tools;         /* JSON: an array of function descriptions; NULL: none */
  size_t n_tools;
  /* JSON: an object with further variables of the template, such as {"enable_thinking": false}; NULL: none */
  const char *variables;
  size_t n_variables;
  bool no_generation_prompt; /* the text ends with the last message, not with the beginning of an answer */
  const char *bos, *eos;     /* terminated texts of these tokens; NULL: those of the model file, else none */
  const char *now;           /* the time that templates see: "2026-01-31" or "2026-01-31 23:59:59"; NULL: the clock's */
  /* tokens begin with BOS if the model's file asks for one and the template writes none, as in llama.cpp. Otherwise
   * only the template decides, as in transformers */
  bool add_bos;
  size_t most_ids;           /* tokens after which weft_template_encode may stop; 0: never */
  /* Images and sounds: at media_mark, a number and '>' in a message, weft_template_encode inserts the rows of that
   * element of media (weft_medium, below) instead of the text. The mark is random, so that messages cannot contain it.
   */
  const char *media_mark;
  struct weft_medium *const *media;
  size_t n_media;
} weft_chat;
/* The prompt: UTF-8, terminated (*n does not count that), for weft_free. The text does not record who wrote which part:
 * tokenized with WEFT_PARSE_SPECIAL, it has control tokens wherever a message spells one. weft_template_encode keeps
 * that record. */
int weft_template_render(const weft_template *t, const weft_chat *chat, char **text, size_t *n, weft_error *err);
/* The prompt as text and as tokens, without an additional BOS (templates write it) unless add_bos is set. Control
 * tokens only come from the template itself, its BOS and EOS, and the usual roles. All other text of messages, tools
 * and variables, keys and values, stays text, even if it spells a control token or the template builds one from it. If
 * the template refuses the conversation's tool calls, the call is retried with arguments as JSON text and with ids of
 * nine letters and digits. *ids are for weft_free, even if *n_ids is 0. */
int weft_template_encode(const weft_template *t, const weft_vocab *v, const weft_chat *chat, char **text, size_t *n,
                         int32_t **ids, size_t *n_ids, weft_error *err);

/* Parses a chat model's output as it is generated: reasoning, content and tool calls, in the format of the model's
 * template. The joined parts depend only on the text, not on how it is cut; text that cannot be parsed as a call is
 * unchanged content. Arguments are returned as they are written. Ids are the model's own if they are new in the
 * conversation, otherwise nine random letters and digits. */
enum weft_part_kind { WEFT_CONTENT, WEFT_REASONING, WEFT_CALL };
typedef struct weft_part {
  enum weft_part_kind kind;
  /* terminated, valid UTF-8; for a call the next part of its arguments, which join to a JSON object */
  const char *text;
  size_t n;
  const char *name, *id;     /* for a call's first part; NULL: the part continues the current call */
  bool done;                 /* for a call's last part: the arguments are complete */
} weft_part;
typedef struct weft_answer weft_answer;
/* t: NULL for the formats that need no template. prompt: the rendered prompt; its end says whether the answer begins
 * inside reasoning. tools: the JSON that the template got; NULL: none, and calls are content. */
int weft_answer_new(const weft_template *t, const char *prompt, size_t n_prompt, const char *tools, size_t n_tools,
                    weft_answer **out, weft_error *err);
/* Another answer to its prompt, for an answer without text so far. They share what is known of the tools, so that one
 * thread at a time may use an answer and its clones; any of them may be freed first. */
weft_answer *weft_answer_clone(const weft_answer *a);
/* Adds text from a stream that shows control tokens. The completed parts are borrowed until the next call; returns
 * their number. */
size_t weft_answer_add(weft_answer *a, const char *text, size_t n, const weft_part **parts);
/* Ends the text. cut: a limit ended it; then a call has the arguments so far, and no part is done. */
size_t weft_answer_end(weft_answer *a, bool cut, const weft_part **parts);
/* Whether the next text is content, neither reasoning nor a call. Used to apply a grammar to the content alone. */
bool weft_answer_in_content(const weft_answer *a);
/* The text that ends the current reasoning, such as "</think>", in `own`; NULL: not in reasoning. To end it early,
 * evaluate the tokens of this text as if the model had drawn them. */
const char *weft_answer_reasoning_end(const weft_answer *a, char own[64]);
/* Treats reasoning as content, including its marks; call it before adding text. */
void weft_answer_keep_reasoning(weft_answer *a);
void weft_answer_free(weft_answer *a);        /* NULL is fine */

/* Ends reasoning after that many tokens: `message` (NULL: none) and its end mark follow, as if the model had drawn
 * them. One for each answer. The vocabulary must stay open as long. */
typedef struct weft_budget weft_budget;
weft_budget *weft_budget_new(const weft_vocab *v, int64_t tokens, const char *message);
/* Tokenizes the message now, with each mark that may end reasoning in `a`; otherwise it is tokenized when it is needed.
 * *n: the number of tokens that the budget holds. */
int weft_budget_prepare(weft_budget *b, const weft_answer *a, size_t *n, weft_error *err);
/* A budget of as many tokens for another answer. They share the message and its tokens: one thread at a time may use a
 * budget and its clones; any of them may be freed first. */
weft_budget *weft_budget_clone(const weft_budget *b);
/* Call it before each token of `a` is drawn. 1: *id is the next token, instead of a drawn one; 0: draw. */
int weft_budget_next(weft_budget *b, const weft_answer *a, int32_t *id, weft_error *err);
void weft_budget_free(weft_budget *b);        /* NULL is fine */

WEFT_END
#endif
