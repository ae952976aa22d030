// chat: a conversation, its messages and the answers.
//   chat.c            the command: options, opening the model, the loop over lines
//   chat_answer.c     from messages to an answer
//   chat_commands.c   lines that begin with /
// Invariant: `past` is the content of the KV cache; `messages` alone determines the next prompt.
#ifndef WEFT_APP_CHAT_H
#define WEFT_APP_CHAT_H
#include "app/settings.h"
#include "app/terminal.h"
#include "base/progress.h"
#include "weft.h"
#include <jansson.h>

// why an answer ended: by the model; Ctrl-C; -n; context full; an error
enum ending { ENDED, STOPPED, CUT, FULL, BROKEN };

struct chat {
  struct settings o;
  terminal *term;
  weft_model *model;
  const weft_vocab *vocab;
  weft_template *tmpl;
  weft_sampler *sampler;
  weft_grammar *grammar;     // constrains the content of each answer; or NULL
  weft_stream *stream;
  weft_model *draft_model;   // NULL: no draft model
  weft_draft *draft;
  weft_speculation *speculation;
  weft_stop *stop;           // NULL: no stop strings
  weft_answer *answer;       // parses the answer of this turn
  weft_budget *budget;       //   limits its reasoning; NULL: no limit
  int32_t n_vocab;
  char *bos, *eos, *tools, *variables;
  size_t n_tools, n_variables;
  json_t *messages;
  str pending;               // text of /read, and marks of pictures, for the next message
  struct media media;        // pictures and sounds of the conversation
  bool media_told;           // those of the options are already in a message
  // stands for a picture or sound in messages, with its number and '>'; random, so that text cannot forge it
  char media_mark[WEFT_MEDIA_MARK_SIZE];
  struct ids past;           // tokens in the KV cache
  size_t used;               // context tokens that the conversation uses
  const float *logits;       // of the last token in the cache
  progress bar;
  // the answer so far
  str content, reasoning;
  json_t *calls;
  str arguments;             // of the last call, as far as written
  bool broken;               // the last answer ended by an error
  // figures: of the last answer, and of all
  size_t n_prompt, n_kept, n_answer, total_prompt, total_answer;
  size_t n_denoised;         // answers by denoising so far
  double prompt_s, answer_s;
};

// ---- messages
bool chat_has_role(const json_t *message, const char *role);
json_t *chat_last(const struct chat *c);
void chat_drop_last(struct chat *c);
void chat_set_system(struct chat *c, const char *text, size_t n);

// ---- answers
// Answers the messages. -1: the answer could not begin, and the caller removes the last message.
int chat_respond(struct chat *c);
// Adds the message and answers; removes the message again if the answer could not begin.
int chat_say(struct chat *c, json_t *message);

// Adds a picture or sound to the next message.
void chat_show_medium(struct chat *c, size_t number);

// Encodes a file that the last line names (terminal_read_file), and prints "(64 tokens of NAME are in ...)". -1: it
// failed, and a message is printed.
int chat_attach(struct chat *c, size_t file, const char *name, const char *where);

// ---- commands
// Runs a command, given without its /. 1: the conversation ends; -1: the command failed.
int chat_run_line(struct chat *c, const char *line);
const char *chat_word(size_t i);     // the name of the i-th command; NULL after the last one
#endif
