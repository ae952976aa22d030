// Chat templates by name, for model files that have none or a wrong one. Names and output are llama.cpp's.
//
// Nearly every format consists of texts before and after the messages of each role, and before the answer. So a format
// is a row of such texts, from which a Jinja template is generated; the rest of the program handles only templates.
#include "chat/chat.h"
#include "base/str.h"
#include <string.h>

enum {
  TRIM = 1,                  // white space around messages is removed
  TRIM_ANSWERS = 2,          // only around the model's messages
  HELD = 4                   // the system message is put inside the next user message, before its text
};

struct frame { const char *before, *after; };
struct format {
  const char *name;
  struct frame system, user, assistant;
  const char *end;           // text that begins the answer
  int flags;
  const char *start;         // text at the very beginning
  const char *unsaid;        // replaces a missing system message
  const char *again;         // before each user message but the first
};

static const struct format formats[] = {
  {"none", {"", ""}, {"", ""}, {"", ""}, "", 0, 0, 0, 0},
  {"chatml",
   {"<|im_start|>system\n", "<|im_end|>\n"},
   {"<|im_start|>user\n", "<|im_end|>\n"},
   {"<|im_start|>assistant\n", "<|im_end|>\n"},
   "<|im_start|>assistant\n",
   0,
   0,
   0,
   0},
  {"llama2", {"", "\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}, "", HELD, 0, 0, 0},
  {"llama2-sys", {"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}, "", HELD, 0, 0, 0},
  {"llama2-sys-bos", {"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"[INST] ", " [/INST]"}, {"", "</s>"}, "", HELD, 0, 0, "<s>"},
  {"llama2-sys-strip",
   {"<<SYS>>\n", "\n<</SYS>>\n\n"},
   {"[INST] ", " [/INST]"},
   {"", "</s>"},
   "",
   HELD | TRIM,
   0,
   0,
   0},
  {"mistral-v1", {"", "\n\n"}, {" [INST] ", " [/INST]"}, {" ", "</s>"}, "", HELD, 0, 0, 0},
  {"mistral-v3", {"", "\n\n"}, {"[INST] ", "[/INST]"}, {" ", "</s>"}, "", HELD | TRIM_ANSWERS, 0, 0, 0},
  {"mistral-v3-tekken", {"", "\n\n"}, {"[INST]", "[/INST]"}, {"", "</s>"}, "", HELD, 0, 0, 0},
  {"mistral-v7", {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"}, {"[INST] ", "[/INST]"}, {" ", "</s>"}, "", 0, 0, 0, 0},
  {"mistral-v7-tekken", {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, {"[INST]", "[/INST]"}, {"", "</s>"}, "", 0, 0, 0, 0},
  {"phi3",
   {"<|system|>\n", "<|end|>\n"},
   {"<|user|>\n", "<|end|>\n"},
   {"<|assistant|>\n", "<|end|>\n"},
   "<|assistant|>\n",
   0,
   0,
   0,
   0},
  {"phi4",
   {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
   {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
   {"<|im_start|>assistant<|im_sep|>", "<|im_end|>"},
   "<|im_start|>assistant<|im_sep|>",
   0,
   0,
   0,
   0},
  {"falcon3", {"<|system|>\n", "\n"}, {"<|user|>\n", "\n"}, {"<|assistant|>\n", "\n"}, "<|assistant|>\n", 0, 0, 0, 0},
  {"zephyr",
   {"<|system|>\n", "<|endoftext|>\n"},
   {"<|user|>\n", "<|endoftext|>\n"},
   {"<|assistant|>\n", "<|endoftext|>\n"},
   "<|assistant|>\n",
   0,
   0,
   0,
   0},
  {"gemma",
   {"", "\n\n"},
   {"<start_of_turn>user\n", "<end_of_turn>\n"},
   {"<start_of_turn>model\n", "<end_of_turn>\n"},
   "<start_of_turn>model\n",
   HELD | TRIM,
   0,
   0,
   0},
  {"orion", {"", "\n\n"}, {"Human: ", "\n\nAssistant: </s>"}, {"", "</s>"}, "", HELD, 0, 0, 0},
  {"openchat",
   {"", "<|end_of_turn|>"},
   {"GPT4 Correct User: ", "<|end_of_turn|>"},
   {"GPT4 Correct Assistant: ", "<|end_of_turn|>"},
   "GPT4 Correct Assistant:",
   0,
   0,
   0,
   0},
  {"vicuna", {"", "\n\n"}, {"USER: ", "\n"}, {"ASSISTANT: ", "</s>\n"}, "ASSISTANT:", 0, 0, 0, 0},
  {"vicuna-orca", {"SYSTEM: ", "\n"}, {"USER: ", "\n"}, {"ASSISTANT: ", "</s>\n"}, "ASSISTANT:", 0, 0, 0, 0},
  {"deepseek",
   {"", ""},
   {"### Instruction:\n", "\n"},
   {"### Response:\n", "\n<|EOT|>\n"},
   "### Response:\n",
   0,
   0,
   0,
   0},
  {"deepseek2", {"", "\n\n"}, {"User: ", "\n\n"}, {"Assistant: ", "<｜end▁of▁sentence｜>"}, "Assistant:", 0, 0, 0, 0},
  {"deepseek3",
   {"", "\n\n"},
   {"<｜User｜>", ""},
   {"<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
   "<｜Assistant｜>",
   0,
   0,
   0,
   0},
  {"deepseek-ocr", {"", ""}, {"", ""}, {"", ""}, "", 0, 0, 0, 0},
  {"command-r",
   {"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
   {"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
   {"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
   "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
   TRIM,
   0,
   0,
   0},
  {"llama3",
   {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
   {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
   {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
   "<|start_header_id|>assistant<|end_header_id|>\n\n",
   TRIM,
   0,
   0,
   0},
  {"llama4",
   {"<|header_start|>system<|header_end|>\n\n", "<|eot|>"},
   {"<|header_start|>user<|header_end|>\n\n", "<|eot|>"},
   {"<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"},
   "<|header_start|>assistant<|header_end|>\n\n",
   TRIM,
   0,
   0,
   0},
  {"chatglm3",
   {"<|system|>\n ", ""},
   {"<|user|>\n ", ""},
   {"<|assistant|>\n ", ""},
   "<|assistant|>",
   0,
   "[gMASK]sop",
   0,
   0},
  {"chatglm4",
   {"<|system|>\n", ""},
   {"<|user|>\n", ""},
   {"<|assistant|>\n", ""},
   "<|assistant|>\n",
   0,
   "[gMASK]<sop>",
   0,
   0},
  {"glmedge", {"<|system|>\n", ""}, {"<|user|>\n", ""}, {"<|assistant|>\n", ""}, "<|assistant|>", 0, 0, 0, 0},
  {"minicpm", {"", ""}, {"<用户>", "<AI>"}, {"", ""}, "", TRIM, 0, 0, 0},
  {"exaone3",
   {"[|system|]", "[|endofturn|]\n"},
   {"[|user|]", "\n"},
   {"[|assistant|]", "[|endofturn|]\n"},
   "[|assistant|]",
   TRIM,
   0,
   0,
   0},
  {"exaone4",
   {"[|system|]", "[|endofturn|]\n"},
   {"[|user|]", "\n"},
   {"[|assistant|]", "[|endofturn|]\n"},
   "[|assistant|]",
   TRIM,
   0,
   0,
   0},
  {"exaone-moe",
   {"<|system|>\n", "<|endofturn|>\n"},
   {"<|user|>\n", "<|endofturn|>\n"},
   {"<|assistant|>\n", "<|endofturn|>\n"},
   "<|assistant|>\n",
   TRIM,
   0,
   0,
   0},
  {"rwkv-world", {"System: ", "\n\n"}, {"User: ", "\n\n"}, {"Assistant: ", "\n\n"}, "Assistant:", TRIM, 0, 0, 0},
  {"granite",
   {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
   {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
   {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"},
   "<|start_of_role|>assistant<|end_of_role|>",
   0,
   0,
   0,
   0},
  {"granite-4.0",
   {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
   {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
   {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"},
   "<|start_of_role|>assistant<|end_of_role|>",
   0,
   0,
   0,
   0},
  {"granite-4.1",
   {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
   {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
   {"<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"},
   "<|start_of_role|>assistant<|end_of_role|>",
   0,
   0,
   0,
   0},
  {"monarch",
   {"system\n", "</s>\n<s>"},
   {"user\n", "</s>\n"},
   {"<s>assistant\n", "</s>\n"},
   "<s>assistant\n",
   0,
   0,
   0,
   "<s>"},
  {"gigachat",
   {"", "<|message_sep|>"},
   {"user<|role_sep|>", "<|message_sep|>available functions<|role_sep|>[]<|message_sep|>"},
   {"assistant<|role_sep|>", "<|message_sep|>"},
   "assistant<|role_sep|>",
   0,
   "<s>",
   0,
   0},
  {"megrez",
   {"<|role_start|>system<|role_end|>", "<|turn_end|>"},
   {"<|role_start|>user<|role_end|>", "<|turn_end|>"},
   {"<|role_start|>assistant<|role_end|>", "<|turn_end|>"},
   "<|role_start|>assistant<|role_end|>",
   0,
   0,
   0,
   0},
  {"bailing",
   {"<role>SYSTEM</role>", ""},
   {"<role>HUMAN</role>", ""},
   {"<role>ASSISTANT</role>", ""},
   "<role>ASSISTANT</role>",
   0,
   0,
   0,
   0},
  {"bailing-think",
   {"<role>SYSTEM</role>", ""},
   {"<role>HUMAN</role>", ""},
   {"<role>ASSISTANT</role>", ""},
   "<role>ASSISTANT</role><think>",
   0,
   0,
   0,
   0},
  {"bailing2",
   {"<role>SYSTEM</role>", "<|role_end|>"},
   {"<role>HUMAN</role>", "<|role_end|>"},
   {"<role>ASSISTANT</role>", "<|role_end|>"},
   "<role>ASSISTANT</role>",
   0,
   0,
   "<role>SYSTEM</role>detailed thinking off<|role_end|>",
   0},
  {"smolvlm",
   {"", "\n\n"},
   {"User: ", "<end_of_utterance>\n"},
   {"Assistant: ", "<end_of_utterance>\n"},
   "Assistant:",
   0,
   "<|im_start|>",
   0,
   0},
  {"hunyuan-moe",
   {"<|startoftext|>", "<|extra_4|>"},
   {"<|startoftext|>", "<|extra_0|>"},
   {"", "<|eos|>"},
   "",
   0,
   0,
   0,
   0},
  {"hunyuan-dense",
   {"", "<｜hy_place▁holder▁no▁3｜>"},
   {"<｜hy_User｜>", "<｜hy_Assistant｜>"},
   {"<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁2｜>"},
   "",
   0,
   0,
   0,
   0},
  {"hunyuan-vl",
   {"", "<｜hy_place▁holder▁no▁3｜>"},
   {"", "<｜hy_User｜>"},
   {"", "<｜hy_Assistant｜>"},
   "",
   0,
   "<｜hy_begin▁of▁sentence｜>",
   0,
   0},
  {"gpt-oss",
   {"<|start|>system<|message|>", "<|end|>"},
   {"<|start|>user<|message|>", "<|end|>"},
   {"<|start|>assistant<|message|>", "<|return|>"},
   "<|start|>assistant",
   0,
   0,
   0,
   0},
  {"kimi-k2",
   {"<|im_system|>system<|im_middle|>", "<|im_end|>"},
   {"<|im_user|>user<|im_middle|>", "<|im_end|>"},
   {"<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"},
   "<|im_assistant|>assistant<|im_middle|>",
   0,
   0,
   0,
   0},
  {"seed_oss",
   {"<seed:bos>system\n", "<seed:eos>"},
   {"<seed:bos>user\n", "<seed:eos>"},
   {"<seed:bos>assistant\n", "<seed:eos>"},
   "<seed:bos>assistant\n",
   TRIM_ANSWERS,
   0,
   0,
   0},
  {"grok-2",
   {"System: ", "<|separator|>\n\n"},
   {"Human: ", "<|separator|>\n\n"},
   {"Assistant: ", "<|separator|>\n\n"},
   "Assistant:",
   TRIM,
   0,
   0,
   0},
  {"yandex", {0}, {" Пользователь: ", "\n\n"}, {" Ассистент: ", "\n\n"}, " Ассистент:[SEP]", 0, 0, 0, 0},
  {"pangu-embedded",
   {"[unused9]系统：", "[unused10]"},
   {"[unused9]用户：", "[unused10]"},
   {"[unused9]助手：", "[unused10]"},
   "[unused9]助手：",
   0,
   0,
   "[unused9]系统：[unused10]",
   0},
  {"solar-open",
   {"<|begin|>system<|content|>", "<|end|>"},
   {"<|begin|>user<|content|>", "<|end|>"},
   {"<|begin|>assistant<|content|>", "<|end|>"},
   "<|begin|>assistant",
   0,
   0,
   0,
   0},
};

// ---- as Jinja -------------------------------------------------------------------------------------------------------

// Adds {{ "text" }}: an expression, since Jinja trims a template's white space around tags.
static void add_text_expr(str *to, const char *text) {
  if (!text || !*text) return;
  str_add(to, "{{ \"");
  for (; *text; text++) {
    if (*text == '\n') str_add(to, "\\n");
    else if (*text == '"' || *text == '\\') { str_addc(to, '\\'); str_addc(to, *text); }
    else str_addc(to, *text);
  }
  str_add(to, "\" }}");
}

static void add_message(str *to, const struct frame *f, const char *content) {
  if (!f->before) return;
  add_text_expr(to, f->before);
  str_addf(to, "{{ %s }}", content);
  add_text_expr(to, f->after);
}

char *chat_template(const char *name, const char **end) {
  const struct format *f = NULL;
  for (size_t i = 0; i < COUNT(formats); i++) if (!strcmp(formats[i].name, name)) f = &formats[i];
  if (!f) return NULL;
  *end = f->assistant.after;
  const char *text = f->flags & TRIM ? "m.content | trim" : "m.content",
             *answer = f->flags & (TRIM | TRIM_ANSWERS) ? "m.content | trim" : "m.content";
  str s = {0};
  str_add(&s, "{{ bos_token }}{% set ns = namespace(held = none, users = 0) %}");
  add_text_expr(&s, f->start);
  if (f->unsaid) {
    str_add(&s, "{% if not messages or messages[0].role != 'system' %}");
    add_text_expr(&s, f->unsaid);
    str_add(&s, "{% endif %}");
  }
  str_add(&s, "{% for m in messages %}{% if m.role == 'system' %}");
  if (f->flags & HELD) str_addf(&s, "{%% set ns.held = %s %%}", text);
  else add_message(&s, &f->system, text);
  str_add(&s, "{% elif m.role == 'assistant' %}");
  add_message(&s, &f->assistant, answer);
  str_add(&s, "{% else %}");
  if (f->again) {
    str_add(&s, "{% if ns.users %}");
    add_text_expr(&s, f->again);
    str_add(&s, "{% endif %}");
  }
  add_text_expr(&s, f->user.before);
  if (f->flags & HELD) {
    str_add(&s, "{% if ns.held is not none %}");
    add_message(&s, &f->system, "ns.held");
    str_add(&s, "{% set ns.held = none %}{% endif %}");
  }
  str_addf(&s, "{{ %s }}", text);
  add_text_expr(&s, f->user.after);
  str_add(&s, "{% set ns.users = ns.users + 1 %}{% endif %}{% endfor %}");
  str_add(&s, "{% if add_generation_prompt %}");
  add_text_expr(&s, f->end);
  str_add(&s, "{% endif %}");
  return s.at;
}

const char *chat_template_name(size_t i) { return i < COUNT(formats) ? formats[i].name : NULL; }
