// answer: parses a chat model's output as it is generated: reasoning, content, tool calls.
//
// Models mark these parts in dozens of ways; the chat template shows which ones a model uses. answer.c has a table of
// them: markers around reasoning, markers around calls, and formats in which every part has a header. The notation
// between the markers of a call is recognised by its beginning (answer_calls.c): JSON, XML, key and value, Python.
//
// Guarantees: the joined parts depend only on the text, not on how it is cut. Text that cannot be parsed as a call is
// unchanged content. Any text is accepted; work is linear in it. Held back are the beginning of a marker, white space,
// and for a call the text before the first member of its arguments.
#ifndef WEFT_ANSWER_H
#define WEFT_ANSWER_H
#include "text/text.h"

enum answer_kind { ANSWER_CONTENT, ANSWER_REASONING, ANSWER_CALL };
typedef struct answer_part {
  enum answer_kind kind;
  const char *text;          // terminated UTF-8; for a call a piece of its arguments; the pieces join to a JSON object
  size_t n;
  const char *name, *id;     // for a call's first part; NULL: the part continues the current call
  bool done;                 // of a call's last part
} answer_part;

typedef struct weft_answer answer;
// tmpl: the text of the chat template; at NULL: only the formats that need none. prompt: the rendered text, whose end
// tells whether the answer begins inside reasoning. tools: the JSON given to the template; at NULL: calls are content
// too, unless a header of gpt-oss's kind begins them. -1: tools are no JSON array.
int answer_new(text_view tmpl, text_view prompt, text_view tools, answer **out, error *err);
// A copy of an answer that has no text yet, for another answer to the prompt: what is known of its tools is shared, so
// that one thread at a time may use an answer and its clones. Any of them may be freed first.
answer *answer_clone(const answer *a);
// Returns whether the template marks reasoning in a known format.
bool answer_reasons(text_view tmpl);
void answer_free(answer *a);                                            // NULL is allowed
// Adds text, including control tokens. Returns the number of parts that it completes; they are valid until the next
// call.
size_t answer_add(answer *a, const char *text, size_t n, const answer_part **parts);
// Ends the text. cut: a limit ended it; a call without a name is then dropped.
size_t answer_end(answer *a, bool cut, const answer_part **parts);
// Returns whether the next text is content.
bool answer_in_content(const answer *a);
// The marker that ends the current reasoning; a constructed one is written to own. NULL: not in reasoning.
const char *answer_reasoning_end(const answer *a, char own[64]);
// The i-th marker that may end reasoning, as answer_reasoning_end writes it; NULL: there are no more.
const char *answer_end_mark(const answer *a, size_t i, char own[64]);
// Keeps reasoning, with its markers, in the content; must be called before any text.
void answer_keep_reasoning(answer *a);
#endif
