// shapes: the structure of fields common to several families, in JSON Schema, for /openapi.json; written with ' for ".
// The readers implement the same in code, and tests/python/test_serve_schema.py compares both.
#ifndef WEFT_SERVE_SHAPES_H
#define WEFT_SERVE_SHAPES_H

#define SHAPE_OBJECT "{'type':'object'}"
#define SHAPE_TEXTS "{'type':'array','items':{'type':'string'}}"
#define SHAPE_TEXT_OR_TEXTS "{'anyOf':[{'type':'string'}," SHAPE_TEXTS "]}"
#define SHAPE_PARTS \
  "{'type':'array','items':{'type':'object','required':['text'],'properties':{'text':{'type':'string'}}}}"
// parts of a content: text, picture, sound
#define SHAPE_SEEN \
  "{'type':'object','required':['text'],'properties':{'text':{'type':'string'}}}," \
  "{'type':'object','required':['type','image_url'],'properties':{'type':{'enum':['image_url','input_image']}," \
  "'image_url':{'anyOf':[{'type':'string'},{'type':'object','required':['url'],'properties':{'url':{'type':" \
  "'string'}}}]}}},{'type':'object','required':['type','input_audio'],'properties':{'type':{'const':'input_audio'}," \
  "'input_audio':{'anyOf':[{'type':'object','required':['data'],'properties':{'data':{'type':'string'}}}," \
  "{'type':'object','required':['url'],'properties':{'url':{'type':'string'}}}]}}}," \
  "{'type':'object','required':['type','audio_url'],'properties':{'type':{'const':'audio_url'},'audio_url':" \
  "{'type':'object','required':['url'],'properties':{'url':{'type':'string'}}}}}"
// parts of a message: also a refusal of the assistant
#define SHAPE_SAID \
  "{'type':'array','items':{'anyOf':[" SHAPE_SEEN "," \
  "{'type':'object','required':['type','refusal'],'properties':{'type':{'const':'refusal'},'refusal':" \
  "{'type':'string'}}}]}}"
// a prompt with pictures and sounds, in llama.cpp's form
#define SHAPE_MARKED \
  "{'type':'object','required':['prompt_string'],'properties':{'prompt_string':{'type':'string'}," \
  "'multimodal_data':" SHAPE_TEXTS "}}"
#define SHAPE_PROMPT \
  "{'anyOf':[{'type':'string'},{'type':'array','minItems':1,'items':{'anyOf':[" \
  "{'type':['string','integer','array']}," SHAPE_MARKED "]}}," SHAPE_MARKED "]}"
// input of embeddings: also a text with pictures and sounds, as parts or in llama.cpp's form
#define SHAPE_SEEN_TEXT \
  "{'type':'object','required':['content'],'properties':{'content':{'type':'array','items':{'anyOf':[" SHAPE_SEEN \
  "]}}}}," SHAPE_MARKED
#define SHAPE_SEEN_TEXTS \
  "{'anyOf':[{'type':'string'},{'type':'array','minItems':1,'items':{'anyOf':[" \
  "{'type':['string','integer','array']}," SHAPE_SEEN_TEXT "]}}," SHAPE_SEEN_TEXT "]}"
#define SHAPE_MESSAGE \
  "{'type':'object','required':['role'],'properties':{" \
  "'role':{'enum':['system','developer','user','assistant','tool','function']}," \
  "'content':{'anyOf':[{'type':['string','null']}," SHAPE_SAID "]}}}"
#define SHAPE_MESSAGES "{'type':'array','minItems':1,'items':" SHAPE_MESSAGE "}"
#define SHAPE_NAMED "{'type':'object','required':['name'],'properties':{'name':{'type':'string','minLength':1}}}"
#define SHAPE_TOOLS \
  "{'type':'array','items':{'anyOf':[{'type':'object','required':['function'],'properties':{'function':" SHAPE_NAMED \
  "}}," SHAPE_OTHER_TOOL("'function'") "]}}"
// a tool that is not a function (which has one of these types, or none): ignored
#define SHAPE_OTHER_TOOL(ours) \
  "{'type':'object','required':['type'],'properties':{'type':{'type':'string','not':{'enum':[" ours "]}}}}"
#define SHAPE_NAMED_TOOLS(ours) \
  "{'type':'array','items':{'anyOf':[" SHAPE_NAMED "," SHAPE_OTHER_TOOL(ours) "]}}"
#define SHAPE_ALLOWED \
  "{'type':'object','required':['type'],'properties':{'type':{'const':'allowed_tools'}}}"
#define SHAPE_FORMAT \
  "{'type':'object','required':['type'],'properties':{'type':{'enum':['text','json_object','json_schema']}}}"
// function: an object with its name, besides the type
#define SHAPE_CHOICE \
  "{'anyOf':[{'enum':['auto','none','required']},{'type':'object','required':['type','function'],'properties':" \
  "{'type':{'const':'function'},'function':" SHAPE_NAMED "}}," SHAPE_ALLOWED "]}"
#define SHAPE_NAMED_CHOICE(words, type) \
  "{'anyOf':[" words ",{'type':'object','required':['type','name'],'properties':" \
  "{'type':{'const':'" type "'},'name':{'type':'string','minLength':1}}}]}"
#define SHAPE_YES_OR_NO "{'type':'boolean'}"
#define SHAPE_SCALES \
  "{'type':'array','items':{'type':'object','required':['id','scale'],'properties':{'id':{'type':'integer'," \
  "'minimum':0},'scale':{'type':'number'}}}}"
#define SHAPE_SCHEMA_OR_TEXT "{'type':['object','boolean','string']}"
#define SHAPE_CHOICES "{'type':'array','minItems':1,'maxItems':4096,'items':{'type':'string','minLength':1}}"
#define SHAPE_SCHEMA "{'type':['object','boolean']}"
#endif
