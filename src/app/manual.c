// Generates lists and shell completion from the table of options: see manual.h.
#define _GNU_SOURCE
#include "app/manual.h"
#include "app/app.h"
#include "base/env.h"
#include <ctype.h>
#include <string.h>

static const struct { const char *name, *what; } commands[] = {
#define C(name, what) {#name, what},
  COMMANDS(C)
#undef C
};

static bool is_for(const struct option *o, size_t command) { return (o->commands >> command) & 1; }
static bool is_multiple_choice(const struct option *o) {
  return o->value && strchr(o->value, '|') && !strstr(o->value, "FILE") && o->kind != OPT_TEXTS;
}
static bool is_model_option(const struct option *o) {
  return args_does_something(o) && !strncmp(o->names, "-m, --model", 11);
}
static bool takes_file(const struct option *o) {
  return o->value && (strstr(o->value, "FILE") || !strcmp(o->value, "PAGE") || !strcmp(o->value, "JSON") ||
                      (!strcmp(o->value, "TEXT") && strstr(o->names, "file")));
}

// Adds the choices of "[a|b]" or "a|b", separated by spaces.
static void add_choices(str *to, const struct option *o) {
  for (const char *at = o->value; *at; at++) if (!strchr("[]<>", *at)) str_addc(to, *at == '|' ? ' ' : *at);
}

// Adds the help as one line, a sentence.
static void add_sentence(str *to, const struct option *o) {
  size_t from = to->n;
  for (const char *at = o->help; *at; at++) str_addc(to, *at == '\n' ? ' ' : *at);
  if (to->n > from && islower((unsigned char)to->at[from])) to->at[from] = (char)toupper((unsigned char)to->at[from]);
  if (to->n > from && !strchr(".;:", to->at[to->n - 1])) str_addc(to, '.');
}

struct listing { str *to; const char *before, *after, *between; bool some; };
static bool add_name(void *ctx, const char *name, size_t n) {
  struct listing *l = ctx;
  str_addf(l->to, "%s%s%.*s%s", l->some ? l->between : "", l->before, (int)n, name, l->after);
  l->some = true;
  return false;
}
static void add_names(str *to, const struct option *o, const char *before, const char *after, const char *between) {
  args_each_name(o, add_name, &(struct listing){to, before, after, between, false});
}

// ---- the manual page ------------------------------------------------------------------------------------------------

static void print_roff(const char *text, size_t n) {
  if (n && (*text == '.' || *text == '\'')) printf("\\&");
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '-') printf("\\-");
    else if (text[i] == '\\') printf(text[i + 1] == 'f' && strchr("BIR", text[i + 2]) ? "\\" : "\\e");
    else putchar(text[i]);
  }
}

static void print_roff_names(size_t command, enum opt_kind kind, const char *title) {
  str names = {0};
  const struct options *t = &option_table;
  for (size_t i = 0; i < t->n; i++) {
    if (t->at[i].kind != kind || !is_for(&t->at[i], command)) continue;
    if (names.n) str_add(&names, ", ");
    add_names(&names, &t->at[i], "", "", ", ");
  }
  if (names.n) {
    printf(".PP\n%s:\n", title);
    print_roff(names.at, names.n);
    printf(".\n");
  }
  str_free(&names);
}

static void print_man(size_t command) {
  for (size_t i = 0; i < option_table.n; i++) {
    const struct option *o = &option_table.at[i];
    if (!is_for(o, command) || o->kind == OPT_GROUP || o->kind == OPT_IDLE || o->kind == OPT_REFUSED) continue;
    str head = {0}, text = {0};
    if (o->kind == OPT_OPERAND) str_addf(&head, "\\fI%s\\fR", o->names);
    else add_names(&head, o, "\\fB", "\\fR", ", ");
    if (o->value) str_addf(&head, " \\fI%s\\fR", o->value);
    add_sentence(&text, o);
    if (o->more) str_addf(&text, " %s", o->more);
    printf(".TP\n");
    print_roff(head.at, head.n);
    putchar('\n');
    print_roff(text.at, text.n);
    putchar('\n');
    str_free(&head);
    str_free(&text);
  }
  print_roff_names(command, OPT_IDLE,
                   "Options of llama.cpp that do not apply: they are ignored with a note");
  print_roff_names(command, OPT_REFUSED, "Options of llama.cpp that are not supported: they are errors");
}

