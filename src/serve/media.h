// media: pictures and sounds of conversations. Bytes stand in the request itself, in base64, or behind a URL (fetch.h).
// A message's text gets a mark for each (weft_chat.media_mark), random for each request.
#ifndef WEFT_SERVE_MEDIA_H
#define WEFT_SERVE_MEDIA_H
#include "serve/call.h"

// Whether this part of a content is a picture or a sound, as OpenAI, Anthropic and Responses write them.
bool is_medium(const json_t *part);
// Encodes it and adds its mark to the text. 0; -1 and c->fault, which names `field`.
int call_add_part(call *c, const char *field, const json_t *part, str *out);
// The same of base64, or of a URL with data.
int call_add_data(call *c, const char *field, const json_t *data, str *out);
// A prompt that is an object: {"prompt_string": text, "multimodal_data": [base64, ...]}, llama.cpp's, where control
// tokens are read by their names; with parts also {"content": [parts]}, whose texts are characters. It is number i of
// the field `name`.
int call_add_object(call *c, const json_t *o, const char *name, size_t i, bool parts);
// Lets go of all media of a call.
void call_drop_media(call *c);
// Opens the encoder of a model that has just been loaded, if there is one. -1 and why: it does not go with the model.
int served_open_media(const serve_options *o, served *m, weft_error *err);
void served_close_media(served *m);    // nobody holds any; before the model goes
#endif
