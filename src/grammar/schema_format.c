// Formats of strings, as regular expressions. Generated strings are valid, and simple rather than exhaustive: a `uri`
// has only ASCII letters, and no forms that parsers treat differently.
#include <string.h>
#include "grammar/schema_impl.h"

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26]|0[48])00)"
#define DATE "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|" \
  "02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9a-fA-F]{1,4}"
#define IPV6 "(?:(?:" H16 ":){7}" H16 "|(?:" H16 ":){1,7}:|(?:" H16 ":){1,6}:" H16 "|(?:" H16 ":){1,5}(?::" H16 \
  "){1,2}|(?:" H16 ":){1,4}(?::" H16 "){1,3}|(?:" \
  H16 ":){1,3}(?::" H16 "){1,4}|(?:" H16 ":){1,2}(?::" H16 "){1,5}|" H16 ":(?::" H16 "){1,6}|:(?::" H16 "){1,7}|::)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,3}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define NAME "[A-Za-z](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"              // cannot be parsed as a number
#define WEB_HOST "(?:" LABEL "\\.){0,3}" NAME
#define PORT "(?::\\d{1,4})?"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]{0,15}"
#define PATH "(?:/" PCHAR "*)*"
#define URI "(?:" SCHEME "://(?:[A-Za-z0-9._~-]{1,32}@)?" WEB_HOST PORT PATH TAIL \
  "|(?:mailto|urn|tel|data|news|about):" PCHAR "+" PATH TAIL ")"
#define URI_REFERENCE "(?:" URI "|(?:/(?:" PCHAR "+" PATH ")?)?" TAIL ")"
#define HOSTS WEB_HOST PORT "(?:," WEB_HOST PORT "){0,3}"
#define ATEXT "[A-Za-z0-9_+-]{1,30}"
#define EMAIL ATEXT "(?:\\." ATEXT ")?@" LABEL "(?:\\." LABEL "){0,2}\\.[A-Za-z]{2,10}"
#define HEX "[0-9a-fA-F]"
#define UUID(version) HEX "{8}-" HEX "{4}-" version HEX "{3}-[89abAB]" HEX "{3}-" HEX "{12}"
#define NET4 "(?:" OCTET "\\.0\\.0\\.0/8|" OCTET "\\." OCTET "\\.0\\.0/16|" OCTET "\\." OCTET "\\." OCTET "\\.0/24|" \
  IPV4 \
  "(?:/32)?)"
#define NET6 "(?:" IPV6 "(?:/128)?|(?:" H16 ":){1,2}:/32|(?:" H16 ":){1,3}:/48|(?:" H16 ":){1,4}:/64)"
#define BITS4 "/(?:[12]?\\d|3[0-2])"
#define BITS6 "/(?:\\d|[1-9]\\d|1[01]\\d|12[0-8])"
#define BASE64 "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
#define BASE64URL "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?"
#define SCALAR "(?:-?(?:0|[1-9]\\d{0,17})(?:\\.\\d{1,17})?|true|false|null|\"[^\"\\\\\\u0000-\\u001F]*\")"
#define MEMBER "\"[^\"\\\\\\u0000-\\u001F]*\": ?"
#define FLAT(x) "(?:" x "|\\[(?:" x "(?:, ?" x ")*)?\\]|\\{(?:" MEMBER x "(?:, ?" MEMBER x ")*)?\\})"
#define JSON_TEXT FLAT(FLAT(SCALAR))
#define RX_ATOM "(?:[A-Za-z0-9_ ]|\\\\[dws.]|\\[[A-Za-z0-9]+\\])[*+?]?"
#define VARIABLE "[A-Za-z_][A-Za-z0-9_]*"
#define DECIMAL "-?(?:0|[1-9]\\d{0,30})(?:\\.\\d{1,17})?"
#define LOCAL_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?"

// The formats of JSON schema, of OpenAPI's registry, and of pydantic and zod. Without an expression: any string is
// allowed, or the format adds nothing to the type.
static const struct { const char *name; unsigned types; const char *regex;
} formats[] = {
  {"date", T_STRING, DATE},
  {"time", T_STRING, TIME},
  {"date-time", T_STRING, DATE "T" TIME},
  {"time-local", T_STRING, LOCAL_TIME},
  {"date-time-local", T_STRING, DATE "T" LOCAL_TIME},
  {"http-date", T_STRING,
   "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?:0[1-9]|1\\d|2[0-8]) (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
   "[12]\\d{3} (?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d GMT"},
  {"duration", T_STRING,
   "P(?:\\d{1,4}W|\\d{1,4}Y(?:\\d{1,2}M(?:\\d{1,3}D)?)?(?:T"
   "(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))?"
   "|\\d{1,2}M(?:\\d{1,3}D)?(?:T(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))?|\\d{1,3}"
   "D(?:T(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))?"
   "|T(?:\\d{1,3}H(?:\\d{1,3}M(?:\\d{1,3}S)?)?|\\d{1,3}M(?:\\d{1,3}S)?|\\d{1,3}S))"},
  {"uuid", T_STRING, HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
  {"uuid1", T_STRING, UUID("1")},
  {"uuid3", T_STRING, UUID("3")},
  {"uuid4", T_STRING, UUID("4")},
  {"uuid5", T_STRING, UUID("5")},
  {"uuid6", T_STRING, UUID("6")},
  {"uuid7", T_STRING, UUID("7")},
  {"uuid8", T_STRING, UUID("8")},
  {"ulid", T_STRING, "[0-7][0-9A-HJKMNP-TV-Z]{25}"},
  {"xid", T_STRING, "[0-9a-v]{20}"},
  {"ksuid", T_STRING, "[A-Za-z0-9]{27}"},
  {"nanoid", T_STRING, "[A-Za-z0-9_-]{21}"},
  {"email", T_STRING, EMAIL},
  {"idn-email", T_STRING, EMAIL},
  {"name-email", T_STRING, "[A-Za-z]{1,20}(?: [A-Za-z]{1,20}){0,2} <" EMAIL ">"},
  {"hostname", T_STRING, HOST},
  {"host-name", T_STRING, HOST},
  {"idn-hostname", T_STRING, "[a-z0-9]{1,30}(?:\\.[a-z0-9]{1,30}){0,3}"},
  {"ipv4", T_STRING, IPV4},
  {"ip-address", T_STRING, IPV4},
  {"ipv6", T_STRING, IPV6},
  {"ip", T_STRING, "(?:" IPV4 "|" IPV6 ")"},
  {"ipvanyaddress", T_STRING, "(?:" IPV4 "|" IPV6 ")"},
  {"ipv4network", T_STRING, NET4},
  {"ipv6network", T_STRING, NET6},
  {"ipvanynetwork", T_STRING, "(?:" NET4 "|" NET6 ")"},
  {"ipv4interface", T_STRING, IPV4 "(?:" BITS4 ")?"},
  {"ipv6interface", T_STRING, IPV6 "(?:" BITS6 ")?"},
  {"ipvanyinterface", T_STRING, "(?:" IPV4 "(?:" BITS4 ")?|" IPV6 "(?:" BITS6 ")?)"},
  {"cidrv4", T_STRING, IPV4 BITS4},
  {"cidrv6", T_STRING, IPV6 BITS6},
  {"mac", T_STRING, HEX "{2}(?:(?::" HEX "{2}){5}|(?:-" HEX "{2}){5})"},
  {"e164", T_STRING, "\\+[1-9]\\d{6,14}"},
  {"uri", T_STRING, URI},
  {"iri", T_STRING, URI},
  {"url", T_STRING, "https?://" WEB_HOST PORT PATH TAIL},
  {"uri-reference", T_STRING, URI_REFERENCE},
  {"iri-reference", T_STRING, URI_REFERENCE},
  {"uri-template", T_STRING, "(?:[A-Za-z0-9._~/:?&=-]|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE ")*\\})*"},
  {"multi-host-uri", T_STRING, SCHEME "://(?:[A-Za-z0-9._~-]{1,32}(?::[A-Za-z0-9._~-]{1,32})?@)?" HOSTS PATH TAIL},
  {"json-pointer", T_STRING, "(?:/(?:[^~/]|~[01])*)*"},
  {"relative-json-pointer", T_STRING, "(?:0|[1-9]\\d{0,5})(?:#|(?:/(?:[^~/]|~[01])*)*)"},
  {"regex", T_STRING, "\\^?(?:" RX_ATOM "|\\((?:" RX_ATOM ")+(?:\\|(?:" RX_ATOM ")+)*\\)[*+?]?)*\\$?"},
  {"json-string", T_STRING, JSON_TEXT},
  {"base64", T_STRING, BASE64},
  {"byte", T_STRING, BASE64},
  {"base64url", T_STRING, BASE64URL},
  {"sf-binary", T_STRING, ":" BASE64 ":"},
  {"sf-boolean", T_STRING, "\\?[01]"},
  {"sf-integer", T_STRING, "-?\\d{1,15}"},
  {"sf-decimal", T_STRING, "-?\\d{1,12}\\.\\d{1,3}"},
  {"sf-token", T_STRING, "[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]*"},
  {"sf-string", T_STRING, "\"(?:[ !#-\\[\\]-~]|\\\\[\"\\\\])*\""},
  {"media-range", T_STRING, "(?:\\*/\\*|[a-z]{1,20}/(?:\\*|[a-z0-9][a-z0-9.+-]{0,60}))"},
  {"decimal", T_STRING, DECIMAL},
  {"decimal128", T_STRING, DECIMAL},
  {"fraction", T_STRING, "-?(?:0|[1-9]\\d{0,17})(?:/[1-9]\\d{0,17})?"},
  {"color", T_STRING,
   "#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})|rgb\\(" OCTET "(?:, ?" OCTET "){2}\\)|black|silver|gray|white|"
   "maroon|red|purple|fuchsia|green|lime|olive|yellow|navy|blue|teal|aqua|orange|brown|pink|gold|violet"},
  {"char", T_STRING, "[\\s\\S]"},
  {"binary", 0, ""},
  {"cuid", 0, ""},
  {"cuid2", 0, ""},
  {"emoji", 0, ""},
  {"jwt", 0, ""},
  {"commonmark", 0, ""},
  {"directory-path", 0, ""},
  {"file-path", 0, ""},
  {"html", 0, ""},
  {"password", 0, ""},
  {"path", 0, ""},
  {"zoneinfo", 0, ""},
  {"float", 0, ""},
  {"float16", 0, ""},
  {"float32", 0, ""},
  {"float64", 0, ""},
  {"double", 0, ""},
  {"unixtime", 0, ""},
};

// The format that contentEncoding and contentMediaType of a string imply. NULL: none.
const char *schema_content_format(const json_t *node) {
  const char *encoding = json_string_value(json_object_get(node, "contentEncoding")),
             *media = json_string_value(json_object_get(node, "contentMediaType"));
  if (encoding && (!strcmp(encoding, "base64") || !strcmp(encoding, "base64url"))) return encoding;
  return !encoding && media && !strcmp(media, "application/json") ? "json-string" : NULL;
}

const char *schema_format(const char *name, unsigned *types) {
  for (size_t i = 0; i < COUNT(formats); i++) {
    if (strcmp(formats[i].name, name)) continue;
    *types = formats[i].types;
    return formats[i].regex;
  }
  double lo, hi;
  bool integer = schema_integer_format(name, &lo, &hi);
  *types = integer ? T_INTEGER : T_STRING;
  return integer ? "" : NULL;
}
