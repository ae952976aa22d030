// answer: what a chat model writes, taken apart while it comes: reasoning, content, calls of tools.
//
// Models mark these parts in dozens of ways; which ones a model uses can be seen in its chat template.  answer.c has a
// table of them: markers around reasoning, markers around calls, and formats in which every part has a header.  What
// stands between the markers of a call is read by its looks (answer_calls.c): JSON, XML, key and value, Python.
//
// Promises: the parts depend on the text alone, not on how it is cut.  What cannot be read as a call is content, as it
// stands. Any text is fine; work is linear in it, and what is held back is a marker's beginning, white space, or a
// call.
#ifndef WEFT_ANSWER_H
#define WEFT_ANSWER_H
#include "text/text.h"

enum answer_kind { ANSWER_CONTENT, ANSWER_REASONING, ANSWER_CALL };
typedef struct answer_part {
  enum answer_kind kind;
  const char *text;          // terminated UTF-8; of a call its arguments: a JSON object
  size_t n;
  const char *name, *id;     // of a call
} answer_part;

typedef struct weft_answer answer;
// tmpl: the text of the chat template; at NULL: the formats that need none.  prompt: the text that was rendered; its
// end says whether the answer begins inside of reasoning.  tools: the JSON that the template got; at NULL: calls are
// content, too, unless a header of gpt-oss's kind makes them.  -1: tools are no JSON array.
int answer_new(text_view tmpl, text_view prompt, text_view tools, answer **out, error *err);
void answer_free(answer *a);                                            // NULL is fine
// More text; control tokens have to be in it.  The parts that it completes, borrowed until the next call; returns their
// number.
size_t answer_add(answer *a, const char *text, size_t n, const answer_part **parts);
size_t answer_end(answer *a, const answer_part **parts);                // no more text comes
// what comes next is content, as far as anyone can tell
bool answer_in_content(const answer *a);
#endif