static void print_environment(void) {
  for (int v = 0; v < ENV_COUNT; v++) {
    const char *d = env_default((enum env_var)v), *help = env_help((enum env_var)v);
    printf(".TP\n.B ");
    print_roff(env_name((enum env_var)v), strlen(env_name((enum env_var)v)));
    putchar('\n');
    print_roff(help, strlen(help));
    if (*d) printf(" (default %s)", d);
    printf("\n");
  }
}

// ---- tables of Markdown: docs/from-llama.cpp.md, options.md, environment.md -----------------------------------------

static void add_commands(str *to, const struct option *o) {
  for (size_t c = 0, some = 0; c < COUNT(commands); c++)
    if (is_for(o, c)) str_addf(to, "%s%s", some++ ? ", " : "", commands[c].name);
}

static void print_cell(const char *text) {
  for (; *text; text++) {
    if (*text == '|') putchar('\\');
    putchar(*text == '\n' ? ' ' : *text);
  }
}

static void print_row(const struct option *o, const char *what) {
  str names = {0}, in = {0};
  add_names(&names, o, "`", "`", ", ");
  add_commands(&in, o);
  printf("| ");
  print_cell(names.at);
  if (o->value) { printf(" "); print_cell(o->value); }
  printf(" | %s | ", in.at);
  print_cell(what);
  printf(" |\n");
  str_free(&names);
  str_free(&in);
}

static void print_theirs(const char *title, const char *column, bool (*belongs)(const struct option *o)) {
  printf("\n## %s\n\n| option | commands | %s |\n|---|---|---|\n", title, column);
  for (size_t i = 0; i < option_table.n; i++) {
    const struct option *o = &option_table.at[i];
    if (!o->theirs || !belongs(o)) continue;
    str what = {0};
    bool foreign = o->kind == OPT_IDLE || o->kind == OPT_REFUSED;
    if (foreign && o->fine && *o->fine && strcmp(o->fine, "*"))
      str_addf(&what, "%s (`%s`: already the default)", o->help, o->fine);
    else if (foreign && o->fine && *o->fine) str_addf(&what, "%s; without a note", o->help);
    else str_add(&what, *o->theirs ? o->theirs : o->help);
    print_row(o, what.at);
    str_free(&what);
  }
}

static bool is_same(const struct option *o) { return args_does_something(o) && !*o->theirs; }
static bool is_different(const struct option *o) { return args_does_something(o) && *o->theirs; }
static bool is_idle(const struct option *o) { return o->kind == OPT_IDLE; }
static bool is_refused(const struct option *o) { return o->kind == OPT_REFUSED; }

static void print_llama(void) {
  print_theirs("Different", "what is different (there: in llama.cpp)", is_different);
  print_theirs("Ignored", "why", is_idle);
  print_theirs("Refused", "why", is_refused);
  print_theirs("As in llama.cpp", "what it does", is_same);
}

// Prints every option that has an effect, once, with its commands.
static void print_options(void) {
  printf("| option | commands | what it does |\n|---|---|---|\n");
  for (size_t i = 0; i < option_table.n; i++) {
    const struct option *o = &option_table.at[i];
    if (!args_does_something(o) || o->kind == OPT_GROUP || o->kind == OPT_OPERAND) continue;
    str what = {0};
    add_sentence(&what, o);
    if (o->env) {
      str_add(&what, " Variable: ");
      for (const char *at = o->env; *at; at += strcspn(at, " "), at += *at == ' ')
        str_addf(&what, "%s`%.*s`", at == o->env ? "" : ", ", (int)strcspn(at, " "), at);
      str_addc(&what, '.');
    }
    print_row(o, what.at);
    str_free(&what);
  }
}

