// shapes: what fields of several families look like inside, in JSON Schema, for /openapi.json; written with ' for ".
// What reads them says the same in code, and tests/python/test_serve_schema.py holds one against the other.
#ifndef WEFT_SERVE_SHAPES_H
#define WEFT_SERVE_SHAPES_H

#define SHAPE_OBJECT "{'type':'object'}"
#define SHAPE_TEXTS "{'type':'array','items':{'type':'string'}}"
#define SHAPE_TEXT_OR_TEXTS "{'anyOf':[{'type':'string'}," SHAPE_TEXTS "]}"
#define SHAPE_PARTS \
  "{'type':'array','items':{'type':'object','required':['text'],'properties':{'text':{'type':'string'}}}}"
#define SHAPE_PROMPT \
  "{'anyOf':[{'type':'string'},{'type':'array','minItems':1,'items':{'type':['string','integer','array']}}]}"
#define SHAPE_MESSAGE \
  "{'type':'object','required':['role'],'properties':{" \
  "'role':{'enum':['system','developer','user','assistant','tool','function']}," \
  "'content':{'anyOf':[{'type':['string','null']}," SHAPE_PARTS "]}}}"
#define SHAPE_MESSAGES "{'type':'array','minItems':1,'items':" SHAPE_MESSAGE "}"
#define SHAPE_NAMED "{'type':'object','required':['name'],'properties':{'name':{'type':'string','minLength':1}}}"
#define SHAPE_TOOLS \
  "{'type':'array','items':{'type':'object','required':['function'],'properties':{'function':" SHAPE_NAMED "}}}"
#define SHAPE_NAMED_TOOLS "{'type':'array','items':" SHAPE_NAMED "}"
#define SHAPE_FORMAT \
  "{'type':'object','required':['type'],'properties':{'type':{'enum':['text','json_object','json_schema']}}}"
// function: an object that has its name, beside the type
#define SHAPE_CHOICE \
  "{'anyOf':[{'enum':['auto','none','required']},{'type':'object','required':['type','function'],'properties':" \
  "{'type':{'const':'function'},'function':" SHAPE_NAMED "}}]}"
#define SHAPE_NAMED_CHOICE(words, type) \
  "{'anyOf':[" words ",{'type':'object','required':['type','name'],'properties':" \
  "{'type':{'const':'" type "'},'name':{'type':'string','minLength':1}}}]}"
#define SHAPE_YES_OR_NO "{'type':'boolean'}"
#define SHAPE_SCHEMA "{'type':['object','boolean']}"
#endif
