// answer: what a chat model writes, taken apart while it comes: reasoning, content, calls of tools.
//
// Models mark these parts in dozens of ways; which ones a model uses can be seen in its chat template.  answer.c has a
// table of them: markers around reasoning, markers around calls, and formats in which every part has a header.  What
// stands between the markers of a call is read by its looks (answer_calls.c): JSON, XML, key and value, Python.
//
// Promises: the parts, joined, depend on the text alone, not on how it is cut.  What cannot be read as a call is
// content, as it stands.  Any text is fine; work is linear in it.  Held back is a marker's beginning, white space, and
// of a call what comes before the first member of its arguments.
#ifndef WEFT_ANSWER_H
#define WEFT_ANSWER_H
#include "text/text.h"

enum answer_kind { ANSWER_CONTENT, ANSWER_REASONING, ANSWER_CALL };
typedef struct answer_part {
  enum answer_kind kind;
  const char *text;          // terminated UTF-8; of a call more of its arguments, which join to a JSON object
  size_t n;
  const char *name, *id;     // of a call's first part; NULL: the part goes on with the call before it
  bool done;                 // of a call's last part
} answer_part;

typedef struct weft_answer answer;
// tmpl: the text of the chat template; at NULL: the formats that need none.  prompt: the text that was rendered; its
// end says whether the answer begins inside of reasoning.  tools: the JSON that the template got; at NULL: calls are
// content, too, unless a header of gpt-oss's kind makes them.  -1: tools are no JSON array.
int answer_new(text_view tmpl, text_view prompt, text_view tools, answer **out, error *err);
// Whether this template marks reasoning in a way that is known here.
bool answer_reasons(text_view tmpl);
void answer_free(answer *a);                                            // NULL is fine
// More text; control tokens have to be in it.  The parts that it completes, borrowed until the next call; returns their
// number.
size_t answer_add(answer *a, const char *text, size_t n, const answer_part **parts);
// No more text comes.  cut: a limit ended it; a call of which not even the name is known is dropped then.
size_t answer_end(answer *a, bool cut, const answer_part **parts);
// what comes next is content, as far as anyone can tell
bool answer_in_content(const answer *a);
// What ends the reasoning that it is in, as one written mark in own; NULL: it is in none.
const char *answer_reasoning_end(const answer *a, char own[64]);
// Reasoning stays in the content, with its marks; before any text.
void answer_keep_reasoning(answer *a);
#endif
