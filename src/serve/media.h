// media: pictures and sounds in conversations. Their bytes are in the request, in base64, or at a URL (fetch.h). A
// message's text gets a mark for each (weft_chat.media_mark), random for each request.
#ifndef WEFT_SERVE_MEDIA_H
#define WEFT_SERVE_MEDIA_H
#include "serve/call.h"

// Is this part of a content a picture or a sound, in the form of OpenAI, Anthropic or Responses?
bool is_medium(const json_t *part);
// Encodes it and adds its mark to the text. Returns 0; -1 and c->fault, which names `field`.
int call_add_part(call *c, const char *field, const json_t *part, str *out);
// For base64, or a data URL.
int call_add_data(call *c, const char *field, const json_t *data, str *out);
// A prompt that is an object: llama.cpp's {"prompt_string": text, "multimodal_data": [base64, ...]}, in which control
// tokens are recognised by name; with parts also {"content": [parts]}, whose texts are plain. It is number i of the
// field `name`.
int call_add_object(call *c, const json_t *o, const char *name, size_t i, bool parts);
// Releases all media of a call.
void call_drop_media(call *c);
// Opens the encoder of a model that was just loaded, if it has one. -1 and the reason: it does not fit the model.
int served_open_media(const serve_options *o, served *m, weft_error *err);
void served_close_media(served *m);    // no media may be in use; before the model is closed
#endif
