// replay: copies of streams whose clients may reconnect. A request with the header X-Conversation-Id continues when its
// client leaves, and GET /v1/stream?conv_id=ID&from=N returns the bytes from N on, and continues.
//
// Limits: BYTES per stream (the first bytes are dropped), TOTAL for all (finished ones are dropped), MOST at once. A
// finished stream is kept for KEPT_S; one without a reader for that long is cancelled. A copy belongs to the key that
// requested the stream.
#ifndef WEFT_SERVE_REPLAY_H
#define WEFT_SERVE_REPLAY_H
#include "serve/http.h"

enum { CONVERSATION_ID_MAX = 256 };    // bytes
typedef struct replay replay;
replay *replay_new(void);
void replay_free(replay *p);           // NULL is fine; before http_free, since it holds exchanges
// Copies what is streamed to x from now on under `id`; cancels an existing stream with this id.
void replay_copy(replay *p, exchange *x, const char *id);
void replay_tick(replay *p);           // drops old copies; call it periodically
#endif
