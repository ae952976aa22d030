// chat: a conversation, its messages and the answers to them.
//   chat.c            the command: options, the model, what is said when
//   chat_answer.c     from the messages to an answer
//   chat_commands.c   lines that begin with /
// Invariant: `past` is what the KV cache holds; `messages` is what the next prompt says, and nothing else is.
#ifndef WEFT_APP_CHAT_H
#define WEFT_APP_CHAT_H
#include "app/settings.h"
#include "app/terminal.h"
#include "base/progress.h"
#include "weft.h"
#include <jansson.h>

enum ending { ENDED, STOPPED, CUT, FULL, BROKEN };   // of an answer: by the model; Ctrl-C; -n; the context; an error

struct chat {
  struct settings o;
  terminal *term;
  weft_model *model;
  const weft_vocab *vocab;
  weft_template *tmpl;
  weft_sampler *sampler;
  weft_grammar *grammar;     // of the content of each answer; or NULL
  weft_stream *stream;
  weft_model *draft_model;   // NULL: there is none
  weft_draft *draft;
  weft_speculation *speculation;
  weft_stop *stop;           // NULL: there are no stop strings
  weft_answer *answer;       // of this turn
  weft_budget *budget;       //   how long it may reason; NULL: any
  int32_t n_vocab;
  char *bos, *eos, *tools, *variables;
  size_t n_tools, n_variables;
  json_t *messages;
  str pending;               // text of /read, and marks of pictures, which go before the next message
  struct media media;        // of the conversation
  bool media_told;           // those of the options are in a message
  // what stands in messages for one of them, with its number and '>'; random
  char media_mark[WEFT_MEDIA_MARK_SIZE];
  struct ids past;           // tokens in the KV cache
  size_t used;               // of the context, by the conversation as it stands
  const float *logits;       // of the token after them
  progress bar;
  // the answer that is being made
  str content, reasoning;
  json_t *calls;
  str arguments;             // of the last one, as far as they have come
  bool broken;               // the last one, by an error
  // figures: of the last answer, and of all
  size_t n_prompt, n_kept, n_answer, total_prompt, total_answer;
  double prompt_s, answer_s;
};

// ---- messages
bool chat_has_role(const json_t *message, const char *role);
json_t *chat_last(const struct chat *c);
void chat_drop_last(struct chat *c);
void chat_set_system(struct chat *c, const char *text, size_t n);

// ---- answers
// Answers the messages.  -1: could not begin, and the last message has to go.
int chat_respond(struct chat *c);
// Adds the message and answers; takes it back where that could not begin.
int chat_say(struct chat *c, json_t *message);

// The next message has this one of the media.
void chat_show_medium(struct chat *c, size_t number);

// Encodes a file that the last line names (terminal_read_file), and says so: "(64 tokens of NAME are in ...)". -1: it
// failed, as a note says.
int chat_attach(struct chat *c, size_t file, const char *name, const char *where);

// ---- commands
// Does what a line without its / says.  1: the conversation ends; -1: it failed.
int chat_run_line(struct chat *c, const char *line);
const char *chat_word(size_t i);     // the name of the i-th, NULL behind the last one
#endif