static void print_variables(void) {
  printf("| variable | default | meaning |\n|---|---|---|\n");
  for (int v = 0; v < ENV_COUNT; v++) {
    const char *d = env_default((enum env_var)v);
    printf("| `%s` | %s%s%s | ", env_name((enum env_var)v), *d ? "`" : "", d, *d ? "`" : "");
    print_cell(env_help((enum env_var)v));
    printf(" |\n");
  }
}

// ---- shell completion -----------------------------------------------------------------------------------------------

static void print_bash(void) {
  printf(
    "# Completion of weft for bash: source this file, or install it as /usr/share/bash-completion/completions/weft.\n"
    "# Made from the program's table of options by scripts/docs.sh.\n"
    "_weft() {\n"
    "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words= "
    "files=yes\n"
    "  COMPREPLY=()\n"
    "  if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ \"$before\" = help ]; }; then\n"
    "    words=\"");
  for (size_t c = 0; c < COUNT(commands); c++) printf("%s ", commands[c].name);
  printf("help --help --version\"\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\"; [ \"$before\" = help ] || compgen -f -X "
         "'!*.gguf' -- \"$word\")\n"
         "    return\n"
         "  fi\n"
         "  case \"$command $before\" in\n");
  for (size_t i = 0; i < option_table.n; i++) {
    const struct option *o = &option_table.at[i];
    if (!args_does_something(o) || !(takes_file(o) || is_multiple_choice(o))) continue;
    str patterns = {0}, words = {0};
    for (size_t c = 0; c < COUNT(commands); c++) {
      if (!is_for(o, c)) continue;
      str before = {0};
      str_addf(&before, "\"%s ", commands[c].name);
      if (patterns.n) str_addc(&patterns, '|');
      add_names(&patterns, o, before.at, "\"", "|");
      str_free(&before);
    }
    if (is_multiple_choice(o)) add_choices(&words, o);
    printf("    %s)\n", patterns.at);
    if (is_model_option(o))
      printf("      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$word\"; compgen -f -X "
             "'!*.gguf' -- \"$word\"); return;;\n");
    else if (words.n) printf("      words=\"%s\" files=no;;\n", words.at);
    else
      printf("      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return;;\n");
    str_free(&patterns);
    str_free(&words);
  }
  printf("  esac\n  [ -n \"$words\" ] || case \"$command\" in\n");
  for (size_t c = 0; c < COUNT(commands); c++) {
    str words = {0};
    for (size_t i = 0; i < option_table.n; i++)
      if (is_for(&option_table.at[i], c) && args_does_something(&option_table.at[i])) {
        add_names(&words, &option_table.at[i], "", "", " ");
        str_addc(&words, ' ');
      }
    printf("    %s) words=\"%s%s--help\";;\n", commands[c].name,
           c == COMMAND_cache ? "list verify clear export import " : "", str_c(&words));
    str_free(&words);
  }
  printf("  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
         "  case \"$files$word\" in yes-*|no*) ;; *) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} "
         "COMPREPLY < <(compgen -f -- \"$word\");; esac\n"
         "}\n"
         "complete -F _weft weft\n");
}

// Prints text inside '...' and [...] of zsh's _arguments.
static void print_zsh_text(const char *text) {
  for (; *text; text++) {
    if (*text == '\'') printf("'\\''");
    else if (strchr("[]:\\", *text)) printf("\\%c", *text);
    else putchar(*text == '\n' ? ' ' : *text);
  }
}

struct each { const struct option *o; };
static bool print_zsh_option(void *ctx, const char *name, size_t n) {
  const struct option *o = ((struct each *)ctx)->o;
  printf("    '%s%.*s[", o->kind == OPT_TEXTS ? "*" : "", (int)n, name);
  print_zsh_text(o->help);
  printf("]");
  if (o->value) {
    str words = {0};
    printf(":");
    print_zsh_text(is_multiple_choice(o) ? "choice" : o->value);
    if (is_multiple_choice(o)) { add_choices(&words, o); printf(":(%s)", words.at); }
    else printf(":%s", is_model_option(o) ? "_files -g \"*.gguf\"" : takes_file(o) ? "_files" : " ");
    str_free(&words);
  }
  printf("'\n");
  return false;
}

