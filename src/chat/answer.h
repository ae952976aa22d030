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
  const char *text;          // terminated UTF-8; of a call more of its arguments, which join to a JSON object
  size_t n;
  const char *name, *id;     // for a call's first part; NULL: the part continues the current call
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
// Ends the text. cut: a limit ended it; a call whose name is not known yet is then dropped.
size_t answer_end(answer *a, bool cut, const answer_part **parts);
// whether the next text is content
bool answer_in_content(const answer *a);
// What ends the reasoning that it is in, as one written mark in own; NULL: it is in none.
const char *answer_reasoning_end(const answer *a, char own[64]);
// Reasoning stays in the content, with its marks; before any text.
void answer_keep_reasoning(answer *a);
#endif
