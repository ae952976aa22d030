// Unsupported fields of other servers, for each family: ignored, which the header Weft-Ignored reports, or refused
// because the answer would differ from what the client expects. docs/serve.md explains the rows.
#include "serve/call.h"

#define TABLE(name, ...) \
  static const struct field name##_table[] = {__VA_ARGS__}; \
  const struct fields name##_fields = FIELDS(name##_table)

static const char cached[] = "prompts are always reused, and answers do not depend on it",
                  not_kept[] = "nothing is kept", no_reports[] = "no reports are sent",
                  one_server[] = "there is one server",
                  whole[] = "the context is never shifted: what does not fit is an error",
                  use_stop[] = "use stop", text_only[] = "answers are text",
                  no_drawing[] = "no pictures are made",
                  in_messages[] = "pictures come in messages, or in prompts as multimodal_data";

// ---- OpenAI's and vLLM's, of chats and completions ------------------------------------------------------------------

#define VLLM \
  FIGNORED("best_of", "[1]", "use n"), FREFUSED("use_beam_search", "[false]", "answers are sampled"), \
  FIGNORED("length_penalty", "[1]", "it is for beam search only"), \
  FREFUSED("stop_token_ids", "[[]]", use_stop), FREFUSED("bad_words", "[[]]", "use logit_bias"), \
  FREFUSED("allowed_token_ids", NULL, "use logit_bias or grammar"), \
  FREFUSED("min_tokens", "[0]", "use ignore_eos"), \
  FREFUSED("include_stop_str_in_output", "[false]", "stop strings are left out"), \
  FREFUSED("prompt_logprobs", "[false]", "/v1/completions scores a prompt, with echo and logprobs"), \
  FREFUSED("truncate_prompt_tokens", NULL, "a prompt is never cut"), \
  FREFUSED("logits_processors", "[[]]", "use logit_bias or grammar"), \
  FIGNORED("skip_special_tokens", "[true]", "control tokens are left out of texts"), \
  FIGNORED("spaces_between_special_tokens", NULL, "control tokens are left out of texts"), \
  FIGNORED("priority", "[0]", "requests are served alternately by key"), \
  FIGNORED("request_id", NULL, "answers have ids of their own"), \
  FIGNORED("return_token_ids", "[false]", "see logprobs"), FIGNORED("cache_salt", NULL, cached), \
  FIGNORED("kv_transfer_params", NULL, one_server), FIGNORED("vllm_xargs", NULL, "no option of vLLM's own is read"), \
  FIGNORED("return_tokens_as_token_ids", "[false]", "logprobs have ids beside texts"), \
  FIGNORED("guided_decoding_backend", NULL, "Weft has one implementation"), \
  FIGNORED("guided_whitespace_pattern", NULL, "the model decides white space in JSON")

#define OPENAI \
  FIGNORED("user", NULL, no_reports), FIGNORED("metadata", NULL, not_kept), FIGNORED("store", "[false]", not_kept), \
  FIGNORED("service_tier", "[\"auto\", \"default\"]", one_server), FIGNORED("safety_identifier", NULL, no_reports), \
  FIGNORED("moderation", NULL, "there is no moderation"), FIGNORED("prompt_cache_key", NULL, cached), \
  FIGNORED("prompt_cache_options", NULL, cached), FIGNORED("prompt_cache_retention", NULL, cached)

TABLE(foreign_openai, FIGNORED("user", NULL, no_reports), VLLM,
      FIGNORED("add_special_tokens", "[true]", "BOS is added as the model's file says"));

TABLE(foreign_chat, OPENAI, VLLM, FREFUSED("audio", NULL, text_only),
      FREFUSED("modalities", "[['text'], []]", text_only), FREFUSED("functions", "[[]]", "use tools"),
      FREFUSED("function_call", "['none', 'auto']", "use tool_choice"),
      FREFUSED("web_search_options", NULL, "the server makes no requests"),
      FIGNORED("prediction", NULL, "drafts are made without it"),
      FIGNORED("verbosity", "['medium']", "the model decides"),
      FREFUSED("chat_template", NULL, "--chat-template-file gives another template"),
      FIGNORED("chat_template_content_format", NULL, "contents are texts"),
      FIGNORED("add_generation_prompt", "[true]", "an answer is always made"),
      FIGNORED("continue_final_message", "[true]", "a last message of the assistant is always continued"),
      FIGNORED("include_reasoning", "[true]", "reasoning is always parsed"),
      FIGNORED("mm_processor_kwargs", NULL, "--image-max-tokens and its like are options of the server"));

TABLE(foreign_responses, OPENAI, FREFUSED("background", "[false]", not_kept),
      FIGNORED("background_options", NULL, not_kept),
      FREFUSED("previous_response_id", NULL, "nothing is kept, so the whole conversation has to come as input"),
      FREFUSED("conversation", NULL, "nothing is kept, so the whole conversation has to come as input"),
      FREFUSED("prompt", NULL, "no prompts are kept"), FIGNORED("include", "[[]]", "answers have all parts"),
      FIGNORED("truncation", "['disabled']", "a prompt is never cut"),
      FIGNORED("max_tool_calls", NULL, "clients run the tools"),
      FIGNORED("context_management", NULL, "clients keep the conversation"),
      FIGNORED("access_programs", NULL, one_server), FIGNORED("image", NULL, no_drawing),
      FIGNORED("top_logprobs", "[0]", "/v1/chat/completions has log-probabilities"),
      FIGNORED("verbosity", "['medium']", "the model decides"), FIGNORED("client_metadata", NULL, not_kept));

