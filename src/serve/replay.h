// replay: copies of streams whose clients may come back.  A request with the header X-Conversation-Id goes on when its
// client leaves, and GET /v1/stream?conv_id=ID&from=N gives what was sent from byte N on, and what follows.
//
// Bounded: BYTES of each stream (the first ones go), TOTAL of all (finished ones go), MOST at once. What has ended is
// kept for KEPT_S; what nobody reads for as long is cancelled. A copy belongs to the key that asked for the stream.
#ifndef WEFT_SERVE_REPLAY_H
#define WEFT_SERVE_REPLAY_H
#include "serve/http.h"

enum { CONVERSATION_ID_MAX = 256 };    // bytes
typedef struct replay replay;
replay *replay_new(void);
void replay_free(replay *p);           // NULL is fine; before http_free, since it holds exchanges
// What is streamed to x from here on is copied under `id`; a stream that has this id already is cancelled.
void replay_copy(replay *p, exchange *x, const char *id);
void replay_tick(replay *p);           // forgets what is old; now and then
#endif
