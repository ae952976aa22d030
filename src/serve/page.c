// The web page at /: files of src/serve/page/ and libraries of Debian packages (cmake/page.cmake), embedded in the
// program. It sends requests only to this server and runs only these scripts, whatever a model writes. Libraries are
// stored and sent compressed, which every browser accepts.
#define _GNU_SOURCE
#include <string.h>
#include "base/embed.h"
#include "serve/page_files.h"
#include "serve/server.h"

#define ASSET(name, path) EMBED(weft_chat_##name, path)
ASSET(html, WEFT_PAGE_DIR "/chat.html");
ASSET(css, WEFT_PAGE_DIR "/chat.css");
ASSET(js, WEFT_PAGE_DIR "/chat.js");
ASSET(text_js, WEFT_PAGE_DIR "/text.js");
ASSET(store_js, WEFT_PAGE_DIR "/store.js");
ASSET(media_js, WEFT_PAGE_DIR "/media.js");
ASSET(files_js, WEFT_PAGE_DIR "/files.js");
ASSET(rich_js, WEFT_PAGE_DIR "/rich.js");
ASSET(thread_js, WEFT_PAGE_DIR "/thread.js");
ASSET(turn_js, WEFT_PAGE_DIR "/turn.js");
#define LIBRARY(name, url, type, path) ASSET(name, path);
PAGE_FILES(LIBRARY)

static const struct { const char *path, *type, *at, *end; bool packed; } files[] = {
  {"/", "text/html; charset=utf-8", weft_chat_html, weft_chat_html_end, false},
  {"/page/chat.css", "text/css; charset=utf-8", weft_chat_css, weft_chat_css_end, false},
  {"/page/chat.js", "text/javascript; charset=utf-8", weft_chat_js, weft_chat_js_end, false},
  {"/page/text.js", "text/javascript; charset=utf-8", weft_chat_text_js, weft_chat_text_js_end, false},
  {"/page/store.js", "text/javascript; charset=utf-8", weft_chat_store_js, weft_chat_store_js_end, false},
  {"/page/media.js", "text/javascript; charset=utf-8", weft_chat_media_js, weft_chat_media_js_end, false},
  {"/page/files.js", "text/javascript; charset=utf-8", weft_chat_files_js, weft_chat_files_js_end, false},
  {"/page/rich.js", "text/javascript; charset=utf-8", weft_chat_rich_js, weft_chat_rich_js_end, false},
  {"/page/thread.js", "text/javascript; charset=utf-8", weft_chat_thread_js, weft_chat_thread_js_end, false},
  {"/page/turn.js", "text/javascript; charset=utf-8", weft_chat_turn_js, weft_chat_turn_js_end, false},
#define LIBRARY_ROW(name, url, type, path) {url, type, weft_chat_##name, weft_chat_##name##_end, true},
  PAGE_FILES(LIBRARY_ROW)
};

void handle_page(server *s, exchange *x) {
  fault f = {0};
  for (size_t i = 0; i < COUNT(files) && !s->o->no_page; i++) {
    if (strcmp(files[i].path, x->path)) continue;
    exchange_header(x, "Content-Security-Policy",
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self'; "
                    "worker-src 'self'; img-src data:; media-src data:; form-action 'none'; base-uri 'none'");
    exchange_header(x, "X-Frame-Options", "DENY");
    if (files[i].packed) exchange_header(x, "Content-Encoding", "gzip");
    exchange_header(x, "Referrer-Policy", "no-referrer");
    exchange_send_fixed(x, files[i].type, files[i].at, (size_t)(files[i].end - files[i].at));
    return;
  }
  fault_set(&f, 404, NULL, "there is nothing at this path");
  answer_fault(s, x, &f);
}