// ---- llama.cpp's ----------------------------------------------------------------------------------------------------

TABLE(foreign_llama, FIGNORED("cache_prompt", "[true]", cached), FIGNORED("n_cache_reuse", "[0]", cached),
      FIGNORED("n_keep", "[0, -1]", whole), FIGNORED("n_discard", "[0]", whole),
      FIGNORED("n_indent", "[0]", "lines stay as the model writes them"),
      FIGNORED("response_fields", "[[]]", "answers always have all fields"),
      FIGNORED("timings_per_token", "[false]", "timings come at the end"),
      FIGNORED("verbose", "[false]", "weft serve -v logs more"),
      FIGNORED("sse_ping_interval", NULL, "a stream that is silent for 15 s gets a comment"),
      FIGNORED("min_keep", "[0, 1]", "samplers keep at least one token"),
      FIGNORED("backend_sampling", NULL, "there is one sampler"),
      FIGNORED("speculative.n_max", NULL, "--draft-max decides"),
      FIGNORED("speculative.n_min", NULL, "--draft-min decides"),
      FIGNORED("speculative.p_min", NULL, "--draft-p-min decides"),
      FIGNORED("speculative.type", NULL, "drafts are made if they pay"),
      FIGNORED("grammar_lazy", "[false]", "grammars hold from the first token of the content"),
      FIGNORED("grammar_triggers", "[[]]", "grammars hold from the first token of the content"),
      FIGNORED("preserved_tokens", "[[]]", "control tokens of tool calls are always parsed"),
      FIGNORED("chat_format", NULL, "the template decides"), FIGNORED("chat_parser", NULL, "the template decides"),
      FIGNORED("generation_prompt", NULL, "the template decides"),
      FIGNORED("parse_tool_calls", "[true]", "calls are parsed if there are tools"),
      FIGNORED("reasoning_in_content", "[false]", "reasoning is always parsed"),
      FIGNORED("reasoning_control", "[false]", "the model decides how long it thinks"),
      FIGNORED("thinking_forced_open", "[false]", "the end of the prompt decides it"),
      FREFUSED("image_data", "[[]]", in_messages), FREFUSED("system_prompt", "['', {}]", "put it into the prompt"),
      FIGNORED("penalize_nl", "[false]", "line ends are penalised like others"),
      FIGNORED("tfs_z", "[1]", "this sampler is missing"));

// ---- Anthropic's ----------------------------------------------------------------------------------------------------

TABLE(foreign_anthropic, FIGNORED("cache_control", NULL, cached), FIGNORED("metadata", NULL, not_kept),
      FREFUSED("container", NULL, "the server runs no tools"), FIGNORED("diagnostics", NULL, no_reports),
      FIGNORED("inference_geo", NULL, one_server), FIGNORED("service_tier", "['auto', 'standard_only']", one_server),
      FIGNORED("speed", "['standard']", one_server), FIGNORED("user_profile_id", NULL, no_reports),
      FIGNORED("workspace_id", NULL, no_reports), FIGNORED("betas", "[[]]", "it is a header of other servers"),
      FIGNORED("billing_policy", NULL, no_reports), FIGNORED("compaction", NULL, "clients keep the conversation"),
      FIGNORED("context_management", NULL, "clients keep the conversation"),
      FIGNORED("fallback_credit_token", NULL, one_server), FIGNORED("fallbacks", NULL, one_server),
      FREFUSED("mcp_servers", "[[]]", "the server makes no requests"), FREFUSED("thread", NULL, not_kept));

// ---- ollama's -------------------------------------------------------------------------------------------------------

TABLE(foreign_ollama, FIGNORED("tool_choice", "['auto']", "ollama has no such field; /v1/chat/completions has it"));

TABLE(foreign_generate, FREFUSED("context", "[[]]", "use messages of /api/chat"),
      FREFUSED("template", "['']", "--chat-template-file gives another template"), FIGNORED("width", "[0]", no_drawing),
      FIGNORED("height", "[0]", no_drawing), FIGNORED("steps", "[0]", no_drawing));

static const char by_option[] = "it is an option of the server";
TABLE(foreign_options, FIGNORED("num_keep", NULL, whole), FIGNORED("num_batch", NULL, by_option),
      FIGNORED("num_gpu", NULL, by_option), FIGNORED("main_gpu", NULL, by_option),
      FIGNORED("num_thread", NULL, by_option), FIGNORED("numa", "[false]", by_option),
      FIGNORED("low_vram", "[false]", by_option), FIGNORED("f16_kv", NULL, by_option),
      FIGNORED("use_mmap", NULL, "files are always mapped"), FIGNORED("use_mlock", "[false]", by_option),
      FIGNORED("vocab_only", "[false]", "models are loaded whole"),
      FIGNORED("logits_all", "[false]", "see logprobs"), FIGNORED("embedding_only", "[false]", "see /api/embed"),
      FIGNORED("penalize_newline", "[false]", "line ends are penalised like others"),
      FIGNORED("tfs_z", "[1]", "this sampler is missing"));