static void print_zsh(void) {
  printf("#compdef weft\n# Completion of weft for zsh: put it into a folder of $fpath as _weft.\n# Made from the "
         "program's table of options by scripts/docs.sh.\n"
         "_weft() {\n  local -a commands options\n  commands=(\n");
  for (size_t c = 0; c < COUNT(commands); c++) {
    printf("    '%s:", commands[c].name);
    print_zsh_text(commands[c].what);
    printf("'\n");
  }
  printf("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    _files -g '*.gguf'\n    return\n  "
         "fi\n  case $words[2] in\n");
  for (size_t c = 0; c < COUNT(commands); c++) {
    printf("  %s) options=(\n", commands[c].name);
    for (size_t i = 0; i < option_table.n; i++)
      if (is_for(&option_table.at[i], c) && args_does_something(&option_table.at[i]))
        args_each_name(&option_table.at[i], print_zsh_option, &(struct each){&option_table.at[i]});
    printf("    );;\n");
  }
  printf("  esac\n  shift words\n  (( CURRENT-- ))\n  _arguments -S $options '(- *)--help[the options]' "
         "'*:file:_files'\n}\n_weft \"$@\"\n");
}

static bool print_fish_name(void *ctx, const char *name, size_t n) {
  (void)ctx;
  bool two = n > 2 && name[1] == '-';
  printf(" %s %.*s", two ? "-l" : n == 2 ? "-s" : "-o", (int)(n - (two ? 2 : 1)), name + (two ? 2 : 1));
  return false;
}

static void print_fish_text(const char *text) {
  for (; *text; text++) {
    if (*text == '\'' || *text == '\\') putchar('\\');
    putchar(*text == '\n' ? ' ' : *text);
  }
}

static void print_fish(void) {
  printf("# Completion of weft for fish: put it into ~/.config/fish/completions.\n# Made from the program's table of "
         "options by scripts/docs.sh.\n");
  for (size_t c = 0; c < COUNT(commands); c++) {
    printf("complete -c weft -n __fish_use_subcommand -f -a %s -d '", commands[c].name);
    print_fish_text(commands[c].what);
    printf("'\n");
  }
  for (size_t c = 0; c < COUNT(commands); c++) {
    for (size_t i = 0; i < option_table.n; i++) {
      const struct option *o = &option_table.at[i];
      if (!is_for(o, c) || !args_does_something(o)) continue;
      str words = {0};
      if (is_multiple_choice(o)) add_choices(&words, o);
      printf("complete -c weft -n '__fish_seen_subcommand_from %s'", commands[c].name);
      args_each_name(o, print_fish_name, NULL);
      if (words.n) printf(" -x -a '%s'", words.at);
      else if (o->value) printf(takes_file(o) ? " -r" : " -x");
      printf(" -d '");
      print_fish_text(o->help);
      printf("'\n");
      str_free(&words);
    }
  }
}

int manual_print(const char *kind, const char *command) {
  if (command && strcmp(kind, "man")) return usage_error("weft help --as %s takes no command", kind);
  if (!strcmp(kind, "bash")) print_bash();
  else if (!strcmp(kind, "zsh")) print_zsh();
  else if (!strcmp(kind, "fish")) print_fish();
  else if (!strcmp(kind, "llama.cpp")) print_llama();
  else if (!strcmp(kind, "options")) print_options();
  else if (!strcmp(kind, "variables")) print_variables();
  else if (strcmp(kind, "man"))
    return usage_error("weft help --as '%s': it is man, bash, zsh, fish, llama.cpp, options or variables", kind);
  else if (command && !strcmp(command, "environment")) print_environment();
  else {
    for (size_t c = 0; c < COUNT(commands); c++)
      if (command && !strcmp(commands[c].name, command)) {
        print_man(c);
        return EXIT_OK;
      }
    return usage_error("weft help --as man needs a command, or 'environment'");
  }
  return EXIT_OK;
}
