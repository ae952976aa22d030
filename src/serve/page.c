// The page at /: files of src/serve/page/, which are part of the program.  It asks nothing of anybody but this server,
// and runs nothing but its own script, whatever a model writes.
#define _GNU_SOURCE
#include <string.h>
#include "serve/server.h"

#define ASSET(name, path) \
  __asm__(".section .rodata\n.globl weft_chat_" #name "\nweft_chat_" #name ":\n.incbin \"" path \
  "\"\n.globl weft_chat_" #name "_end\nweft_chat_" #name \
          "_end:\n.byte 0\n.previous\n"); \
  extern const char weft_chat_##name[], weft_chat_##name##_end[]
ASSET(html, WEFT_PAGE_DIR "/chat.html");
ASSET(css, WEFT_PAGE_DIR "/chat.css");
ASSET(js, WEFT_PAGE_DIR "/chat.js");
ASSET(text_js, WEFT_PAGE_DIR "/text.js");
ASSET(store_js, WEFT_PAGE_DIR "/store.js");

static const struct { const char *path, *type, *at, *end; } files[] = {
  {"/", "text/html; charset=utf-8", weft_chat_html, weft_chat_html_end},
  {"/page/chat.css", "text/css; charset=utf-8", weft_chat_css, weft_chat_css_end},
  {"/page/chat.js", "text/javascript; charset=utf-8", weft_chat_js, weft_chat_js_end},
  {"/page/text.js", "text/javascript; charset=utf-8", weft_chat_text_js, weft_chat_text_js_end},
  {"/page/store.js", "text/javascript; charset=utf-8", weft_chat_store_js, weft_chat_store_js_end},
};

void handle_page(server *s, exchange *x) {
  fault f = {0};
  for (size_t i = 0; i < COUNT(files) && !s->o->no_page; i++) {
    if (strcmp(files[i].path, x->path)) continue;
    exchange_header(x, "Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
                    "form-action 'none'; base-uri 'none'");
    exchange_header(x, "X-Frame-Options", "DENY");
    exchange_header(x, "Referrer-Policy", "no-referrer");
    exchange_send(x, 200, files[i].type, files[i].at, (size_t)(files[i].end - files[i].at));
    return;
  }
  fault_set(&f, 404, NULL, "there is nothing at this path");
  answer_fault(s, x, &f);
}
