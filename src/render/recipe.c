// Expands the lines of a descriptor: see recipe.h.
#include "render/recipe.h"
#include <string.h>

void recipe_declaration(const char *call, str *out) {
  const char *p = strchr(call, '(');
  str_addf(out, "declare %.*s(", (int)(p - call) - 5, call + 5);
  for (p++; *p && *p != ')'; p += strspn(p, ", ")) {
    const char *end = *p == '<' ? strchr(p, '>') + 1 : p + strcspn(p, " ");
    str_addf(out, "%s%.*s", out->at[out->n - 1] == '(' ? "" : ", ", (int)(end - p), p);
    int depth = 0;
    for (p = end; *p && (depth || (*p != ',' && *p != ')')); p++) depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
  }
  str_add(out, ")\n");
}

void recipe_line(const char *line, int lanes, const recipe_names *names, str *out) {
  for (const char *p = line; *p;) {
    int number = 0;
    if (!strncmp(p, "{bits}", 6)) { str_addf(out, "%d", 32 * lanes); p += 6; }
    else if (!strncmp(p, "$$", 2)) { str_addc(out, '$'); p += 2; }
    else if (*p == '{') {                            // {n} {2n} {4n}
      int times = p[1] == 'n' ? 1 : p[1] - '0';
      str_addf(out, "%d", times * lanes);
      p = strchr(p, '}') + 1;
    } else if (!strncmp(p, "$acc", 4)) { str_add(out, names->acc); p += 4; }
    else if (p[0] == '$' && (p[1] == 'a' || p[1] == 'b')) { str_add(out, p[1] == 'a' ? names->a : names->b); p += 2; }
    else if (p[0] == '$') {
      for (p++; *p >= '0' && *p <= '9'; p++) number = number * 10 + *p - '0';
      die_if(number < 1 || number > names->n_made,
             "descriptor: line %d names line %d: %s", names->n_made + 1, number, line);
      str_add(out, names->made[number]);
    } else str_addc(out, *p++);
  }
}

void recipe_tile(const char *instruction, int a, int b, char acc, str *out) {
  int ends[] = {4, 4 + a, 4 + a + b, 8 + a + b};
  str_addf(out, "asm \"%s ", instruction);
  for (int part = 0, at = 0; part < 4; part++) {
    str_add(out, part ? ", {" : "{");
    for (int first = at; at < ends[part]; at++) str_addf(out, "%s$%d", at == first ? "" : ", ", at);
    str_add(out, "}");
  }
  str_addf(out, ";\", \"=%c,=%c,=%c,=%c", acc, acc, acc, acc);
  for (int i = 0; i < a + b; i++) str_add(out, ",r");
  for (int i = 0; i < 4; i++) str_addf(out, ",%c", acc);
  str_add(out, "\"");
}
